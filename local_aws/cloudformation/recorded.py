"""CloudFormation types that the account records and does not run. CloudFormation's schema checks their properties.

DescribeStackResources gives `REASON` as the resource's status reason. No API describes such a resource, so AWS may
still reject a template that was deployed here. cfn-lint carries the schemas of the registry; nothing is fetched. Like
the service, the validator accepts numbers and booleans written as text.
"""

import contextlib
import re
import secrets
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from jsonschema import Draft7Validator, validators
from moto.cloudformation.exceptions import UnformattedGetAttTemplateException
from moto.cloudformation.parsing import get_model_map

REASON = "Recorded only: nothing of this type runs here. Its properties are valid by CloudFormation's schema."
RECORDED = (
    "AWS::AutoScaling::",
    "AWS::Budgets::",
    "AWS::CodeBuild::",
    "AWS::CodeConnections::",
    "AWS::CodePipeline::",
    "AWS::EC2::",
    "AWS::ECS::",
    "AWS::ElasticLoadBalancingV2::",
    "AWS::SNS::Subscription",
    "AWS::Scheduler::",
    "AWS::StepFunctions::",
)
_ARN_SERVICES = {"elasticloadbalancingv2": "elasticloadbalancing", "stepfunctions": "states"}
_ARN_ENDINGS = {
    "AWS::ElasticLoadBalancingV2::Listener": "listener/net/{name}/{id}/{id}",
    "AWS::ElasticLoadBalancingV2::LoadBalancer": "loadbalancer/net/{name}/{id}",
    "AWS::ElasticLoadBalancingV2::TargetGroup": "targetgroup/{name}/{id}",
    "AWS::StepFunctions::StateMachine": "stateMachine:{name}",
}
"""Ends of ARNs that do not consist of the type's name, a slash and the resource's name."""


def register(types: Iterable[str]) -> None:
    """Makes those of `types` that are recorded known to moto."""
    models: dict[str, Any] = get_model_map()
    for kind in set(types):
        if kind.startswith(RECORDED) and schema_of(kind) is not None:
            models[kind] = RecordedType(kind)


class RecordedResource:
    """A resource that consists of its properties and of values that the service would assign."""

    status_reason = REASON

    def __init__(
        self, kind: "RecordedType", name: str, properties: Mapping[str, Any], account: str, region: str
    ) -> None:
        self._kind = kind
        self.properties = properties
        self._name = str(properties.get(kind.name_property, name))
        self._id = f"{kind.word.replace('-', '')}-{secrets.token_hex(8)}"
        self._arn_ending = kind.arn_ending.format(name=self._name, id=self._id.rpartition("-")[2])
        self._arn = f"arn:aws:{kind.service}:{region}:{account}:{self._arn_ending}"

    @property
    def physical_resource_id(self) -> str:
        return self.get_cfn_attribute(self._kind.identifier)

    def get_cfn_attribute(self, attribute_name: str) -> str:
        if not self._kind.has_cfn_attr(attribute_name):
            raise UnformattedGetAttTemplateException()
        if isinstance(value := self.properties.get(attribute_name), (str, int)):
            return str(value)
        if attribute_name.lower().endswith("arn"):
            return self._arn
        if attribute_name.endswith(("Version", "VersionNumber")):
            return "1"
        if attribute_name.endswith("FullName"):
            return self._arn_ending.removeprefix("loadbalancer/")
        return self._id if attribute_name.endswith("Id") and not self._kind.name_property else self._name

    def delete(self, account_id: str, region: str) -> None:
        """Does nothing, because recording made nothing."""


class RecordedType:
    """A type in the form that moto's CloudFormation expects."""

    def __init__(self, kind: str) -> None:
        schema = schema_of(kind)
        assert schema is not None, "checked by register()"
        self._members = schema.document["properties"]
        self.identifier = schema.document["primaryIdentifier"][0].removeprefix("/properties/")
        _, service, last = kind.split("::")
        self.service = _ARN_SERVICES.get(service.lower(), service.lower())
        self.word = re.sub("(?<=[a-z])(?=[A-Z])", "-", last).lower()
        self.arn_ending = _ARN_ENDINGS.get(kind, f"{self.word}/{{name}}")
        names = ("Name", f"{last}Name", "Family", "RoleName")
        self.name_property = next((each for each in names if each in self._members), "")
        """The property with the resource's name; empty if the service assigns an id."""

    def has_cfn_attr(self, attribute: str) -> bool:
        return attribute.partition(".")[0] in self._members

    def create_from_cloudformation_json(
        self, resource_name: str, cloudformation_json: Any, account_id: str, region_name: str, **kwargs: Any
    ) -> RecordedResource:
        properties = cloudformation_json.get("Properties", {})
        return RecordedResource(self, resource_name, properties, account_id, region_name)

    def update_from_cloudformation_json(
        self, original_resource: RecordedResource, new_resource_name: str, cloudformation_json: Any, *where: str
    ) -> RecordedResource:
        original_resource.properties = cloudformation_json.get("Properties", {})
        return original_resource


# New types appear in this region first; a type's schema does not differ by region.
REGION = "us-east-1"
_ABSENT = object()


@dataclass(frozen=True, slots=True)
class ResourceSchema:
    document: Mapping[str, Any]

    def problems(self, properties: Mapping[str, Any]) -> list[str]:
        """Returns everything that the schema does not allow, each with its path below Properties."""
        errors = _Validator(dict(self.document)).iter_errors(dict(properties))
        return sorted({f"Properties{error.json_path[1:]}: {error.message}" for error in errors})

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
