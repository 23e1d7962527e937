"""Checks a request by botocore's service model, as the service does: required members, enums, patterns and lengths.

Clients check types and required members themselves, but send enums, patterns and lengths unchecked. The messages are
the service's. Rules across members are not checked.
"""

import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import botocore.session
from botocore.model import Shape

_ONLY_IN_JAVA = (r"\p{", r"\uD800\uDC00")
"""Unicode classes and surrogate pairs in patterns, which Python's re lacks."""


@cache
def input_shape(service: str, operation: str) -> Shape:
    shape = botocore.session.get_session().get_service_model(service).operation_model(operation).input_shape
    assert shape is not None
    return shape


def validation_error(service: str, operation: str, request: Mapping[str, Any]) -> str | None:
    """Returns the service's message with every problem of `request`, or None."""
    failures = list(problems(input_shape(service, operation), dict(request)))
    if not failures:
        return None
    return f"{len(failures)} validation error{'s' if len(failures) > 1 else ''} detected: {'; '.join(failures)}"


def problems(shape: Shape, value: Any, path: str = "") -> Iterator[str]:
    """Yields everything about `value` that `shape` does not allow."""
    match shape.type_name:
        case "structure" if isinstance(value, Mapping):
            yield from _structure(shape, value, path)
        case "structure":
            yield _failed(value, path, "Member must be a structure")
        case "list" if isinstance(value, list):
            yield from _limits(shape, len(value), value, path, "length")
            for number, item in enumerate(value, start=1):
                yield from problems(shape.member, item, f"{path}.{number}.member")  # type: ignore[attr-defined]
        case "string" if isinstance(value, str):
            if (allowed := shape.metadata.get("enum")) and value not in allowed:
                yield _failed(value, path, f"Member must satisfy enum value set: [{', '.join(allowed)}]")
            pattern = shape.metadata.get("pattern")
            if pattern and not any(each in pattern for each in _ONLY_IN_JAVA) and not re.fullmatch(pattern, value):
                yield _failed(value, path, f"Member must satisfy regular expression pattern: {pattern}")
            yield from _limits(shape, len(value), value, path, "length")
        case "integer" | "long" | "float" | "double" if isinstance(value, (int, float)):
            yield from _limits(shape, value, value, path, "value")


def _structure(shape: Shape, value: Mapping[str, Any], path: str) -> Iterator[str]:
    members: Mapping[str, Shape] = shape.members  # type: ignore[attr-defined]
    for name in shape.metadata.get("required", ()):
        if value.get(name) is None:
            yield _failed(None, _join(path, name), "Member must not be null")
    for name, item in value.items():
        if name in members and item is not None:
            yield from problems(members[name], item, _join(path, name))


def _limits(shape: Shape, size: float, value: object, path: str, of: str) -> Iterator[str]:
    low, high = shape.metadata.get("min", size), shape.metadata.get("max", size)
    if size < low:
        yield _failed(value, path, f"Member must have {of} greater than or equal to {low}")
    if size > high:
        yield _failed(value, path, f"Member must have {of} less than or equal to {high}")


def _failed(value: object, path: str, rule: str) -> str:
    shown = "null" if value is None else f"'{value}'"
    return f"Value {shown} at '{path}' failed to satisfy constraint: {rule}"


def _join(path: str, name: str) -> str:
    name = name[0].lower() + name[1:]
    return f"{path}.{name}" if path else name
