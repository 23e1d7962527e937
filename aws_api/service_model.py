"""Checks a request against botocore's service model, as the service does.

It checks types, required members, enums, patterns and lengths. boto3 checks types and required members, but sends
enums, patterns and lengths unchecked. The wording is the service's. Rules across members are not checked.
"""

import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import botocore.session
from botocore.model import ServiceModel, Shape

_ONLY_IN_JAVA = (r"\p{", r"\uD800\uDC00")


@cache
def _service(name: str) -> ServiceModel:
    return botocore.session.get_session().get_service_model(name)


def input_shape(service: str, operation: str) -> Shape:
    shape = _service(service).operation_model(operation).input_shape
    assert shape is not None
    return shape


def enum(service: str, shape: str) -> frozenset[str]:
    """Returns the values of an enumeration."""
    return frozenset(_service(service).shape_for(shape).metadata["enum"])


def problems(service: str, operation: str, request: Mapping[str, Any]) -> list[str]:
    """Returns everything about a request that the service model does not allow, in the service's words."""
    return list(shape_problems(input_shape(service, operation), dict(request)))


def shape_problems(shape: Shape, value: Any, path: str = "") -> Iterator[str]:
    """Yields everything about `value` that `shape` does not allow."""
    match shape.type_name:
        case "structure":
            yield from _structure(shape, value, path)
        case "list" if isinstance(value, list):
            yield from _length(shape, len(value), value, path)
            for number, item in enumerate(value, start=1):
                yield from shape_problems(shape.member, item, f"{path}.{number}.member")  # type: ignore[attr-defined]
        case "string" if isinstance(value, str):
            yield from _string(shape, value, path)
        case "integer" | "long" | "float" | "double" if isinstance(value, (int, float)):
            yield from range_problems(shape.metadata, value, path)


def _structure(shape: Shape, value: Any, path: str) -> Iterator[str]:
    if not isinstance(value, Mapping):
        yield _failed(value, path, "Member must be a structure")
        return
    members: Mapping[str, Shape] = shape.members  # type: ignore[attr-defined]
    for name in shape.metadata.get("required", ()):
        if value.get(name) is None:
            yield _failed(None, _join(path, name), "Member must not be null")
    for name, item in value.items():
        if name in members and item is not None:
            yield from shape_problems(members[name], item, _join(path, name))


def _string(shape: Shape, value: str, path: str) -> Iterator[str]:
    if (allowed := shape.metadata.get("enum")) and value not in allowed:
        yield _failed(value, path, f"Member must satisfy enum value set: [{', '.join(sorted(allowed))}]")
    pattern = shape.metadata.get("pattern")
    # The patterns are Java's. Python's re knows neither Unicode classes nor surrogate pairs.
    if pattern and not any(each in pattern for each in _ONLY_IN_JAVA) and not re.fullmatch(pattern, value):
        yield _failed(value, path, f"Member must satisfy regular expression pattern: {pattern}")
    yield from _length(shape, len(value), value, path)


def _length(shape: Shape, length: int, value: object, path: str) -> Iterator[str]:
    if length < shape.metadata.get("min", 0):
        yield _failed(value, path, f"Member must have length greater than or equal to {shape.metadata['min']}")
    if length > shape.metadata.get("max", length):
        yield _failed(value, path, f"Member must have length less than or equal to {shape.metadata['max']}")


def range_problems(limits: Mapping[str, float], value: float, path: str) -> Iterator[str]:
    """Yields how `value` breaks `limits`, which may have a `min` and a `max`."""
    if value < limits.get("min", value):
        yield _failed(value, path, f"Member must have value greater than or equal to {limits['min']}")
    if value > limits.get("max", value):
        yield _failed(value, path, f"Member must have value less than or equal to {limits['max']}")


def _failed(value: object, path: str, rule: str) -> str:
    shown = "null" if value is None else f"'{value}'"
    return f"Value {shown} at '{path}' failed to satisfy constraint: {rule}"


def _join(path: str, name: str) -> str:
    name = name[0].lower() + name[1:]
    return f"{path}.{name}" if path else name
