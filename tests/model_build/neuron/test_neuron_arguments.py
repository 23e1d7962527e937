"""The calls that compile for Neuron are known beforehand, to the letter."""

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from model_build.neuron.arguments import (
    calls,
    pipeline_warning,
    sequence_lengths,
    suggested_pipeline_cores,
    with_pipeline,
)
from tests.tiny_classifier import FIVE, make_model
from workloads import EncoderModel, NeuronTarget, UsageError

GOLDENS = Path(__file__).parents[1] / "goldens" / "neuron"


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


def test_lengths_come_shortest_first_and_once() -> None:
    assert sequence_lengths(make_target(sequence_lengths=[32, 8, 32]), make_model()) == (8, 32)


REFUSALS: dict[str, tuple[dict[str, Any], str]] = {
    "shorter": (
        {"sequence_lengths": [16]},
        "sequence_lengths: got [16], but model.max_input_tokens is 32, and requests of that length need a graph. Make "
        "the longest 32.",
    ),
    "longer": (
        {"sequence_lengths": [16, 64]},
        "sequence_lengths: got [16, 64], but model.max_input_tokens is 32, and requests of that length need a graph. "
        "Make the longest 32.",
    ),
    "input": (
        {"input_types": {"position_ids": "int32"}},
        "input_types: the model has no position_ids. Its inputs: input_ids, attention_mask, token_type_ids.",
    ),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_a_target_that_does_not_fit_the_model_is_refused(name: str) -> None:
    keys, message = REFUSALS[name]
    with pytest.raises(UsageError) as caught:
        calls(make_target(**keys), make_model())
    assert (str(caught.value), caught.value.exit_code) == (message, 2)


def test_a_model_of_a_hundred_million_weights_starts_with_twenty_cores() -> None:
    assert suggested_pipeline_cores(109_482_240) == 20
    assert suggested_pipeline_cores(66_000_000) == 12
    assert suggested_pipeline_cores(1_000_000) == suggested_pipeline_cores(0) == 1


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


def test_inputs_have_the_types_that_the_target_names() -> None:
    [call] = calls(make_target(input_types={"attention_mask": "float16", "input_ids": "int32"}), make_model())
    assert [(each.name, each.dtype) for each in call.inputs] == [
        ("input_ids", "int32"),
        ("attention_mask", "float16"),
        ("token_type_ids", "int64"),
    ]


AUTOMATIC = {"placement": "one-per-core", "pipeline_cores": "auto"}


@pytest.mark.parametrize(
    ("keys", "problem"),
    [
        ({**AUTOMATIC, "runtime": "neuronx"}, "pipeline_cores: "),
        ({**AUTOMATIC, "placement": "data-parallel"}, "pipeline_cores: "),
        ({"input_types": {"input_ids": "float16"}}, "input_types: input_ids counts or numbers tokens; only a mask can"),
    ],
)
def test_an_invalid_target_is_refused(keys: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValidationError, match=problem):
        make_target(**keys)
