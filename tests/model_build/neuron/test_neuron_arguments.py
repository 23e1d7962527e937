"""The calls that compile for Neuron are known beforehand, to the letter."""

import json
from pathlib import Path
from typing import Any

import pytest
import tomllib
from hypothesis import given
from hypothesis import strategies as st

from model_build.neuron.arguments import calls, sequence_lengths, suggested_pipeline_cores
from tests.tiny_classifier import FIVE, make_model
from workloads import EncoderModel, NeuronTarget, UsageError, Workload

GOLDENS = Path(__file__).parents[1] / "goldens" / "neuron"

WORKLOAD = """
name = "intent"
description = "one model, two kinds of Inferentia"

[model]
task = "text-classification"
checkpoint = "./checkpoint"
labels = ["a", "b"]
max_input_tokens = 32

[quality]
min_accuracy = 0.9
min_macro_f1 = 0.9

[targets.inf1]
runtime = "neuron"
batch_size = 2
sequence_lengths = [16, 32]
instance_types = ["inf1.6xlarge"]

[targets.inf2]
runtime = "neuronx"
batch_size = 2
sequence_lengths = [16, 32]
instance_types = ["inf2.xlarge"]

[objective]
percentile = "P99"
model_latency_ms = 10.0
overhead_latency_ms = 5.0
peak_invocations_per_minute = 960_000

[hosting]
kind = "ecs-service"
target = "inf1"
"""


def make_target(runtime: str = "neuron", **keys: Any) -> NeuronTarget:
    return NeuronTarget.model_validate_json(json.dumps({"runtime": runtime, **keys}))


def tensorflow() -> EncoderModel:
    return make_model().model_copy(update={"framework": "tensorflow"})


def text(target: NeuronTarget, model: EncoderModel, tensorflow_version: str | None = None) -> str:
    return "\n\n".join(call.text() for call in calls(target, model, tensorflow_version)) + "\n"


CASES: dict[str, str] = {
    "inf1": text(make_target(), make_model()),
    "inf1-cast-none": text(make_target(cast="none"), make_model()),
    "inf1-pipeline": text(
        make_target(cast="matmult", placement="one-per-core", pipeline_cores=16), make_model(max_input_tokens=128)
    ),
    "inf1-five-inputs-two-lengths": text(
        make_target(batch_size=6, sequence_lengths=[128, 64]), make_model(FIVE, max_input_tokens=128)
    ),
    "inf2": text(make_target("neuronx"), make_model()),
    "inf2-cast-none": text(make_target("neuronx", cast="none", batch_size=8), make_model()),
    "inf1-tensorflow-1": text(make_target(batch_size=4, sequence_lengths=[16, 32]), tensorflow(), "1.15.5"),
    "inf1-tensorflow-2": text(make_target(placement="one-per-core", pipeline_cores=4), tensorflow(), "2.10.1"),
    "inf2-tensorflow-2": text(make_target("neuronx", cast="matmult"), tensorflow(), "2.10.1"),
}


@pytest.mark.parametrize("case", CASES)
def test_the_call_is_the_golden_one(case: str) -> None:
    """A text that changed is written over the golden one, for `git diff` to show."""
    golden = GOLDENS / f"{case}.txt"
    expected = golden.read_text("utf-8") if golden.exists() else None
    golden.write_text(CASES[case], "utf-8")
    assert CASES[case] == expected


def test_every_golden_has_its_case() -> None:
    assert {file.stem for file in GOLDENS.iterdir()} == set(CASES)


def test_one_line_of_the_workload_moves_it_from_inf1_to_inf2() -> None:
    line = 'target = "inf1"'
    assert WORKLOAD.count(line) == 1
    before, after = (load(each) for each in (WORKLOAD, WORKLOAD.replace(line, 'target = "inf2"')))
    assert (before.instance_types, after.instance_types) == (("inf1.6xlarge",), ("inf2.xlarge",))
    assert called(before) == ["torch.neuron.trace"] * 2
    assert called(after) == ["torch_neuronx.trace"] * 2


def load(toml: str) -> Workload:
    return Workload.from_table(Path("workload.toml"), tomllib.loads(toml))


def called(workload: Workload) -> list[str]:
    target, model = workload.targets[workload.hosting.target], workload.model
    assert isinstance(target, NeuronTarget)
    assert model.task != "text2text-generation"
    return [call.function for call in calls(target, model)]


def test_lengths_come_shortest_first_and_once() -> None:
    assert sequence_lengths(make_target(sequence_lengths=[32, 8, 32]), make_model()) == (8, 32)


@pytest.mark.parametrize("lengths", [[16], [16, 64]])
def test_the_longest_graph_is_as_long_as_the_longest_request(lengths: list[int]) -> None:
    with pytest.raises(UsageError) as caught:
        calls(make_target(sequence_lengths=lengths), make_model())
    assert str(caught.value) == (
        f"sequence_lengths: got {lengths}, but model.max_input_tokens is 32, and requests of that length need a "
        "graph. Make the longest 32."
    )
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    ("runtime", "version", "allowed"),
    [("neuronx", "1.15.5", "2"), ("neuron", "3.0.0", "1 or 2"), ("neuron", None, "1 or 2")],
)
def test_a_saved_model_of_another_tensorflow_is_refused(runtime: str, version: str | None, allowed: str) -> None:
    with pytest.raises(UsageError) as caught:
        calls(make_target(runtime), tensorflow(), version)
    assert str(caught.value) == (
        f"model.checkpoint: the SavedModel was written by TensorFlow {version or 'unknown'}, but {runtime} compiles "
        f"those of TensorFlow {allowed}. Save it again with such a version."
    )


def test_a_model_of_a_hundred_million_weights_starts_with_twenty_cores() -> None:
    assert suggested_pipeline_cores(109_482_240) == 20
    assert suggested_pipeline_cores(66_000_000) == 12
    assert suggested_pipeline_cores(1_000_000) == 1


@given(st.integers(0, 10**10))
def test_pipeline_cores_fill_whole_chips_or_are_one(weights: int) -> None:
    cores = suggested_pipeline_cores(weights)
    assert cores == 1 or cores % 4 == 0
    assert abs(cores - 4 * weights / 2e7) <= 2 or cores == 1
