"""The calls that compile for Neuron."""

import json
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
from tests.tiny_classifier import make_model
from workloads import NeuronTarget, UsageError


def make_target(runtime: str = "neuron", **keys: Any) -> NeuronTarget:
    return NeuronTarget.model_validate_json(json.dumps({"runtime": runtime, **keys}))


@pytest.mark.parametrize(
    ("keys", "arguments"),
    [
        ({"cast": "none"}, ["--fast-math", "none"]),
        ({"cast": "matmult"}, ["--fp32-cast=matmult"]),
        ({"runtime": "neuronx", "cast": "none"}, ["--auto-cast=none"]),
        ({"runtime": "neuronx", "cast": "all"}, ["--auto-cast=all", "--auto-cast-type=bf16"]),
    ],
)
def test_the_casts_of_the_compilers(keys: dict[str, Any], arguments: list[str]) -> None:
    """The golden plans of the workloads have whole calls."""
    [call] = calls(make_target(**keys), make_model())
    inf2 = ["--target=inf2", "--model-type=transformer"] if "runtime" in keys else []
    assert call.keywords["compiler_args"] == [*inf2, *arguments]


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
