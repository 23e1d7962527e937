"""Parses config.pbtxt with Triton's own protobuf schema.

The schema comes with tritonclient and is imported only when a file is parsed.
"""

from typing import Any, NamedTuple


class Misread(NamedTuple):
    """The reason why a text is not a ModelConfig, and its line."""

    problem: str
    line: int | None


def empty() -> Any:
    """Returns a ModelConfig without any field. Raises ModuleNotFoundError if tritonclient is not installed."""
    from tritonclient.grpc import model_config_pb2

    return model_config_pb2.ModelConfig()


def parse(data: bytes) -> Any:
    """Returns the ModelConfig message, or `Misread`."""
    from google.protobuf import text_format  # type: ignore[import-untyped]

    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        return Misread(f"it is not UTF-8 text ({error.reason})", data.count(b"\n", 0, error.start) + 1)
    try:
        return text_format.Parse(text, empty())
    except text_format.ParseError as error:
        return Misread(_problem(error), error.GetLine())
    except ValueError as error:
        return Misread(str(error), None)


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
