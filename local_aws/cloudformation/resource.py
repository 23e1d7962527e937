"""The base of our CloudFormation resources that need a class, because a row of `api_types` is not enough."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from moto.cloudformation.exceptions import UnformattedGetAttTemplateException
from moto.core.common_models import CloudFormationModel


@dataclass(frozen=True, slots=True)
class Where:
    account_id: str
    region: str


class Resource(CloudFormationModel):  # its type "" is never in a template
    """Reduces moto's interface to `_create`, `_update` and `_delete`, and answers GetAtt from a table.

    The three are private because moto would call a public `delete` itself.
    """

    attribute_names: tuple[str, ...] = ()

    def __init__(self, identifier: str, attributes: Mapping[str, str]) -> None:
        self.identifier = identifier
        self.attributes = attributes

    @classmethod
    def _create(cls, name: str, properties: Mapping[str, Any], where: Where) -> Self:
        """Makes the resource. CloudFormation generated `name`."""
        raise NotImplementedError

    @classmethod
    def _update(cls, old: Self, name: str, properties: Mapping[str, Any], where: Where) -> Self:
        """Creates the resource again, which overwrites it, and deletes the old one if the identifier changed."""
        new = cls._create(name, properties, where)
        if new.identifier != old.identifier:
            cls._delete(old.identifier, where)
        return new

    @classmethod
    def _delete(cls, identifier: str, where: Where) -> None:
        raise NotImplementedError

    @classmethod
    def create_from_cloudformation_json(
        cls, resource_name: str, cloudformation_json: Any, account_id: str, region_name: str, **kwargs: Any
    ) -> Self:
        return cls._create(resource_name, cloudformation_json["Properties"], Where(account_id, region_name))

    @classmethod
    def update_from_cloudformation_json(
        cls, original_resource: Any, new_resource_name: str, cloudformation_json: Any, account_id: str, region_name: str
    ) -> Self:
        where = Where(account_id, region_name)
        return cls._update(original_resource, new_resource_name, cloudformation_json["Properties"], where)

    @classmethod
    def delete_from_cloudformation_json(
        cls, resource_name: str, cloudformation_json: Any, account_id: str, region_name: str
    ) -> None:
        cls._delete(resource_name, Where(account_id, region_name))

    @property
    def physical_resource_id(self) -> str:
        return self.identifier

    def get_cfn_attribute(self, attribute_name: str) -> str:
        if attribute_name not in self.attributes:
            raise UnformattedGetAttTemplateException()
        return self.attributes[attribute_name]

    @classmethod
    def has_cfn_attr(cls, attr: str) -> bool:
        return attr in cls.attribute_names

    @staticmethod
    def cloudformation_name_type() -> str:
        return ""

    def is_created(self) -> bool:
        return True
