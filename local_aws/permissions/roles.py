"""Reads what this account keeps about roles: policies, whom they trust, what conditions ask of a resource.

moto keeps what `cdk deploy` and the API wrote. It is read anew at each call, and only the text of a policy that was not
seen before is parsed, so that a change of IAM holds from the next call on.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from moto.iam.exceptions import NotFoundException
from moto.iam.models import IAMBackend, Role, iam_backends
from moto.s3.models import S3Backend, s3_backends
from moto.sts.models import AssumedRole

from local_aws.permissions import policy
from local_aws.permissions.conditions import Context
from local_aws.permissions.policy import Asked, Decision, Statement

PARTITION = "aws"
_VIA_S3 = {
    "s3:GetObject": ("kms:Decrypt",),
    "s3:GetObjectVersion": ("kms:Decrypt",),
    "s3:PutObject": ("kms:GenerateDataKey",),
}
"""S3 does this with a bucket's key, in the name of the caller. The parts of an upload are put like objects."""


def find(account_id: str, arn: str) -> Role | None:
    try:
        return _iam(account_id).get_role_by_arn(arn)
    except NotFoundException:
        return None


def decide(role: Role | None, asked: Asked, session_policy: str = "") -> Decision:
    """Answers whether a role may do something. A role that is gone may do nothing. Raises `PolicyError`."""
    if role is None:
        return Decision.NOT_ALLOWED
    attached = (_default_version(each) for each in role.managed_policies.values())
    return policy.decide(
        asked,
        _parsed([*role.policies.values(), *attached]),
        boundary=_boundary(role),
        session=_parsed([session_policy]) if session_policy else None,
    )


def may_be_assumed(role: Role, asked: Asked, session: AssumedRole, by_its_policies: Decision) -> bool:
    """Tells whether a session of another role may assume `role`.

    A trust policy that names that role or that session is enough within an account. One that names the account leaves
    the question to the policies of the role that asks. Raises `PolicyError`.
    """
    trust = policy.parsed(_text(role.assume_role_policy_document))
    account = session.account_id
    as_account = {"AWS": frozenset({account, f"arn:{PARTITION}:iam::{account}:root"})}
    if policy.trusts(trust, asked, {"AWS": frozenset({session.role_arn, session.arn})}):
        return by_its_policies is not Decision.EXPLICIT_DENY
    return by_its_policies is Decision.ALLOWED and policy.trusts(trust, asked, as_account)


def trusts_service(role: Role, service: str, context: Context) -> bool:
    """Tells whether a service of AWS may assume a role. Raises `PolicyError`."""
    trust = policy.parsed(_text(role.assume_role_policy_document))
    return policy.trusts(trust, Asked("sts:AssumeRole", role.arn, context), {"Service": frozenset({service})})


def context_of(asked: Asked, role_arn: str, account_id: str) -> Context:
    """Returns what the conditions ask about who calls, and the tags of the resource, as far as they are kept here."""
    about = {"aws:principalarn": (role_arn,), "aws:principalaccount": (account_id,)}
    return {**about, **_tags(asked, account_id), **asked.context}


def with_keys(asked: Asked, account_id: str, region: str) -> list[Asked]:
    """Returns a permission, and those for the key of KMS with which an object's bucket is encrypted, if it is."""
    actions = _VIA_S3.get(asked.action)
    key = _key_of_bucket(asked.resource, account_id, region) if actions else None
    if not actions or not key:
        return [asked]
    context = {**asked.context, "kms:viaservice": (f"s3.{region}.amazonaws.com",), "kms:calleraccount": (account_id,)}
    return [asked, *(Asked(action, key, context) for action in actions)]


def _iam(account_id: str) -> IAMBackend:
    return iam_backends[account_id][PARTITION]


def _s3(account_id: str) -> S3Backend:
    return s3_backends[account_id][PARTITION]


def _boundary(role: Role) -> list[tuple[Statement, ...]] | None:
    if not role.permissions_boundary_arn:
        return None
    found = _iam(role.account_id).managed_policies.get(role.permissions_boundary_arn)
    return _parsed([_default_version(found)] if found else [])


def _default_version(managed: Any) -> Any:
    return next(each.document for each in managed.versions if each.version_id == managed.default_version_id)


def _parsed(documents: Iterable[Any]) -> list[tuple[Statement, ...]]:
    return [policy.parsed(_text(each)) for each in documents]


def _text(document: Any) -> str:
    return document if isinstance(document, str) else json.dumps(document)


def _tags(asked: Asked, account_id: str) -> dict[str, tuple[str, ...]]:
    if asked.action in ("iam:PassRole", "sts:AssumeRole") and (role := find(account_id, asked.resource)):
        found = role.tags.values() if isinstance(role.tags, dict) else role.tags
        return {f"iam:resourcetag/{each['Key']}".lower(): (each["Value"],) for each in found}
    if asked.action.startswith("s3:GetObject"):
        bucket, _, key = asked.resource.removeprefix("arn:aws:s3:::").partition("/")
        stored = getattr(_s3(account_id).buckets.get(bucket), "keys", {}).get(key)
        tags: Mapping[str, str] = _s3(account_id).tagger.get_tag_dict_for_resource(stored.arn) if stored else {}
        return {f"s3:existingobjecttag/{name}".lower(): (value,) for name, value in tags.items()}
    return {}


def _key_of_bucket(resource: str, account_id: str, region: str) -> str | None:
    bucket = _s3(account_id).buckets.get(resource.removeprefix("arn:aws:s3:::").partition("/")[0])
    rules: Any = getattr(bucket, "encryption", None) or {}
    rule = rules.get("Rule") or {}
    default = (rule[0] if isinstance(rule, list) else rule).get("ApplyServerSideEncryptionByDefault") or {}
    key = default.get("KMSMasterKeyID")
    if default.get("SSEAlgorithm") != "aws:kms" or not key or str(key).endswith("alias/aws/s3"):
        return None
    return str(key) if str(key).startswith("arn:") else f"arn:aws:kms:{region}:{account_id}:key/{key}"
