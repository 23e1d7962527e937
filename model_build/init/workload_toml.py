"""Writes workload.toml: what was found, what was decided, and comments that tell what each key is for. Pure."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from model_build.init.lengths import Lengths, sequence_lengths

TARGETS: dict[str, str] = {
    "cpu": """\
# ONNX Runtime on CPUs. Also what serves on this machine.
[targets.cpu]
runtime = "onnxruntime"
instance_types = ["ml.c5.xlarge"]         # add the types that `run` should compare
parity = { max_logit_difference = 1e-3 }   # and identical answers (the default)
""",
    "cpu-int8": """\
# The same with 8-bit weights: a quarter of the size, and faster. It may answer a few rows differently.
[targets.cpu-int8]
runtime = "onnxruntime"
precision = "int8"
instance_types = ["ml.c5.xlarge"]         # add the types that `run` should compare
parity = { max_metric_drop = 0.02 }
""",
    "tensorrt": """\
# TensorRT on NVIDIA's T4 and A10G. Built on such a GPU: `build NAME --target tensorrt --on sagemaker`.
[targets.tensorrt]
runtime = "tensorrt"
precision = "fp16"
instance_types = ["ml.g4dn.xlarge", "ml.g5.xlarge"]
parity = { max_logit_difference = 0.1, max_metric_drop = 0.01 }
""",
    "inf1": """\
# Inferentia 1. A graph is compiled for each length; a request takes the shortest that fits.
[targets.inf1]
runtime = "neuron"
instance_types = ["ml.inf1.xlarge"]
cast = "all"
sequence_lengths = {sequence_lengths}
parity = { max_logit_difference = 0.5, max_mean_logit_difference = 0.05, max_metric_drop = 0.01 }
""",
    "inf2": """\
# Inferentia 2.
[targets.inf2]
runtime = "neuronx"
instance_types = ["ml.inf2.xlarge"]
cast = "all"
sequence_lengths = {sequence_lengths}
parity = { max_logit_difference = 0.5, max_mean_logit_difference = 0.05, max_metric_drop = 0.01 }
""",
}
"""The tables of the targets by name, with a place for what depends on the workload."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Decisions:
    """The five decisions that are the user's. `minimums` has the least value of a metric by its name."""

    minimums: Mapping[str, float]
    percentile: str
    model_latency_ms: float
    peak_invocations_per_minute: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Contents:
    """All that a workload.toml is written from."""

    name: str
    description: str
    origin: str
    """Where checkpoint and examples are from, as comments name it."""
    model: Mapping[str, Any]
    notes: Mapping[str, str]
    """Comments on keys of the model."""
    lengths: Lengths
    quality_note: str
    reached: Mapping[str, float]
    """The original's own figures on the examples, by metric."""
    decisions: Decisions
    targets: Sequence[str]
    left_out: Mapping[str, str]
    """Why a target is not there, by its name."""


def text(contents: Contents) -> str:
    return "\n".join(
        [
            f"# Written by `python -m model_build init` from {contents.origin}.",
            "# Five values are yours to decide: the minimums in [quality], and percentile, model_latency_ms and",
            "# peak_invocations_per_minute in [objective]. All others follow from the checkpoint and the examples.",
            f"name = {json.dumps(contents.name)}",
            f"description = {_value(contents.description)}",
            "",
            "[model]",
            *(_line(key, value, contents.notes.get(key)) for key, value in contents.model.items()),
            "",
            *_quality(contents),
            "",
            *_targets(contents),
            SERVING,
            *_objective(contents.decisions),
            "",
            TRAFFIC,
            *_hosting(contents),
            "",
        ]
    )


SERVING = """\
# How Triton schedules requests: those that wait are answered together, at most so many. `tune` finds better values.
[serving]
max_batch_size = 16
"""

TRAFFIC = """\
# The load of `run`, in Inference Recommender's terms: users who each wait for an answer before they ask again. This one
# keeps to the limits that the service documents (a phase of 2 minutes at least).
[traffic.production]
type = "phases"
phases = [
  { initial_users = 1, spawn_rate_per_minute = 1, duration_s = 600 },
  { initial_users = 3, spawn_rate_per_minute = 3, duration_s = 1200 },
]
stop = { max_invocations_per_minute = 30_000, flat_invocations = "Stop" }

# A minute, for the account on this machine: `run --traffic quick`.
[traffic.quick]
type = "phases"
phases = [
  { initial_users = 1, spawn_rate_per_minute = 0, duration_s = 20 },
  { initial_users = 2, spawn_rate_per_minute = 24, duration_s = 40 },
]
stop = { flat_invocations = "Continue" }
"""


def _quality(contents: Contents) -> list[str]:
    lines = [*_comment(contents.quality_note), "[quality]"]
    for metric, least in contents.decisions.minimums.items():
        reached = contents.reached.get(metric)
        note = None if reached is None or metric == "agreement" else f"the checkpoint reaches {reached:.4f}"
        lines.append(_line(f"min_{metric}", least, note))
    return lines


def _targets(contents: Contents) -> list[str]:
    lengths = sequence_lengths(contents.lengths, int(contents.model["max_input_tokens"]))
    tables = [
        TARGETS[name].replace("{sequence_lengths}", _value(lengths)).replace("NAME", contents.name)
        for name in contents.targets
    ]
    reasons = [
        line for name, reason in contents.left_out.items() for line in _comment(f"No [targets.{name}]: {reason}")
    ]
    return [*tables, *reasons, *([""] if reasons else [])]


def _objective(decisions: Decisions) -> list[str]:
    return [
        "# What the fleet is sized for: this share of the requests is answered by the model within model_latency_ms,",
        "# at the peak of a day and with a fifth more.",
        "[objective]",
        f'percentile = "{decisions.percentile}"',
        f"model_latency_ms = {decisions.model_latency_ms!r}",
        f"peak_invocations_per_minute = {decisions.peak_invocations_per_minute:_}",
    ]


def _hosting(contents: Contents) -> list[str]:
    others = ", ".join(f'"{name}"' for name in contents.targets[1:])
    moves = f"{others} {'moves' if len(contents.targets) == 2 else 'move'} it there, once built" if others else None
    return ["[hosting]", 'kind = "sagemaker-endpoint"', _line("target", contents.targets[0], moves)]


def _line(key: str, value: Any, note: str | None) -> str:
    line = f"{key} = {_value(value)}"
    return line if note is None else f"{line:<34} # {note}"


def _value(value: Any) -> str:
    """Returns a value as TOML: its strings are JSON's, but for a character that JSON leaves alone."""
    if isinstance(value, (tuple, list)):
        return f"[{', '.join(map(_value, value))}]"
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{key} = {_value(each)}" for key, each in value.items()) + " }"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _comment(sentence: str) -> list[str]:
    """Returns a sentence as comment lines of at most 120 characters."""
    lines, words = [], "#"
    for word in sentence.split():
        if len(words) + len(word) + 1 > 120:
            lines.append(words)
            words = "#"
        words = f"{words} {word}"
    return [*lines, words]
