"""Writes a Triton model, given as a value, as the text of config.pbtxt. Pure.

Format: Triton's ModelConfig protobuf in text form. `max_batch_size` is always written out: protobuf's text form drops a
zero, and SageMaker's Triton then guesses.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from workloads import InstanceGroup, Serving


@dataclass(frozen=True, kw_only=True, slots=True)
class Tensor:
    """`dims` without the batch; -1 is any. `scalar`: one number per row, which the graph takes as [rows]."""

    name: str
    data_type: str
    dims: tuple[int, ...]
    scalar: bool = False
    ragged: bool = False
    optional: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class EnsembleStep:
    """One member of an ensemble: its own tensors' names, each with the ensemble's name of the tensor."""

    model: str
    inputs: Mapping[str, str]
    outputs: Mapping[str, str]


@dataclass(frozen=True, kw_only=True, slots=True)
class WarmUp:
    """Requests that Triton sends before the model is ready; the data lies in warmup/<file>."""

    batch_size: int
    tensors: Mapping[str, tuple[Tensor, str]]


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelConfig:
    """One of `backend`, `platform` and `steps`. `serving` None: no scheduler of its own, as an ensemble has none."""

    name: str
    max_batch_size: int
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    backend: str | None = None
    platform: str | None = None
    steps: tuple[EnsembleStep, ...] = ()
    serving: Serving | None = None
    kind: Literal["KIND_CPU", "KIND_GPU"] = "KIND_CPU"
    default_model_filename: str | None = None
    cc_model_filenames: Mapping[str, str] = field(default_factory=dict)
    parameters: Mapping[str, str] = field(default_factory=dict)
    warm_ups: tuple[WarmUp, ...] = ()
    response_cache: bool = False


def render(config: ModelConfig) -> str:
    """Returns the whole file."""
    platform = f'backend: "{config.backend}"' if config.backend else f'platform: "{config.platform or "ensemble"}"'
    head = [f'name: "{config.name}"', platform, f"max_batch_size: {config.max_batch_size}"]
    if config.default_model_filename:
        head.append(f'default_model_filename: "{config.default_model_filename}"')
    parts = ["\n".join(head)]
    parts += [_tensor("input", tensor) for tensor in config.inputs]
    parts += [_tensor("output", tensor) for tensor in config.outputs]
    parts += [
        f'cc_model_filenames {{ key: "{capability}" value: "{file}" }}'
        for capability, file in config.cc_model_filenames.items()
    ]
    if config.serving is not None:
        parts += _scheduling(config.serving, config.kind)
    if config.steps:
        parts.append("\n".join(["ensemble_scheduling {", *map(_step, config.steps), "}"]))
    if config.response_cache:
        parts.append("response_cache { enable: true }")
    parts += [_parameter(key, value) for key, value in config.parameters.items()]
    parts += map(_warm_up, config.warm_ups)
    return "\n\n".join(parts) + "\n"


def warm_up_sizes(serving: Serving) -> list[int]:
    """Returns the batch sizes a scheduler forms most: 1, the preferred sizes, the largest."""
    return sorted({1, *serving.preferred_batch_sizes, serving.max_batch_size})


def _tensor(key: str, tensor: Tensor) -> str:
    text = f"{_named(tensor)} {_shape(tensor)}"
    if tensor.scalar:
        text += " reshape: { shape: [ ] }"
    if tensor.ragged:
        text += " allow_ragged_batch: true"
    if tensor.optional:
        text += " optional: true"
    return f"{key} [\n  {{ {text} }}\n]"


def _named(tensor: Tensor) -> str:
    return f'name: "{tensor.name}"'


def _shape(tensor: Tensor) -> str:
    return f"data_type: {tensor.data_type} dims: [ {', '.join(map(str, tensor.dims))} ]"


def _scheduling(serving: Serving, kind: str) -> list[str]:
    group = "instance_group [\n" + ",\n".join(_group(each, kind) for each in serving.groups) + "\n]"
    if not serving.dynamic_batching:
        return [group]
    preferred = ", ".join(map(str, serving.preferred_batch_sizes))
    lines = [f"  preferred_batch_size: [ {preferred} ]"] if preferred else []
    lines.append(f"  max_queue_delay_microseconds: {round(serving.max_queue_delay_ms * 1000)}")
    return ["\n".join(["dynamic_batching {", *lines, "}"]), group]


def _group(group: InstanceGroup, kind: str) -> str:
    gpus = f" gpus: [ {', '.join(map(str, group.gpus))} ]" if group.gpus else ""
    return f"  {{ kind: {group.kind or kind} count: {group.count}{gpus} }}"


def _step(step: EnsembleStep) -> str:
    return "\n".join(
        [
            f'  step {{\n    model_name: "{step.model}"\n    model_version: -1',
            *_map("input_map", step.inputs),
            *_map("output_map", step.outputs),
            "  }",
        ]
    )


def _map(key: str, names: Mapping[str, str]) -> Iterable[str]:
    return (f'    {key} {{ key: "{own}" value: "{ensemble}" }}' for own, ensemble in names.items())


def _parameter(key: str, value: str) -> str:
    return f'parameters {{ key: "{key}" value {{ string_value: {json.dumps(value)} }} }}'


def _warm_up(warm_up: WarmUp) -> str:
    inputs = [
        f'  inputs {{ key: "{name}" value {{ {_shape(tensor)} input_data_file: "{file}" }} }}'
        for name, (tensor, file) in warm_up.tensors.items()
    ]
    head = f'model_warmup {{\n  name: "batch of {warm_up.batch_size}"\n  batch_size: {warm_up.batch_size}'
    return "\n".join([head, *inputs, "}"])
