"""Parses config.pbtxt against Triton's own protobuf schema into a typed value.

In: the text. Out: a `ModelConfig` with the fields that checks read, or a `Misread` with the line. The schema comes with
tritonclient and is imported only here, when a file is parsed.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

TOKEN = re.compile(r"""#[^\n]*|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|[{}<>\[\]:,;]|[^\s{}<>\[\]:,;#"']+""")


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
    """The dimensions without the batch; -1 is any size."""
    inner_dims: tuple[int, ...]
    """The dimensions that an ensemble compares: the reshape's shape where there is one."""
    optional: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class InstanceGroup:
    kind: str
    count: int
    """Model instances on each GPU, or in all on a CPU; at least 1."""
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
    """The versions of a specific version policy; None with another policy."""
    latest_versions: int | None = 1
    """Number of the newest versions that are loaded; None is all."""
    instance_groups: tuple[InstanceGroup, ...] = ()
    dynamic_batching: bool = False
    preferred_batch_sizes: tuple[int, ...] = ()
    warmups: tuple[Warmup, ...] = ()
    steps: tuple[Step, ...] | None = None
    """None for a model that is no ensemble."""
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
    """Returns the number itself where the schema has no name for it: text format takes any."""
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


def key_lines(text: str) -> Mapping[str, int]:
    """Returns the line of each key that is written, in text that protobuf's own parser has accepted.

    `dynamic_batching.preferred_batch_size` → 12. Of a repeated field the first is `input`, the second `input[1]`.
    """
    walk = _Walk(text)
    walk.block("")
    return walk.lines


class _Walk:
    """One pass over the tokens of a config.pbtxt."""

    def __init__(self, text: str) -> None:
        self._tokens = _tokens(text)
        self._next = next(self._tokens, None)
        self._seen: Counter[str] = Counter()
        self.lines: dict[str, int] = {}

    def _take(self) -> tuple[str, int]:
        token = self._next or ("", 0)
        self._next = next(self._tokens, None)
        return token

    def _at(self, characters: str) -> bool:
        return self._next is not None and self._next[0][0] in characters

    def block(self, prefix: str) -> None:
        """The fields up to the end of a message."""
        while self._next is not None:
            token, line = self._take()
            if token in "}>":
                return
            if token not in ",;":
                self._field(f"{prefix}{token}", line)

    def _field(self, path: str, line: int) -> None:
        if self._at(":"):
            self._take()
        if not self._at("["):
            self._value(path, line)
            return
        self._take()
        while self._next is not None and not self._at("]"):
            if self._at(","):
                self._take()
            else:
                self._value(path, self._next[1])
        self._take()
        self.lines.setdefault(path, line)

    def _value(self, path: str, line: int) -> None:
        index = self._seen[path]
        self._seen[path] += 1
        path = f"{path}[{index}]" if index else path
        self.lines.setdefault(path, line)
        if self._at("{<"):
            self._take()
            self.block(f"{path}.")
            return
        self._take()
        while self._at("\"'"):
            self._take()


def _tokens(text: str) -> Iterator[tuple[str, int]]:
    line, position = 1, 0
    for match in TOKEN.finditer(text):
        line += text.count("\n", position, match.start())
        position = match.start()
        if not match[0].startswith("#"):
            yield match[0], line
