"""Reads what this account stores about roles: policies, trust policies, and tags of resources for conditions.

It reads moto's IAM anew at each call, so that a change holds from the next call on.
`LocalIamResponse` adds IAM's SimulatePrincipalPolicy, which `python -m stacks preflight` and the SageMaker SDK call.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from moto.core.responses import ActionResult
from moto.iam.exceptions import NotFoundException
from moto.iam.models import Role, iam_backends
from moto.iam.responses import IamResponse
from moto.s3.models import s3_backends
from moto.sts.models import AssumedRole

from local_aws.permissions import policy
from local_aws.permissions.actions import AccountRegion
from local_aws.permissions.policy import Permission, PolicyContext, PolicyDecision, PolicyError, Statement

PARTITION = "aws"
_VIA_S3 = {
    "s3:GetObject": ("kms:Decrypt",),
    "s3:GetObjectVersion": ("kms:Decrypt",),
    "s3:PutObject": ("kms:GenerateDataKey",),
}
"""The actions on a bucket's key that S3 executes in the name of the caller."""


def find(account_id: str, arn: str) -> Role | None:
    try:
        return iam_backends[account_id][PARTITION].get_role_by_arn(arn)
    except NotFoundException:
        return None


def decide(role: Role | None, permission: Permission, session_policy: str = "") -> PolicyDecision:
    """Decides by the role's policies. A role that was deleted may do nothing. Raises `PolicyError`."""
    if role is None:
        return PolicyDecision.NOT_ALLOWED
    attached = (_default_version(each) for each in role.managed_policies.values())
    boundary = None
    if role.permissions_boundary_arn:
        found = iam_backends[role.account_id][PARTITION].managed_policies.get(role.permissions_boundary_arn)
        boundary = _parsed([_default_version(found)] if found else [])
    return policy.decide(
        permission,
        _parsed([*role.policies.values(), *attached]),
        boundary=boundary,
        session=_parsed([session_policy]) if session_policy else None,
    )


def may_be_assumed(role: Role, permission: Permission, session: AssumedRole, by_its_policies: PolicyDecision) -> bool:
    """Returns whether a session of another role may assume `role`. Raises `PolicyError`."""
    # A trust policy that names that role or session is enough; if it names the account, that role's policies decide.
    trust = policy.parsed(_text(role.assume_role_policy_document))
    account = session.account_id
    as_account = {"AWS": frozenset({account, f"arn:{PARTITION}:iam::{account}:root"})}
    if policy.trusts(trust, permission, {"AWS": frozenset({session.role_arn, session.arn})}):
        return by_its_policies is not PolicyDecision.EXPLICIT_DENY
    return by_its_policies is PolicyDecision.ALLOWED and policy.trusts(trust, permission, as_account)


def trusts_service(role: Role, service: str, context: PolicyContext) -> bool:
    """Returns whether a service of AWS may assume a role. Raises `PolicyError`."""
    trust = policy.parsed(_text(role.assume_role_policy_document))
    return policy.trusts(trust, Permission("sts:AssumeRole", role.arn, context), {"Service": frozenset({service})})


def with_principal(permission: Permission, role_arn: str, account_id: str) -> Permission:
    """Adds the condition keys of the principal and the tags of the resource to the context."""
    principal = {"aws:principalarn": (role_arn,), "aws:principalaccount": (account_id,)}
    context = {**principal, **_tags(permission, account_id), **permission.context}
    return Permission(permission.action, permission.resource, context)


def with_keys(permission: Permission, scope: AccountRegion) -> list[Permission]:
    """Returns a permission, and those for the KMS key that encrypts an object's bucket, if any."""
    actions = _VIA_S3.get(permission.action)
    key = _key_of_bucket(permission.resource, scope) if actions else None
    if not actions or not key:
        return [permission]
    via = {"kms:viaservice": (f"s3.{scope.region}.amazonaws.com",), "kms:calleraccount": (scope.account_id,)}
    return [permission, *(Permission(action, key, {**permission.context, **via}) for action in actions)]


def _default_version(managed: Any) -> Any:
    return next(each.document for each in managed.versions if each.version_id == managed.default_version_id)


def _parsed(documents: Iterable[Any]) -> list[tuple[Statement, ...]]:
    return [policy.parsed(_text(each)) for each in documents]


def _text(document: Any) -> str:
    return document if isinstance(document, str) else json.dumps(document)


def _tags(permission: Permission, account_id: str) -> dict[str, tuple[str, ...]]:
    if permission.action in ("iam:PassRole", "sts:AssumeRole") and (role := find(account_id, permission.resource)):
        found = role.tags.values() if isinstance(role.tags, dict) else role.tags
        return {f"iam:resourcetag/{each['Key']}".lower(): (each["Value"],) for each in found}
    if permission.action.startswith("s3:GetObject"):
        bucket, _, key = permission.resource.removeprefix("arn:aws:s3:::").partition("/")
        stored = getattr(s3_backends[account_id][PARTITION].buckets.get(bucket), "keys", {}).get(key)
        tags: Mapping[str, str] = (
            s3_backends[account_id][PARTITION].tagger.get_tag_dict_for_resource(stored.arn) if stored else {}
        )
        return {f"s3:existingobjecttag/{name}".lower(): (value,) for name, value in tags.items()}
    return {}


def _key_of_bucket(resource: str, scope: AccountRegion) -> str | None:
    bucket = s3_backends[scope.account_id][PARTITION].buckets.get(
        resource.removeprefix("arn:aws:s3:::").partition("/")[0]
    )
    rules: Any = getattr(bucket, "encryption", None) or {}
    rule = rules.get("Rule") or {}
    default = (rule[0] if isinstance(rule, list) else rule).get("ApplyServerSideEncryptionByDefault") or {}
    key = default.get("KMSMasterKeyID")
    if default.get("SSEAlgorithm") != "aws:kms" or not key or str(key).endswith("alias/aws/s3"):
        return None
    return str(key) if str(key).startswith("arn:") else f"arn:aws:kms:{scope.region}:{scope.account_id}:key/{key}"


NOT_SIMULATED = ("PermissionsBoundaryPolicyInputList", "PolicyExclusionList", "PolicyInputList", "ResourcePolicy")


class LocalIamResponse(IamResponse):
    def simulate_principal_policy(self) -> ActionResult:
        """Decides each action for each resource. Conditions see the request's context entries and the role."""
        for name in NOT_SIMULATED:
            if self._get_param(name):
                raise NotImplementedError(f"SimulatePrincipalPolicy with {name}")
        arn = str(self._get_param("PolicySourceArn"))
        if ":role/" not in arn:
            raise NotImplementedError(f"SimulatePrincipalPolicy for {arn}, which is no role")
        if (role := find(self.current_account, arn)) is None:
            raise NotFoundException(f"The role with ARN {arn} cannot be found.")
        entries = self._get_param("ContextEntries") or []
        context = {each["ContextKeyName"].lower(): tuple(each["ContextKeyValues"]) for each in entries}
        results = [
            _simulated(role, Permission(action, resource, context))
            for action in self._get_param("ActionNames")
            for resource in self._get_param("ResourceArns") or ["*"]
        ]
        return ActionResult({"EvaluationResults": results, "IsTruncated": False})


def _simulated(role: Role, permission: Permission) -> Mapping[str, Any]:
    try:
        decision = decide(role, with_principal(permission, role.arn, role.account_id))
    except PolicyError as error:
        raise NotImplementedError(f"SimulatePrincipalPolicy, for a policy cannot be evaluated: {error}") from error
    words = {PolicyDecision.ALLOWED: "allowed", PolicyDecision.EXPLICIT_DENY: "explicitDeny"}
    within = {"AllowedByPermissionsBoundary": decision is not PolicyDecision.BOUNDARY}
    return {
        "EvalActionName": permission.action,
        "EvalResourceName": permission.resource,
        "EvalDecision": words.get(decision, "implicitDeny"),
        **({"PermissionsBoundaryDecisionDetail": within} if role.permissions_boundary_arn else {}),
    }
