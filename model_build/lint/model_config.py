"""config.pbtxt as a typed value, parsed against Triton's own protobuf schema.

In: the text. Out: a `ModelConfig` with the fields that checks read, or a `Misread` with the line. The schema comes with
tritonclient and is imported only here, when a file is parsed.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from model_build.lint.config_lines import key_lines


@dataclass(frozen=True, kw_only=True, slots=True)
class Misread:
    problem: str
    line: int | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Tensor:
    name: str
    data_type: str
    """TYPE_FP32, as the schema calls it."""
    dims: tuple[int, ...]
    """Without the batch dimension; -1 is any size."""
    inner_dims: tuple[int, ...]
    """What an ensemble compares: the reshape's shape where there is one."""
    optional: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class InstanceGroup:
    kind: str
    count: int
    """Of each GPU, or in all on a CPU; at least 1."""
    gpus: tuple[int, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Warmup:
    batch_size: int
    files: Mapping[str, str | None]
    """Input → the data file in warmup/, or None for generated data."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Step:
    model: str
    inputs: Mapping[str, str]
    """The model's input → the ensemble's tensor."""
    outputs: Mapping[str, str]


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelConfig:
    name: str = ""
    platform: str = ""
    backend: str = ""
    runtime: str = ""
    max_batch_size: int = 0
    inputs: tuple[Tensor, ...] = ()
    outputs: tuple[Tensor, ...] = ()
    default_model_filename: str = ""
    cc_model_filenames: Mapping[str, str] = field(default_factory=dict)
    versions: tuple[int, ...] | None = None
    """Of a specific version policy."""
    latest_versions: int | None = 1
    """How many of the newest are loaded; None is all."""
    instance_groups: tuple[InstanceGroup, ...] = ()
    dynamic_batching: bool = False
    preferred_batch_sizes: tuple[int, ...] = ()
    warmups: tuple[Warmup, ...] = ()
    steps: tuple[Step, ...] | None = None
    """None of a model that is no ensemble."""
    decoupled: bool = False
    optimization: bool = False
    parameters: Mapping[str, str] = field(default_factory=dict)
    lines: Mapping[str, int] = field(default_factory=dict)

    @property
    def ensemble(self) -> bool:
        return self.platform == "ensemble" or self.steps is not None


def parse(data: bytes) -> ModelConfig | Misread:
    """Raises ModuleNotFoundError where tritonclient is not installed."""
    from google.protobuf import text_format  # type: ignore[import-untyped]
    from tritonclient.grpc import model_config_pb2

    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        return Misread(problem=f"it is not UTF-8 text ({error.reason})", line=data.count(b"\n", 0, error.start) + 1)
    message = model_config_pb2.ModelConfig()
    try:
        text_format.Parse(text, message)
    except text_format.ParseError as error:
        return Misread(problem=_problem(error), line=error.GetLine())
    except ValueError as error:
        return Misread(problem=str(error), line=None)
    return _config(message, key_lines(text))


def _problem(error: Any) -> str:
    """The parser's sentence without the `12:3 : ` before it; the column stays."""
    text = str(error)
    line, column = error.GetLine(), error.GetColumn()
    if line is None:
        return text
    return f"column {column}: {text.removeprefix(f'{line}:{column} : ')}"


def _config(message: Any, lines: Mapping[str, int]) -> ModelConfig:
    policy = message.version_policy
    chosen = policy.WhichOneof("policy_choice")
    batching = message.HasField("dynamic_batching")
    return ModelConfig(
        name=message.name,
        platform=message.platform,
        backend=message.backend,
        runtime=message.runtime,
        max_batch_size=message.max_batch_size,
        inputs=tuple(_tensor(tensor) for tensor in message.input),
        outputs=tuple(_tensor(tensor) for tensor in message.output),
        default_model_filename=message.default_model_filename,
        cc_model_filenames=dict(message.cc_model_filenames),
        versions=tuple(policy.specific.versions) if chosen == "specific" else None,
        latest_versions={"all": None, "latest": policy.latest.num_versions}.get(chosen, 1),
        instance_groups=tuple(_group(group, message) for group in message.instance_group),
        dynamic_batching=batching,
        preferred_batch_sizes=tuple(message.dynamic_batching.preferred_batch_size) if batching else (),
        warmups=tuple(_warmup(sample) for sample in message.model_warmup),
        steps=_steps(message) if message.HasField("ensemble_scheduling") else None,
        decoupled=message.model_transaction_policy.decoupled,
        optimization=message.HasField("optimization"),
        parameters={key: value.string_value for key, value in message.parameters.items()},
        lines=lines,
    )


def _tensor(tensor: Any) -> Tensor:
    types = tensor.DESCRIPTOR.fields_by_name["data_type"].enum_type.values_by_number
    dims = tuple(tensor.dims)
    return Tensor(
        name=tensor.name,
        data_type=_enum_name(types, tensor.data_type),
        dims=dims,
        inner_dims=tuple(tensor.reshape.shape) if tensor.HasField("reshape") else dims,
        optional=getattr(tensor, "optional", False),
    )


def _enum_name(values: Any, number: int) -> str:
    """The number itself where the schema has no name for it: text format takes any."""
    return str(values[number].name) if number in values else str(number)


def _group(group: Any, message: Any) -> InstanceGroup:
    kind = _enum_name(group.DESCRIPTOR.enum_types_by_name["Kind"].values_by_number, group.kind)
    # ONNX Runtime and TensorFlow get two instances on a CPU where no count is written.
    default = 2 if kind == "KIND_CPU" and message.backend in ("onnxruntime", "tensorflow") else 1
    return InstanceGroup(kind=kind, count=group.count if group.count > 0 else default, gpus=tuple(group.gpus))


def _warmup(sample: Any) -> Warmup:
    files = {
        name: source.input_data_file if source.WhichOneof("input_data_type") == "input_data_file" else None
        for name, source in sample.inputs.items()
    }
    return Warmup(batch_size=sample.batch_size, files=files)


def _steps(message: Any) -> tuple[Step, ...]:
    return tuple(
        Step(model=step.model_name, inputs=dict(step.input_map), outputs=dict(step.output_map))
        for step in message.ensemble_scheduling.step
    )
