"""What our resources of CloudFormation share, where a row of `api_types` is not enough."""

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
    """What all of ours share: moto's wordy methods made short, GetAtt from a table, and one generated name.

    The short ones are private because moto takes a public `delete` for its own.
    """

    attribute_names: tuple[str, ...] = ()

    def __init__(self, identifier: str, attributes: Mapping[str, str]) -> None:
        self.identifier = identifier
        self.attributes = attributes

    @classmethod
    def _create(cls, name: str, properties: Mapping[str, Any], where: Where) -> Self:
        """`name` is the one that CloudFormation generated."""
        raise NotImplementedError

    @classmethod
    def _update(cls, old: Self, name: str, properties: Mapping[str, Any], where: Where) -> Self:
        """Creating again overwrites; under another identifier it makes a second one, and the old one goes."""
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
