"""Which configurations are searched: from `[tune]`, from the workload and from the machine."""

from typing import Any

import pytest

from inference_recommender.tune.space import default_targets, own, space
from workloads import OpenVinoTarget, load_workload
from workloads.serving import Tune

SPELLCHECK = load_workload("spellcheck").workload
TWO_CORES = 2


def one_of_each(**values: Any) -> Tune:
    defaults = {"threads": (1,), "model_instances": (1,), "max_batch_sizes": (8,)}
    rest = {"preferred_batch_sizes": ((),), "max_queue_delays_ms": (0.0,)}
    return Tune(targets=("cpu",), **{**defaults, **rest, **values})


def test_the_default_space_fits_the_machine_and_begins_with_the_current_configuration() -> None:
    found, left_out = space(SPELLCHECK, Tune(targets=("cpu",)), TWO_CORES)
    assert found[0] == own(SPELLCHECK, "cpu")
    assert len(set(found)) == len(found) == 30
    assert {(each.serving.model_instances, each.threads) for each in found} == {(1, 1), (2, 1), (1, 2)}
    assert {why: len(labels) for why, labels in left_out.items()} == {
        "model instances times threads are more than the 2 cores": 10
    }
    alone, _ = space(SPELLCHECK, Tune(targets=("cpu",)), 1)
    assert {(each.serving.model_instances, each.threads) for each in alone} == {(1, 1)}


def test_batches_that_do_not_hold_a_request_are_left_out() -> None:
    objective = SPELLCHECK.latency_objective.model_copy(update={"rows_per_invocation": 8})
    found, left_out = space(SPELLCHECK.model_copy(update={"objective": objective}), Tune(targets=("cpu",)), TWO_CORES)
    assert {each.serving.max_batch_size for each in found} == {16}
    assert "their batches do not hold the 8 rows of a request" in left_out


@pytest.mark.parametrize(
    ("tune", "labels", "left_out"),
    [
        (  # named values are tried even if they exceed the cores
            one_of_each(threads=(2,), model_instances=(4,)),
            ["cpu, 4 × 2 threads, batch 8, delay 0 ms"],
            {},
        ),
        (  # without batching, sizes and delays make no difference
            Tune(targets=("cpu",), threads=(1,), model_instances=(1,), max_batch_sizes=(1,)),
            ["cpu, 1 × 1 thread, no batching"],
            {},
        ),
        (
            one_of_each(max_queue_delays_ms=(0.0, 50.0)),
            ["cpu, 1 × 1 thread, batch 8, delay 0 ms"],
            {
                "a request that waits for a queue delay of 50 ms misses the limit": (
                    "cpu, 1 × 1 thread, batch 8, delay 50 ms",
                )
            },
        ),
        (  # a preferred size above the batch makes no configuration
            one_of_each(max_batch_sizes=(4, 16), preferred_batch_sizes=((8,),)),
            ["cpu, 1 × 1 thread, batch 16 (8), delay 0 ms"],
            {},
        ),
    ],
)
def test_the_space_of_named_values(tune: Tune, labels: list[str], left_out: dict[str, tuple[str, ...]]) -> None:
    found, excluded = space(SPELLCHECK, tune, TWO_CORES)
    assert ([each.label for each in found], excluded) == (labels, left_out)


def test_openvino_is_searched_like_onnx_runtime() -> None:
    workload = load_workload("query_intent").workload
    target = OpenVinoTarget(runtime="openvino", precision="bf16", instance_types=("c7i.xlarge",))
    both = workload.model_copy(update={"targets": {**workload.targets, "openvino": target}})
    of_cpu, of_openvino = (space(both, Tune(targets=(name,)), TWO_CORES)[0] for name in ("cpu", "openvino"))
    assert [each.model_copy(update={"target": "cpu"}) for each in of_openvino] == list(of_cpu)


@pytest.mark.parametrize(("workload", "target"), [("spellcheck", "tensorrt"), ("text_classification", "pytorch")])
def test_a_gpus_target_keeps_its_threads_and_has_one_or_two_copies(workload: str, target: str) -> None:
    found, _ = space(load_workload(workload).workload, Tune(targets=(target,), max_batch_sizes=(16,)), 8)
    assert {(each.serving.model_instances, each.threads) for each in found} == {(1, None), (2, None)}


def test_the_hosted_target_is_searched_where_it_runs() -> None:
    assert default_targets(SPELLCHECK, gpu=True) == ("tensorrt",)
    assert default_targets(SPELLCHECK, gpu=False) == ("cpu",)
    assert default_targets(load_workload("query_intent").workload, gpu=True) == ("cpu",)
