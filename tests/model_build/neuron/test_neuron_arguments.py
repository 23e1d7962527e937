"""The calls that compile for Neuron are known beforehand, to the letter."""

import json
from pathlib import Path
from typing import Any

import pytest
import tomllib
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from model_build.neuron.arguments import (
    calls,
    pipeline_warning,
    sequence_lengths,
    suggested_pipeline_cores,
    with_pipeline,
)
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


def text(target: NeuronTarget, model: EncoderModel) -> str:
    return "\n\n".join(call.text() for call in calls(target, model)) + "\n"


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


def test_a_model_of_a_hundred_million_weights_starts_with_twenty_cores() -> None:
    assert suggested_pipeline_cores(109_482_240) == 20
    assert suggested_pipeline_cores(66_000_000) == 12
    assert suggested_pipeline_cores(1_000_000) == 1


@pytest.mark.parametrize(
    ("instance_types", "cores"),
    [((), 20), (("ml.inf1.24xlarge",), 20), (("ml.inf1.6xlarge",), 16), (("ml.inf1.6xlarge", "ml.inf1.xlarge"), 4)],
)
def test_an_automatic_pipeline_follows_the_formula_and_fits_every_instance_type(
    instance_types: tuple[str, ...], cores: int
) -> None:
    target = make_target(placement="one-per-core", pipeline_cores="auto", instance_types=list(instance_types))
    found = with_pipeline(target, 109_482_240)
    assert found.pipeline_cores == cores
    [call] = calls(found, make_model())
    assert call.keywords["compiler_args"] == ["--fp32-cast=all", "--neuroncore-pipeline-cores", str(cores)]
    assert pipeline_warning(found, 109_482_240) is None


@pytest.mark.parametrize("keys", [{"runtime": "neuronx"}, {"placement": "data-parallel"}])
def test_an_automatic_pipeline_is_one_of_inf1_alone_and_not_data_parallel(keys: dict[str, str]) -> None:
    with pytest.raises(ValidationError, match="pipeline_cores: "):
        make_target(**{"placement": "one-per-core", "pipeline_cores": "auto", **keys})


@given(st.integers(0, 10**10))
def test_pipeline_cores_fill_whole_chips_or_are_one(weights: int) -> None:
    cores = suggested_pipeline_cores(weights)
    assert cores == 1 or cores % 4 == 0
    assert abs(cores - 4 * weights / 2e7) <= 2 or cores == 1


def test_inputs_have_the_types_that_the_target_names() -> None:
    [call] = calls(make_target(input_types={"attention_mask": "float16", "input_ids": "int32"}), make_model())
    assert [(each.name, each.dtype) for each in call.inputs] == [
        ("input_ids", "int32"),
        ("attention_mask", "float16"),
        ("token_type_ids", "int64"),
    ]


def test_a_type_of_an_input_that_the_model_has_not_is_refused() -> None:
    with pytest.raises(UsageError) as caught:
        calls(make_target(input_types={"position_ids": "int32"}), make_model())
    assert str(caught.value) == (
        "input_types: the model has no position_ids. Its inputs: input_ids, attention_mask, token_type_ids."
    )


def test_only_a_mask_can_be_a_float() -> None:
    with pytest.raises(ValidationError, match="input_types: input_ids counts or numbers tokens; only a mask can be"):
        make_target(input_types={"input_ids": "float16"})
