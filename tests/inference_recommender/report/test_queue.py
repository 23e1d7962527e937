"""Queue time against compute time by load with its advice, and a cold start in words."""

import json
from typing import Any

import pytest

from inference_recommender.capacity.probe import Probe
from inference_recommender.report.queue import advice, queue_against_compute, queue_table
from inference_recommender.report.sections import cold_start_text
from tests.inference_recommender.report.builders import COLD_START, a_probe, a_searched_measurement
from workloads import Workload, load_workload

WORKLOAD = load_workload("spellcheck").workload


def delayed(workload: Workload, delay_ms: float) -> Workload:
    """Returns the workload with a batcher that holds requests back for so long."""
    document: dict[str, Any] = workload.model_dump(mode="json")
    document["serving"]["max_queue_delay_ms"] = delay_ms
    for variant in document["variants"].values():
        variant["serving"]["max_queue_delay_ms"] = delay_ms
    return Workload.model_validate_json(json.dumps(document))


@pytest.mark.parametrize(
    ("probes", "delay_ms", "said"),
    [
        (
            (a_probe(60, 5.0, 4.0), a_probe(600, 5.0, 4.0)),
            5.0,
            "Even at 60 invocations/min a request queues for 5 ms. Try a max_queue_delay_ms below 5.",
        ),
        (
            (a_probe(60, 0.0, 9.0), a_probe(600, 1.0, 9.0), a_probe(1200, 90.0, 9.0, latency_ms=130.0)),
            0.0,
            "At 600 invocations/min a request queues for 1 of its 10 ms in Triton. Computing takes the time: a faster "
            "model (target or precision) shortens it.",
        ),
        (
            (a_probe(60, 0.0, 4.0), a_probe(600, 12.0, 8.0)),
            0.0,
            "At 600 invocations/min a request queues for 12 of its 20 ms in Triton, and computes 2.0 times as long as "
            "at 60. The machine is saturated: use a larger one or more of them. More model instances do not help.",
        ),
        (
            (a_probe(60, 0.0, 4.0), a_probe(600, 12.0, 8.0, rows=4.0)),
            0.0,
            "At 600 invocations/min a request queues for 12 of its 20 ms in Triton. It waits for a free model "
            "instance: try more of them, or larger batches.",
        ),
        (
            (a_probe(600, 6.0, 4.0, latency_ms=90.0),),
            0.0,
            "At 600 invocations/min a request queues for 6 of its 10 ms in Triton. It waits for a free model "
            "instance: try more of them, or larger batches.",
        ),
    ],
    ids=["delay", "computing", "nothing left", "free instance", "one probe"],
)
def test_queue_and_compute_times_give_advice(probes: tuple[Probe, ...], delay_ms: float, said: str) -> None:
    assert advice(delayed(WORKLOAD, delay_ms), a_searched_measurement(*probes)) == said


def test_the_table_has_a_row_for_each_load_the_lightest_first_and_the_plot_its_points() -> None:
    seen = [a_searched_measurement(a_probe(600, 12.0, 8.0), a_probe(60, 0.5, 4.0))]
    found = queue_table(WORKLOAD, seen)
    assert found is not None
    rows = [(row["invocations_per_minute"], row["queue_ms"], row["infer_ms"]) for row in found.rows]
    assert rows == [(60.0, 0.5, 4.0), (600.0, 12.0, 8.0)]
    assert found.note.startswith("Means per request inside Triton, from its counters.")
    assert found.note.endswith("More model instances do not help.")
    plot = queue_against_compute(seen)
    assert plot is not None
    assert "queue,600.0,12.0" in plot.csv
    assert "total,60.0,4.5" in plot.csv


def test_there_is_neither_without_times_of_a_server() -> None:
    silent = a_searched_measurement(Probe(invocations_per_minute=60.0, duration_s=1.0, latency_ms=1.0, late_share=0.0))
    assert queue_table(WORKLOAD, [silent]) is None
    assert queue_against_compute([silent]) is None
    assert advice(WORKLOAD, silent) is None


def test_a_cold_start_in_words_names_what_it_does_not_include() -> None:
    assert cold_start_text(COLD_START) == (
        "A new server answers within the objective after 3.32 s: 3 starts of ml.c5.xlarge on two cores. Provisioning "
        "is not included, and the archive came from this machine's memory."
    )
    on_aws = COLD_START.model_copy(
        update={
            "measured_on": "sagemaker",
            "machine": "SageMaker, asked from two cores",
            "starts": 1,
            "fetch_s": None,
            "warm_up_s": None,
            "total_s": None,
        }
    )
    assert cold_start_text(on_aws) == (
        "No answer within the objective in 1 start of ml.c5.xlarge on SageMaker, asked from two cores. Loading "
        "includes the models' warm-up, because the server's log is not verbose. SageMaker does not report instance, "
        "image and archive separately."
    )
