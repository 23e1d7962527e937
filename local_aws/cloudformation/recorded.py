"""CloudFormation types that this account records and does not run. Their properties are checked by the schema only.

DescribeStackResources and the stack's events tell the reason as the resource's status reason. Nothing here answers for
such a resource, so AWS may still refuse a template that was deployed here.
"""

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from moto.cloudformation.exceptions import UnformattedGetAttTemplateException

SAID = "Recorded only; its properties are valid by CloudFormation's schema."


class Recorded:
    """A resource that consists of its properties alone."""

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
        """Does nothing: recording made nothing."""


@dataclass(frozen=True, kw_only=True)
class RecordedType:
    name: str
    reason: str
    """Why the type is not run here, as a sentence."""
    ref: str
    """A pattern with {name}, {account}, {region} and {uuid}, like the values of `attributes`."""
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
