"""Reads CloudFormation's schema of a resource type: the properties it allows, and the changes that replace a resource.

The schemas are those of the CloudFormation registry, which cfn-lint carries; nothing is fetched. Like the service, the
validator accepts numbers and booleans written as text.
"""

import contextlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from jsonschema import Draft7Validator, validators

# New types appear in this region first; a type's schema does not differ by region.
REGION = "us-east-1"
_ABSENT = object()


@dataclass(frozen=True, slots=True)
class ResourceSchema:
    document: Mapping[str, Any]

    def problems(self, properties: Mapping[str, Any]) -> list[str]:
        """Returns everything that the schema does not allow, each with its path below Properties."""
        errors = _Validator(dict(self.document)).iter_errors(dict(properties))
        return sorted({f"Properties{_path(error.absolute_path)}: {error.message}" for error in errors})

    def replaced_by(self, old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
        """Tells whether CloudFormation would make a new resource rather than change the old one."""
        pointers = (pointer.removeprefix("/properties/") for pointer in self.document.get("createOnlyProperties", ()))
        return any(_at(old, pointer.split("/")) != _at(new, pointer.split("/")) for pointer in pointers)


@cache
def schema_of(resource_type: str) -> ResourceSchema | None:
    """Returns None for a type that the registry does not have."""
    # Imported here because it takes a fourth of an account's start, and only a stack needs it.
    from cfnlint.schema import PROVIDER_SCHEMA_MANAGER, ResourceNotFoundError

    try:
        return ResourceSchema(PROVIDER_SCHEMA_MANAGER.get_resource_schema(REGION, resource_type).schema)
    except ResourceNotFoundError:
        return None


def _at(value: Any, steps: list[str]) -> Any:
    """Returns the value at a JSON pointer. `*` stands for every item of a list."""
    for number, step in enumerate(steps):
        if step == "*" and isinstance(value, list):
            return [_at(item, steps[number + 1 :]) for item in value]
        if not isinstance(value, Mapping) or step not in value:
            return _ABSENT
        value = value[step]
    return value


def _path(steps: Any) -> str:
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps)


def _is_number(text: object) -> bool:
    try:
        float(str(text))
    except ValueError:
        return False
    return isinstance(text, str)


def _lenient() -> Any:
    strict = Draft7Validator.TYPE_CHECKER

    def also(name: str, extra: Any) -> Any:
        return lambda _, value: strict.is_type(value, name) or extra(value)

    return strict.redefine_many(
        {
            "integer": also("integer", lambda value: isinstance(value, str) and value.lstrip("-").isdigit()),
            "number": also("number", _is_number),
            "boolean": also("boolean", lambda value: value in ("true", "false")),
            "string": also("string", lambda value: isinstance(value, (bool, int, float))),
        }
    )


def _bounds(keyword: str) -> Any:
    check = Draft7Validator.VALIDATORS[keyword]

    def compare(validator: Any, limit: Any, instance: Any, schema: Any) -> Iterator[Any]:
        yield from check(validator, limit, float(instance) if _is_number(instance) else instance, schema)

    return compare


def _pattern(validator: Any, pattern: str, instance: Any, schema: Any) -> Iterator[Any]:
    # The patterns are Java's; the service alone checks those that Python's re does not know.
    with contextlib.suppress(re.error):
        yield from Draft7Validator.VALIDATORS["pattern"](validator, pattern, instance, schema)


_Validator = validators.extend(
    Draft7Validator,
    validators={"pattern": _pattern} | {keyword: _bounds(keyword) for keyword in ("minimum", "maximum")},
    type_checker=_lenient(),
)
