"""What botocore has against a template's properties as the input of the API call that they become."""

from collections.abc import Iterator
from typing import Any

import botocore.session
from botocore.model import ListShape, MapShape, Shape, StringShape, StructureShape
from botocore.validate import ParamValidator

from tests.stacks.cloudformation import filled


def problems(service: str, operation: str, properties: dict[str, Any]) -> list[str]:
    """Words outside an enum included."""
    shape = botocore.session.get_session().get_service_model(service).operation_model(operation).input_shape
    assert shape is not None
    given = filled(properties)
    report = ParamValidator().validate(given, shape)
    found = report.generate_report().splitlines() if report.has_errors() else []
    return found + list(wrong_words(given, shape))


def wrong_words(value: Any, shape: Shape) -> Iterator[str]:
    if isinstance(shape, StructureShape) and isinstance(value, dict):
        for key in value.keys() & shape.members.keys():
            yield from wrong_words(value[key], shape.members[key])
    elif isinstance(shape, ListShape) and isinstance(value, list):
        for item in value:
            yield from wrong_words(item, shape.member)
    elif isinstance(shape, MapShape) and isinstance(value, dict):
        for item in value.values():
            yield from wrong_words(item, shape.value)
    elif isinstance(shape, StringShape) and shape.enum and value not in shape.enum:
        yield f"{value} is not one of {shape.name}"
