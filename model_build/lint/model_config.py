"""Parses config.pbtxt with Triton's own protobuf schema.

The schema comes with tritonclient and is imported only when a file is parsed.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

TOKEN = re.compile(r"""#[^\n]*|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|[{}<>\[\]:,;]|[^\s{}<>\[\]:,;#"']+""")


class Misread(NamedTuple):
    """The reason why a text is not a ModelConfig, and its line."""

    problem: str
    line: int | None


def empty() -> Any:
    """Returns a ModelConfig without any field. Raises ModuleNotFoundError if tritonclient is not installed."""
    from tritonclient.grpc import model_config_pb2

    return model_config_pb2.ModelConfig()


def parse(data: bytes) -> tuple[Any, Mapping[str, int]] | Misread:
    """Returns the ModelConfig message and the line of each key."""
    from google.protobuf import text_format  # type: ignore[import-untyped]

    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        return Misread(f"it is not UTF-8 text ({error.reason})", data.count(b"\n", 0, error.start) + 1)
    message = empty()
    try:
        text_format.Parse(text, message)
    except text_format.ParseError as error:
        return Misread(_problem(error), error.GetLine())
    except ValueError as error:
        return Misread(str(error), None)
    return message, key_lines(text)


def _problem(error: Any) -> str:
    """Returns the parser's sentence without the line before it; the column stays."""
    text = str(error)
    line, column = error.GetLine(), error.GetColumn()
    if line is None:
        return text
    return f"column {column}: {text.removeprefix(f'{line}:{column} : ')}"


def enum_name(message: Any, field: str) -> str:
    """Returns an enum's name, such as KIND_CPU, or its number: text format accepts numbers without a name."""
    values, number = message.DESCRIPTOR.fields_by_name[field].enum_type.values_by_number, getattr(message, field)
    return str(values[number].name) if number in values else str(number)


def required_inputs(config: Any) -> set[str]:
    return {tensor.name for tensor in config.input if not tensor.optional}


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
