"""The permissions that a call of the API needs: IAM actions, the ARNs they are on, and the context of the request.

`actions.toml` has the rows. Here is what depends on the request's content: a role in it is passed to the service, tags
need a permission of their own, a version of an object is another action than the object. It knows no policies.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import tomllib

from local_aws.permissions.api_call import ApiCall, UnknownCall
from local_aws.permissions.conditions import Context
from local_aws.permissions.policy import Asked

TABLE = Path(__file__).with_name("actions.toml")

PREFIXES = {
    "elbv2": "elasticloadbalancing",
    "sagemaker-runtime": "sagemaker",
    "service-quotas": "servicequotas",
    "stepfunctions": "states",
}
"""IAM's name of a service, where it is not botocore's."""
PASSED_TO = {
    "application-autoscaling": "application-autoscaling.amazonaws.com",
    "cloudformation": "cloudformation.amazonaws.com",
    "codebuild": "codebuild.amazonaws.com",
    "codepipeline": "codepipeline.amazonaws.com",
    "ecs": "ecs-tasks.amazonaws.com",
    "events": "events.amazonaws.com",
    "sagemaker": "sagemaker.amazonaws.com",
    "scheduler": "scheduler.amazonaws.com",
    "stepfunctions": "states.amazonaws.com",
}
"""Who receives a role that a request names, by service. A request to another service passes no role."""
PUBLIC = "parameter/aws/service/"
_READS = ("Describe", "Get", "List")
_ROLE = re.compile(r"arn:aws[a-z-]*:iam::\d{12}:role/.+")
_VARIABLE = re.compile(r"\{([A-Za-z.]+)\}")
_OF_VERSIONS = {
    "s3:GetObject": "s3:GetObjectVersion",
    "s3:DeleteObject": "s3:DeleteObjectVersion",
    "s3:GetObjectTagging": "s3:GetObjectVersionTagging",
}


@dataclass(frozen=True, slots=True)
class Where:
    account_id: str
    region: str


def needed(call: ApiCall, where: Where) -> list[Asked]:
    """Returns every permission that a call needs; each has to be allowed. Raises `UnknownCall`.

    The context has the keys that the request itself tells; those of who asks are added by the caller.
    """
    parameters = _prepared(call)
    asked = [
        Asked(_action(call, action, parameters), resource, _context(call, resource, where))
        for action, template in _rows(call)
        for resource in _resources(call.service, template, parameters, where)
    ]
    return [*asked, *_with_content(call, asked), *_passed(call, where)]


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
    if call.service == "ssm":  # the name's slash is the one before it in the ARN
        parameters |= {
            name: _without_slash(parameters[name]) for name in ("Name", "Names", "Path") if name in parameters
        }
    if call.service == "codebuild" and "ids" in parameters:  # a build's id is PROJECT:UUID
        parameters["ids"] = [each.partition(":")[0] for each in parameters["ids"]]
    if call.service == "codebuild" and "id" in parameters:
        parameters["id"] = parameters["id"].partition(":")[0]
    return parameters


def _without_slash(value: Any) -> Any:
    return [_without_slash(each) for each in value] if isinstance(value, list) else str(value).removeprefix("/")


def _resources(service: str, template: str, parameters: Mapping[str, Any], where: Where) -> list[str]:
    if template == "*":
        return ["*"]
    filled = [template.replace("{account}", where.account_id)]
    for name in _VARIABLE.findall(filled[0]):
        values = _values(parameters, name.split(".")) or ["*"]
        filled = [_fill(text, f"{{{name}}}", value) for text in filled for value in values]
    # Another account's registry, and AWS's public parameters, which belong to no account.
    owner = str(parameters.get("registryId") or where.account_id) if service == "ecr" else where.account_id
    start = f"arn:aws:{prefix_of(service)}:{where.region}:"
    if prefix_of(service) == "sagemaker":  # it writes an endpoint's name in lower case into its ARN
        filled = [text.lower() if text.startswith("endpoint/") else text for text in filled]
    return [
        text if text.startswith("arn:") else f"{start}{'' if text.startswith(PUBLIC) else owner}:{text}"
        for text in filled
    ]


def _fill(text: str, variable: str, value: str) -> str:
    """Fills in a value. An ARN is the resource itself where the template names nothing else, or else gives its name."""
    before, _, after = text.partition(variable)
    if value.startswith("arn:") and after in ("", "/*") and before.count("/") <= 1:
        return value
    return text.replace(variable, value.rpartition("/")[2] if value.startswith("arn:") else value)


def _values(parameters: Any, path: list[str]) -> list[str]:
    """Returns the texts at a path, through lists on the way."""
    if isinstance(parameters, list):
        return [found for each in parameters for found in _values(each, path)]
    if not path:
        return [str(parameters)] if parameters not in (None, "") else []
    return _values(parameters[path[0]], path[1:]) if isinstance(parameters, Mapping) and path[0] in parameters else []


def _action(call: ApiCall, action: str, parameters: Mapping[str, Any]) -> str:
    versioned = "VersionId" in parameters or "?versionId=" in str(call.parameters.get("CopySource", ""))
    return _OF_VERSIONS.get(action, action) if versioned else action


def _with_content(call: ApiCall, asked: list[Asked]) -> Iterator[Asked]:
    """Yields what the request's content needs beside its operation."""
    first = asked[0]
    if call.service == "sagemaker" and call.operation.startswith("Create") and call.parameters.get("Tags"):
        yield Asked("sagemaker:AddTags", first.resource, first.context)
    if call.operation == "AssumeRole" and call.parameters.get("Tags"):
        yield Asked("sts:TagSession", first.resource, first.context)
    if call.service == "s3" and call.operation in ("PutObject", "CopyObject", "CreateMultipartUpload"):
        for parameter, action in (("Tagging", "s3:PutObjectTagging"), ("ACL", "s3:PutObjectAcl")):
            if call.parameters.get(parameter):
                yield Asked(action, asked[-1].resource, first.context)


def _passed(call: ApiCall, where: Where) -> Iterator[Asked]:
    if call.service in PASSED_TO and not call.operation.startswith(_READS):
        context = {**shared_context(where), "iam:passedtoservice": (PASSED_TO[call.service],)}
        for role in sorted(set(_roles(call.parameters))):
            yield Asked("iam:PassRole", role, context)


def _roles(value: Any, key: str = "") -> Iterator[str]:
    """Yields the ARNs of roles in members whose name says that they are one."""
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _roles(inner, name)
    elif isinstance(value, list):
        for inner in value:
            yield from _roles(inner, key)
    elif "role" in key.lower() and isinstance(value, str) and _ROLE.fullmatch(value):
        yield value


def shared_context(where: Where) -> dict[str, tuple[str, ...]]:
    return {
        "aws:requestedregion": (where.region,),
        "aws:resourceaccount": (where.account_id,),
        # The account stands for AWS's own endpoints, which are reached by TLS.
        "aws:securetransport": ("true",),
        "aws:viaawsservice": ("false",),
    }


def _context(call: ApiCall, resource: str, where: Where) -> Context:
    told = shared_context(where)
    parameters = call.parameters
    if call.service == "s3":
        told["s3:resourceaccount"] = (where.account_id,)
    named = {
        "cloudwatch:namespace": parameters.get("Namespace") if call.service == "cloudwatch" else None,
        "ecs:cluster": _cluster(call, where),
        "s3:prefix": parameters.get("Prefix") if call.service == "s3" else None,
        "s3:delimiter": parameters.get("Delimiter") if call.service == "s3" else None,
        "sts:externalid": parameters.get("ExternalId"),
        "sts:rolesessionname": parameters.get("RoleSessionName"),
    }
    tags = parameters.get("Tags") or []
    pairs = {each["Key"]: str(each.get("Value", "")) for each in tags if isinstance(each, Mapping) and "Key" in each}
    return {
        **told,
        **{key: (str(value),) for key, value in named.items() if value},
        **{f"aws:requesttag/{key}".lower(): (value,) for key, value in pairs.items()},
        **({"aws:tagkeys": tuple(pairs)} if pairs else {}),
    }


def _cluster(call: ApiCall, where: Where) -> str | None:
    if call.service != "ecs" or not (cluster := call.parameters.get("cluster")):
        return None
    return cluster if cluster.startswith("arn:") else f"arn:aws:ecs:{where.region}:{where.account_id}:cluster/{cluster}"
