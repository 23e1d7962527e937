"""A CloudFormation type made by the API of its service: a row of names instead of a class with three methods.

`as_request` turns the properties into the call's parameters. Ref, GetAtt and the keys of later calls are read from the
call's request and answer. Properties that the API sets by calls of their own are in `also`. `stack_change` decides what
a change replaces.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import jmespath
from moto.cloudformation.exceptions import UnformattedGetAttTemplateException

from local_aws.cloudformation.resource_schema import schema_of
from local_aws.cloudformation.service_api import as_request, call, input_shape

Properties = dict[str, Any]
Known = dict[str, Any]
"""The parameters by which the API knows a resource."""
Read = str | Callable[[Properties], Any]
"""A JMESPath in {request, answer, account, region}, or a function of that document where a path is not enough."""


@dataclass(frozen=True, slots=True)
class Also:
    """A property that a call of its own sets, on creation and on every change, unless `request` returns None."""

    property: str
    operation: str | Callable[[Known], object]
    """The API's operation, or a function in its place where moto asks for more than the service does."""
    request: Callable[[Any, Known], Known | None]


class Made:
    """A resource in the form that moto's stack wants: with Ref, GetAtt and a way to delete it."""

    def __init__(
        self, reference: str, name: str, attributes: Mapping[str, str], keys: Mapping[str, Any], kind: "ApiType"
    ) -> None:
        self.physical_resource_id = reference
        self.name = name
        self.attributes = attributes
        self.keys = keys
        self._kind = kind

    def get_cfn_attribute(self, attribute_name: str) -> str:
        if attribute_name not in self.attributes:
            raise UnformattedGetAttTemplateException()
        return self.attributes[attribute_name]

    def is_created(self) -> bool:
        return True

    def delete(self, account_id: str, region: str) -> None:
        self._kind.delete_resource(self, region)


@dataclass(frozen=True, kw_only=True)
class ApiType:
    name: str
    service: str
    create: str
    delete: str
    ref: Read
    update: str | None = None
    """None where `also` or `overwrites` covers every change that needs no replacement."""
    overwrites: bool = False
    """Whether calling `create` again changes the resource."""
    attributes: Mapping[str, Read] = field(default_factory=dict)
    keys: Mapping[str, Read] = field(default_factory=dict)
    """Parameters by which update and delete know the resource; a call gets those that it takes."""
    named_by: str | None = None
    """The property for which CloudFormation generates a name."""
    within: str | None = None
    """The parameter that holds all others, where the API nests them."""
    renames: Mapping[str, str] = field(default_factory=dict)
    prepare: Callable[[Properties, str], Properties] = lambda properties, region: properties
    """Changes the properties beyond their names; takes the region as its second argument."""
    delete_with: Mapping[str, Any] = field(default_factory=dict)
    also: tuple[Also, ...] = ()

    def create_from_cloudformation_json(
        self, resource_name: str, cloudformation_json: Any, account_id: str, region_name: str, **kwargs: Any
    ) -> Made:
        return self._create(resource_name, cloudformation_json["Properties"], account_id, region_name)

    def update_from_cloudformation_json(
        self,
        original_resource: Made,
        new_resource_name: str,
        cloudformation_json: Any,
        account_id: str,
        region_name: str,
    ) -> Made:
        properties = cloudformation_json["Properties"]
        if self.overwrites:
            return self._create(original_resource.name, properties, account_id, region_name)
        if self.update is not None:
            named = self._named(original_resource.name, properties)
            changed = self._request(self.update, named, region_name, partial=True)
            known = self._known_by(self.update, original_resource, region_name)
            call(self.service, self.update, {**changed, **known}, region_name)
        self._set_also(original_resource, properties, region_name)
        return original_resource

    def delete_from_cloudformation_json(
        self, resource_name: str, cloudformation_json: Any, account_id: str, region_name: str
    ) -> None:
        raise NotImplementedError("a resource of this type deletes itself")

    def has_cfn_attr(self, attribute: str) -> bool:
        return attribute in self.attributes

    def delete_resource(self, made: Made, region: str) -> None:
        call(self.service, self.delete, {**self._known_by(self.delete, made, region), **self.delete_with}, region)

    def _named(self, name: str, properties: Properties) -> Properties:
        return {self.named_by: self._shortened(name), **properties} if self.named_by else properties

    def _shortened(self, name: str) -> str:
        """Shortens a name to the schema's limit in the middle, so that the random end stays, as CloudFormation does."""
        schema = schema_of(self.name)
        limit = schema.document["properties"].get(self.named_by, {}).get("maxLength", 255) if schema else 255
        return name if len(name) <= limit else f"{name[: limit - 13]}-{name[-12:]}"

    def _create(self, name: str, properties: Properties, account_id: str, region: str) -> Made:
        named = self._named(name, properties)
        request = self._request(self.create, named, region)
        answer = call(self.service, self.create, request, region)
        known = {"request": request, "answer": answer, "account": account_id, "region": region}
        attributes = {name: str(_read(path, known)) for name, path in self.attributes.items()}
        keys = {name: _read(path, known) for name, path in self.keys.items()}
        made = Made(_read(self.ref, known), named.get(self.named_by or "", ""), attributes, keys, self)
        self._set_also(made, properties, region)
        return made

    def _set_also(self, made: Made, properties: Properties, region: str) -> None:
        for also in self.also:
            if also.property in properties:
                request = also.request(properties[also.property], dict(made.keys))
                if callable(also.operation):
                    also.operation(request or {})
                elif request is not None:
                    shape = input_shape(self.service, also.operation, region)
                    call(self.service, also.operation, as_request(shape, request), region)

    def _request(self, operation: str, properties: Properties, region: str, *, partial: bool = False) -> Properties:
        shape: Any = input_shape(self.service, operation, region)
        elsewhere = {also.property for also in self.also}
        prepared = self.prepare({key: value for key, value in properties.items() if key not in elsewhere}, region)
        if self.within is None:
            return as_request(shape, prepared, self.renames, partial=partial)
        outer = {key: value for key, value in prepared.items() if key[0].lower() + key[1:] in shape.members}
        inner = {key: value for key, value in prepared.items() if key not in outer}
        request = as_request(shape, outer, partial=partial)
        return {**request, self.within: as_request(shape.members[self.within], inner, self.renames, partial=partial)}

    def _known_by(self, operation: str, made: Made, region: str) -> Properties:
        shape: Any = input_shape(self.service, operation, region)
        known = {key: value for key, value in made.keys.items() if key in shape.members and value is not None}
        return as_request(shape, known)


def _read(path: Read, known: Properties) -> Any:
    return jmespath.search(path, known) if isinstance(path, str) else path(known)
