"""AWS::IAM::Role, with managed policies and changes, which moto loses, and AWS's own managed policies.

moto has the text of AWS's managed policies. They are added to an account when the first role names them.
"""

import json
from functools import cache
from types import SimpleNamespace
from typing import Any

from moto.core.common_models import CloudFormationModel
from moto.iam import urls as iam_urls
from moto.iam.aws_managed_policies import aws_managed_policies_data
from moto.iam.models import AWSManagedPolicy, IAMBackend, Role, iam_backends

from local_aws.permissions.roles import LocalIamResponse

OF_AWS = "arn:aws:iam::aws:policy"


class LocalIamBackend(IAMBackend):
    """Attaches AWS's managed policies as well, and simulates a role's policies."""

    @property
    def _url_module(self) -> Any:
        paths = dict.fromkeys(iam_urls.url_paths, LocalIamResponse.dispatch)
        return SimpleNamespace(url_bases=iam_urls.url_bases, url_paths=paths)

    def attach_role_policy(self, policy_arn: str, role_name: str) -> None:
        self.know(policy_arn)
        super().attach_role_policy(policy_arn, role_name)

    def know(self, policy_arn: str) -> None:
        """Makes a managed policy of AWS known, where there is one of that name."""
        path, _, name = policy_arn.removeprefix(OF_AWS).rpartition("/")
        data = _of_aws().get(name) if policy_arn.startswith(f"{OF_AWS}/") else None
        if data and data["Path"] == f"{path}/" and policy_arn not in self.managed_policies:
            made = AWSManagedPolicy.from_data(name, self.account_id, self.region_name, data)
            self.managed_policies[policy_arn] = made


class RoleResource(Role, CloudFormationModel):
    """AWS::IAM::Role. Its resources are moto's roles."""

    @classmethod
    def create_from_cloudformation_json(
        cls, resource_name: str, cloudformation_json: Any, account_id: str, region_name: str, **more: Any
    ) -> Role:
        properties = _with_texts(cloudformation_json["Properties"])
        definition = {**cloudformation_json, "Properties": properties}
        role: Role = super().create_from_cloudformation_json(resource_name, definition, account_id, region_name, **more)
        for arn in properties.get("ManagedPolicyArns", []):
            iam_backends[account_id]["aws"].attach_role_policy(arn, role.name)
        return role

    @classmethod
    def update_from_cloudformation_json(
        cls,
        original_resource: Role,
        new_resource_name: str,
        cloudformation_json: Any,
        account_id: str,
        region_name: str,
    ) -> Role:
        properties = _with_texts(cloudformation_json["Properties"])
        backend, name = iam_backends[account_id]["aws"], original_resource.name
        backend.update_role(name, properties.get("Description", ""), properties.get("MaxSessionDuration", 3600))
        backend.update_assume_role_policy(name, properties["AssumeRolePolicyDocument"])
        role = backend.get_role(name)
        of_others = {
            each.policy_name for each in backend.inline_policies.values() if name in (each.role_names or [])
        }  # AWS::IAM::Policy
        for gone in set(role.policies) - of_others:
            role.delete_policy(gone)
        for each in properties.get("Policies", []):
            role.put_policy(each["PolicyName"], each["PolicyDocument"])
        wanted = set(properties.get("ManagedPolicyArns", []))
        for arn in set(role.managed_policies) - wanted:
            backend.detach_role_policy(arn, name)
        for arn in sorted(wanted - set(role.managed_policies)):
            backend.attach_role_policy(arn, name)
        return role

    @classmethod
    def delete_from_cloudformation_json(
        cls, resource_name: str, cloudformation_json: Any, account_id: str, region_name: str
    ) -> None:
        backend = iam_backends[account_id]["aws"]
        for arn in list(backend.get_role(resource_name).managed_policies):
            backend.detach_role_policy(arn, resource_name)
        super().delete_from_cloudformation_json(resource_name, cloudformation_json, account_id, region_name)


@cache
def _of_aws() -> dict[str, Any]:
    policies: dict[str, Any] = json.loads(aws_managed_policies_data)
    return policies


def _with_texts(properties: dict[str, Any]) -> dict[str, Any]:
    """Returns a role's properties with its documents as the texts that IAM keeps."""
    policies = [{**each, "PolicyDocument": _text(each["PolicyDocument"])} for each in properties.get("Policies", [])]
    trust = _text(properties["AssumeRolePolicyDocument"])
    return {**properties, "AssumeRolePolicyDocument": trust, **({"Policies": policies} if policies else {})}


def _text(document: Any) -> str:
    return document if isinstance(document, str) else json.dumps(_without_no_value(document), default=str)


def _without_no_value(node: Any) -> Any:
    """Leaves out the elements that AWS::NoValue takes away, which moto keeps as null. CDK's bootstrap has such ones."""
    if isinstance(node, dict):
        return {key: _without_no_value(value) for key, value in node.items() if value is not None}
    return [_without_no_value(each) for each in node if each is not None] if isinstance(node, list) else node
