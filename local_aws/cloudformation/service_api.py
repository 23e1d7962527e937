"""The base of CloudFormation resources, and calls of this account's own API from within this process.

botocore builds and checks a request, and moto answers without a network. CloudFormation and the services name most
things alike but for the case of the first letter; `renames` has the other differences. A property that the request has
no place for is rejected, because it would be lost silently.
"""

import json
import os
from collections.abc import Mapping
from functools import cache
from typing import Any, NamedTuple, Self

import botocore.session
from botocore.client import Config
from botocore.model import Shape
from moto.cloudformation.exceptions import UnformattedGetAttTemplateException
from moto.cloudformation.parsing import get_model_map, get_name_type_map
from moto.core.botocore_stubber import BotocoreStubber

from aws_api.service_model import input_shape

_CASTS: Mapping[str, type[Any]] = {"integer": int, "long": int, "float": float, "double": float, "string": str}
# The account reads no profile or file of the person who started it.
_NO_FILES = {
    "profile": (None, None, None, None),
    "config_file": (None, None, os.devnull, None),
    "credentials_file": (None, None, os.devnull, None),
}
_CONFIG: dict[str, Any] = {"ignore_configured_endpoint_urls": True, "retries": {"total_max_attempts": 1}}


@cache
def client(service: str, region: str) -> Any:
    """Returns a client whose requests never leave this process. Threads may share botocore's clients."""
    session: Any = botocore.session.Session(session_vars=_NO_FILES)
    made = session.create_client(
        service, region_name=region, aws_access_key_id="local", aws_secret_access_key="local", config=Config(**_CONFIG)
    )
    stubber = BotocoreStubber()
    stubber.enabled = True
    made.meta.events.register("before-send", stubber)
    return made


def call(service: str, operation: str, request: Mapping[str, Any], region: str) -> dict[str, Any]:
    """Calls an operation by its name in the API, such as CreateCluster, and returns the answer."""
    caller = client(service, region)
    python_name = next(name for name, api in caller.meta.method_to_api_mapping.items() if api == operation)
    answer: dict[str, Any] = getattr(caller, python_name)(**request)
    answer.pop("ResponseMetadata", None)
    return answer


def call_with(
    service: str,
    operation: str,
    properties: Mapping[str, Any],
    region: str,
    renames: Mapping[str, str] | None = None,
    *,
    partial: bool = False,
) -> dict[str, Any]:
    """Calls an operation with a resource's properties: see `as_request`."""
    request = as_request(input_shape(service, operation), properties, renames, partial=partial)
    return call(service, operation, request, region)


def as_request(
    shape: Shape,
    properties: Mapping[str, Any],
    renames: Mapping[str, str] | None = None,
    *,
    partial: bool = False,
    path: str = "Properties",
) -> dict[str, Any]:
    """Returns a request. Raises ValueError for a property without a parameter, which `partial` leaves out."""
    names = {name.lower(): name for name in shape.members}  # type: ignore[attr-defined]
    request: dict[str, Any] = {}
    for key, value in properties.items():
        name = (renames or {}).get(key) or names.get(key.lower())
        if name and name in shape.members:  # type: ignore[attr-defined]
            request[name] = _value(shape.members[name], value, partial, f"{path}.{key}")  # type: ignore[attr-defined]
        elif not partial:
            known = ", ".join(shape.members)  # type: ignore[attr-defined]
            raise ValueError(f"{path}.{key}: {shape.name} has no such parameter. It has: {known}.")
    return request


def _value(shape: Shape, value: Any, partial: bool, path: str) -> Any:
    match shape.type_name, value:
        case "structure", Mapping():
            return as_request(shape, value, partial=partial, path=path)
        case "list", _:
            items = value if isinstance(value, list) else [value]
            item: Shape = shape.member  # type: ignore[attr-defined]
            return [_value(item, each, partial, f"{path}[{number}]") for number, each in enumerate(items)]
        case "map", list():  # tags
            return {each["Key"]: str(each["Value"]) for each in value}
        case "map", Mapping():
            return {key: _value(shape.value, each, partial, f"{path}.{key}") for key, each in value.items()}  # type: ignore[attr-defined]
        case "string", (list() | Mapping()):
            return json.dumps(value)
        case "string", bool():
            return str(value).lower()
        case "boolean", _:
            return value in (True, "true")
        case kind, _:
            return _CASTS[kind](value) if kind in _CASTS else value


class StackScope(NamedTuple):
    """The account and the region of a stack."""

    account_id: str
    region: str


class Resource:
    """Reduces moto's interface to `_create`, `_update` and `_delete`; moto would call a public `delete` itself."""

    deletion: tuple[str, str, str]
    """The service, the operation, and the parameter that takes the identifier, or the last part of its ARN."""
    status_reason: str | None = None

    def __init_subclass__(cls, kind: str, name: str = "") -> None:
        get_model_map()[kind] = cls  # type: ignore[assignment]  # it has the methods of moto's class
        get_name_type_map()[kind] = name

    def __init__(self, identifier: str, attributes: Mapping[str, str], name: str = "") -> None:
        self.physical_resource_id = identifier
        self.attributes = attributes
        self.name = name

    @classmethod
    def _create(cls, name: str, properties: Mapping[str, Any], scope: StackScope) -> Self:
        """Makes the resource, or overwrites it. `name` is the template's or was generated by CloudFormation."""
        raise NotImplementedError

    @classmethod
    def _update(cls, old: Self, properties: Mapping[str, Any], scope: StackScope) -> Self:
        new = cls._create(old.name, properties, scope)
        if new.physical_resource_id != old.physical_resource_id:
            cls._delete(old.physical_resource_id, scope)
        return new

    @classmethod
    def _delete(cls, identifier: str, scope: StackScope) -> None:
        service, operation, parameter = cls.deletion
        by_arn = parameter.endswith("Arn") or not identifier.startswith("arn:")
        call(service, operation, {parameter: identifier if by_arn else identifier.rpartition("/")[2]}, scope.region)

    @classmethod
    def create_from_cloudformation_json(
        cls, resource_name: str, cloudformation_json: Any, account_id: str, region_name: str, **kwargs: Any
    ) -> Self:
        made = cls._create(resource_name, cloudformation_json["Properties"], StackScope(account_id, region_name))
        made.name = resource_name
        return made

    @classmethod
    def update_from_cloudformation_json(
        cls, original_resource: Any, new_resource_name: str, cloudformation_json: Any, *scope: str
    ) -> Self:
        made = cls._update(original_resource, cloudformation_json["Properties"], StackScope(*scope))
        made.name = original_resource.name
        return made

    @classmethod
    def delete_from_cloudformation_json(cls, resource_name: str, cloudformation_json: Any, *scope: str) -> None:
        cls._delete(resource_name, StackScope(*scope))

    def get_cfn_attribute(self, attribute_name: str) -> str:
        if attribute_name not in self.attributes:
            raise UnformattedGetAttTemplateException()
        return self.attributes[attribute_name]

    @staticmethod
    def has_cfn_attr(attr: str) -> bool:
        return True
