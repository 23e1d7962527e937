"""The permissions that an API call needs: IAM actions, the ARNs they are on, and the context of the request.

`actions.toml` has the rows. This module adds what depends on the request's content: a role in it is passed to the
service, tags need a permission of their own, and a version of an object needs another action than the object.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import tomllib

from local_aws.permissions.policy import Permission, PolicyContext

TABLE = Path(__file__).with_name("actions.toml")
PREFIXES = {
    "elbv2": "elasticloadbalancing",
    "sagemaker-runtime": "sagemaker",
    "service-quotas": "servicequotas",
    "stepfunctions": "states",
}
PASSED_TO = {
    "ecs": "ecs-tasks.amazonaws.com",
    "stepfunctions": "states.amazonaws.com",
    **{name: f"{name}.amazonaws.com" for name in ("application-autoscaling", "cloudformation", "codebuild")},
    **{name: f"{name}.amazonaws.com" for name in ("codepipeline", "events", "sagemaker", "scheduler")},
}
"""The receiver of a role that a request names, by service. A request to another service passes no role."""
GRANT_IS_FOR_AWS = "GrantIsForAWSResource"
"""A member of CreateGrant that no caller can send: a service of AWS makes the grant."""
PUBLIC = "parameter/aws/service/"
_ENDPOINT = re.compile("(^|:)endpoint/")
_ROLE = re.compile(r"arn:aws[a-z-]*:iam::\d{12}:role/.+")
_VARIABLE = re.compile(r"\{([A-Za-z.]+)\}")
_OF_VERSIONS = {
    "s3:GetObject": "s3:GetObjectVersion",
    "s3:DeleteObject": "s3:DeleteObjectVersion",
    "s3:GetObjectTagging": "s3:GetObjectVersionTagging",
}


class UnknownCall(Exception):
    """A request that is no operation of a service in the table."""


@dataclass(frozen=True, slots=True)
class ApiCall:
    service: str
    operation: str
    parameters: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class AccountRegion:
    account_id: str
    region: str

    def context(self) -> dict[str, tuple[str, ...]]:
        """Returns the condition keys that every request has."""
        return {
            "aws:requestedregion": (self.region,),
            "aws:resourceaccount": (self.account_id,),
            "aws:securetransport": ("true",),  # the account stands for AWS's endpoints, which require TLS
            "aws:viaawsservice": ("false",),
        }


def needed(call: ApiCall, scope: AccountRegion) -> list[Permission]:
    """Returns every permission that a call needs, without the principal's condition keys. Raises `UnknownCall`."""
    parameters = _prepared(call)
    versioned = "VersionId" in call.parameters or "?versionId=" in str(call.parameters.get("CopySource", ""))
    permissions = [
        Permission(_OF_VERSIONS.get(action, action) if versioned else action, resource, _context(call, scope))
        for action, template in _rows(call)
        for resource in _resources(call.service, template, parameters, scope)
    ]
    return [*permissions, *_for_content(call, permissions), *_passed_roles(call, scope)]


def prefix_of(service: str) -> str:
    """Returns IAM's name of a service by botocore's."""
    return PREFIXES.get(service, service)


@cache
def table() -> Mapping[str, Mapping[str, Any]]:
    """Returns the rows of `actions.toml`, by botocore's names of service and operation."""
    return tomllib.loads(TABLE.read_text("utf-8"))


def rows(service: str, operation: str, row: str | list[str]) -> list[tuple[str, str]]:
    """Returns the actions of a row of the table, each with the template of its resource."""
    named = [each.rpartition(" ") for each in ([row] if isinstance(row, str) else row)]
    return [(action or f"{prefix_of(service)}:{operation}", template) for action, _, template in named]


def _rows(call: ApiCall) -> list[tuple[str, str]]:
    of_service = table().get(call.service, {})
    begin = next((key for key in of_service if key.endswith("*") and call.operation.startswith(key[:-1])), "")
    row = of_service.get(call.operation) or of_service.get(begin)
    if row is None:
        raise UnknownCall(f"{call.operation} of {call.service}")
    return rows(call.service, call.operation, row)


def _prepared(call: ApiCall) -> Mapping[str, Any]:
    parameters = dict(call.parameters)
    if "CopySource" in parameters:
        source = unquote(str(parameters["CopySource"]).partition("?versionId=")[0])
        parameters["CopySource"] = source.removeprefix("arn:aws:s3:::").lstrip("/")
    for name in ("Name", "Names", "Path") if call.service == "ssm" else ():  # the slash is the one before it in the ARN
        if name in parameters:
            parameters[name] = [str(each).removeprefix("/") for each in _values(parameters, [name])]
    for name in ("id", "ids") if call.service == "codebuild" else ():  # a build's id is PROJECT:UUID
        if name in parameters:
            parameters[name] = [each.partition(":")[0] for each in _values(parameters, [name])]
    return parameters


def _resources(service: str, template: str, parameters: Mapping[str, Any], scope: AccountRegion) -> list[str]:
    if template == "*":
        return ["*"]
    filled = [template.replace("{account}", scope.account_id)]
    for name in _VARIABLE.findall(filled[0]):
        values = _values(parameters, name.split(".")) or ["*"]
        filled = [_fill(text, f"{{{name}}}", value) for text in filled for value in values]
    # Another account's registry, and AWS's public parameters, which belong to no account.
    owner = str(parameters.get("registryId") or scope.account_id) if service == "ecr" else scope.account_id
    start = f"arn:aws:{prefix_of(service)}:{scope.region}:"
    if prefix_of(service) == "sagemaker":  # it writes an endpoint's name in lower case into its ARN
        filled = [text.lower() if _ENDPOINT.search(text) else text for text in filled]
    return [
        text if text.startswith("arn:") else f"{start}{'' if text.startswith(PUBLIC) else owner}:{text}"
        for text in filled
    ]


def _fill(text: str, variable: str, value: str) -> str:
    """Fills in a value. An ARN is the resource itself if the template names nothing else; otherwise its name counts."""
    before, _, after = text.partition(variable)
    if value.startswith("arn:") and after in ("", "/*") and before.count("/") <= 1:
        return value
    return text.replace(variable, value.rpartition("/")[2] if value.startswith("arn:") else value)


def _values(parameters: Any, path: list[str]) -> list[str]:
    if isinstance(parameters, list):
        return [text for each in parameters for text in _values(each, path)]
    if not path:
        return [str(parameters)] if parameters not in (None, "") else []
    return _values(parameters[path[0]], path[1:]) if isinstance(parameters, Mapping) and path[0] in parameters else []


def _for_content(call: ApiCall, permissions: list[Permission]) -> Iterator[Permission]:
    first = permissions[0]
    if call.parameters.get("Tags") and call.operation == "AssumeRole":
        yield Permission("sts:TagSession", first.resource, first.context)
    if call.parameters.get("Tags") and call.service == "sagemaker" and call.operation.startswith("Create"):
        yield Permission("sagemaker:AddTags", first.resource, first.context)
    if call.service == "s3" and call.operation in ("PutObject", "CopyObject", "CreateMultipartUpload"):
        for parameter, action in (("Tagging", "s3:PutObjectTagging"), ("ACL", "s3:PutObjectAcl")):
            if call.parameters.get(parameter):
                yield Permission(action, permissions[-1].resource, first.context)


def _passed_roles(call: ApiCall, scope: AccountRegion) -> Iterator[Permission]:
    if call.service in PASSED_TO and not call.operation.startswith(("Describe", "Get", "List")):
        context = {**scope.context(), "iam:passedtoservice": (PASSED_TO[call.service],)}
        for role in sorted(set(_roles(call.parameters))):
            yield Permission("iam:PassRole", role, context)


def _roles(value: Any, key: str = "") -> Iterator[str]:
    """Yields the ARNs of roles in members whose name contains "role"."""
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _roles(inner, name)
    elif isinstance(value, list):
        for inner in value:
            yield from _roles(inner, key)
    elif "role" in key.lower() and isinstance(value, str) and _ROLE.fullmatch(value):
        yield value


def _context(call: ApiCall, scope: AccountRegion) -> PolicyContext:
    parameters = call.parameters
    named: dict[str, Any] = {
        "sts:externalid": parameters.get("ExternalId"),
        "sts:rolesessionname": parameters.get("RoleSessionName"),
    }
    match call.service:
        case "cloudwatch":
            named["cloudwatch:namespace"] = parameters.get("Namespace")
        case "ecs" if cluster := parameters.get("cluster"):
            start = f"arn:aws:ecs:{scope.region}:{scope.account_id}:cluster/"
            named["ecs:cluster"] = cluster if cluster.startswith("arn:") else start + cluster
        case "kms" if parameters.get(GRANT_IS_FOR_AWS):
            named["kms:grantisforawsresource"] = "true"
        case "s3":
            named |= {"s3:prefix": parameters.get("Prefix"), "s3:delimiter": parameters.get("Delimiter")}
            named["s3:resourceaccount"] = scope.account_id
    tags = parameters.get("Tags") or []
    pairs = {each["Key"]: str(each.get("Value", "")) for each in tags if isinstance(each, Mapping) and "Key" in each}
    return {
        **scope.context(),
        **{key: (str(value),) for key, value in named.items() if value},
        **{f"aws:requesttag/{key}".lower(): (value,) for key, value in pairs.items()},
        **({"aws:tagkeys": tuple(pairs)} if pairs else {}),
    }
