"""Types that this account keeps and does not run: valid by CloudFormation's schema, and said to be no more than that.

Each has the reason, which DescribeStackResources and the stack's events tell as the resource's status reason. Nothing
of AWS answers for such a resource here, so a template that is deployed here may still be refused there.
"""

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from moto.cloudformation.exceptions import UnformattedGetAttTemplateException

SAID = "Recorded only; its properties are valid by CloudFormation's schema."


class Recorded:
    """A resource that is nothing but its properties."""

    def __init__(self, reference: str, attributes: Mapping[str, str], reason: str) -> None:
        self.physical_resource_id = reference
        self.attributes = attributes
        self.status_reason = f"{SAID} {reason}"

    def get_cfn_attribute(self, attribute_name: str) -> str:
        if attribute_name not in self.attributes:
            raise UnformattedGetAttTemplateException()
        return self.attributes[attribute_name]

    def is_created(self) -> bool:
        return True

    def delete(self, account_id: str, region: str) -> None:
        """Nothing was made."""


@dataclass(frozen=True, kw_only=True)
class RecordedType:
    name: str
    reason: str
    """Why it is not run here, as a sentence."""
    ref: str
    """With {name}, {account}, {region} and {uuid}; so are the values of `attributes`."""
    attributes: Mapping[str, str] = field(default_factory=dict)

    def create_from_cloudformation_json(
        self, resource_name: str, cloudformation_json: Any, account_id: str, region_name: str, **kwargs: Any
    ) -> Recorded:
        known = {"name": resource_name, "account": account_id, "region": region_name, "uuid": str(uuid.uuid4())}
        attributes = {name: text.format(**known) for name, text in self.attributes.items()}
        return Recorded(self.ref.format(**known), attributes, self.reason)

    def update_from_cloudformation_json(
        self, original_resource: Recorded, new_resource_name: str, cloudformation_json: Any, *where: str
    ) -> Recorded:
        return original_resource

    def has_cfn_attr(self, attribute: str) -> bool:
        return attribute in self.attributes


_CONNECTION = "arn:aws:codeconnections:{region}:{account}:connection/{uuid}"

RECORDED_TYPES = (
    RecordedType(
        name="AWS::CodeConnections::Connection",
        reason="A person completes its handshake with the Git host in the console.",
        ref=_CONNECTION,
        attributes={"ConnectionArn": _CONNECTION, "ConnectionStatus": "PENDING", "OwnerAccountId": "{account}"},
    ),
    RecordedType(
        name="AWS::CodeStarConnections::Connection",
        reason="A person completes its handshake with the Git host in the console.",
        ref=_CONNECTION,
        attributes={"ConnectionArn": _CONNECTION, "ConnectionStatus": "PENDING", "OwnerAccountId": "{account}"},
    ),
)
