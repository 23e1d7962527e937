"""A resource's properties as the request of the API call that makes it. Pure but for botocore's model.

CloudFormation and the services name most things alike but for the case of the first letter (`ContainerDefinitions`,
`containerDefinitions`); what differs more is in `renames`. A property that the request has no place for is refused,
because it would be lost without a word.
"""

import json
from collections.abc import Mapping
from typing import Any

from botocore.model import Shape


class NoPlace(ValueError):
    """A property that the API call has no parameter for."""

    def __init__(self, path: str, shape: Shape) -> None:
        known = ", ".join(shape.members)  # type: ignore[attr-defined]
        super().__init__(f"{path}: {shape.name} has no such parameter. It has: {known}.")


def as_request(
    shape: Shape,
    properties: Mapping[str, Any],
    renames: Mapping[str, str] | None = None,
    *,
    partial: bool = False,
    path: str = "Properties",
) -> dict[str, Any]:
    """Raises `NoPlace`. `renames` are of this level: property → parameter.

    `partial` leaves out what has no place: a call that changes a resource takes less than the one that makes it.
    """
    names = {name.lower(): name for name in shape.members}  # type: ignore[attr-defined]
    request: dict[str, Any] = {}
    for key, value in properties.items():
        name = (renames or {}).get(key) or names.get(key.lower())
        if name and name in shape.members:  # type: ignore[attr-defined]
            request[name] = _value(shape.members[name], value, partial, f"{path}.{key}")  # type: ignore[attr-defined]
        elif not partial:
            raise NoPlace(f"{path}.{key}", shape)
    return request


def _value(shape: Shape, value: Any, partial: bool, path: str) -> Any:
    match shape.type_name, value:
        case "structure", Mapping():
            return as_request(shape, value, partial=partial, path=path)
        case "list", list():
            item: Shape = shape.member  # type: ignore[attr-defined]
            return [_value(item, each, partial, f"{path}[{number}]") for number, each in enumerate(value)]
        case "list", _:
            return [_value(shape.member, value, partial, path)]  # type: ignore[attr-defined]
        case "map", list():  # of tags
            return {each["Key"]: str(each["Value"]) for each in value}
        case "map", Mapping():
            return {key: _value(shape.value, each, partial, f"{path}.{key}") for key, each in value.items()}  # type: ignore[attr-defined]
        case "boolean", _:
            return value in (True, "true")
        case (("integer" | "long"), _):
            return int(value)
        case (("float" | "double"), _):
            return float(value)
        case "string", (list() | Mapping()):
            return json.dumps(value)
        case "string", bool():
            return str(value).lower()
        case "string", _:
            return str(value)
    return value
