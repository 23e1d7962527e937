"""cdk-nag's findings, answered beside the resource with a reason.

A finding is known by its text, in which cdk-nag writes a reference of the template as <Reference>; its answer
is too.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from aws_cdk import Acknowledgment, Stack, Validations
from aws_cdk import aws_iam as iam
from constructs import IConstruct


def acknowledge_actions(role: iam.Role, actions: Iterable[str], reason: str) -> None:
    _acknowledge(role, [f"Action::{action}" for action in actions], reason)


def acknowledge_resources(role: iam.Role, arns: Iterable[str], reason: str) -> None:
    resolved = Stack.of(role).resolve(list(arns))
    _acknowledge(role, [f"Resource::{_flat(arn)}" for arn in resolved], reason)


def acknowledge_wildcards(scope: IConstruct, reasons: Mapping[str, str]) -> None:
    """In every policy below `scope`, the findings that one of the patterns matches; others stay findings.

    For a construct of a library, whose roles it makes itself.
    """
    for policy in scope.node.find_all():
        if isinstance(policy, iam.CfnPolicy):
            for finding in _wildcards(Stack.of(policy).resolve(policy.policy_document)):
                reason = next((reason for pattern, reason in reasons.items() if re.fullmatch(pattern, finding)), None)
                if reason is not None:
                    _acknowledge(policy, [finding], reason)


def _wildcards(document: Mapping[str, Any]) -> Iterator[str]:
    for statement in document["Statement"]:
        for noun in ("Action", "Resource"):
            named = statement.get(noun, [])
            for each in named if isinstance(named, list) else [named]:
                if "*" in (text := _flat(each)):
                    yield f"{noun}::{text}"


def _acknowledge(role: IConstruct, findings: Iterable[str], reason: str) -> None:
    answers = [Acknowledgment(id=f"AwsSolutions-IAM5[{finding}]", reason=reason) for finding in findings]
    Validations.of(role).acknowledge(*answers)


def _flat(value: Any) -> str:
    match value:
        case {"Fn::Join": [separator, parts]}:
            return str(separator).join(_flat(part) for part in parts)
        case {"Ref": name}:
            return f"<{name}>"
        case {"Fn::GetAtt": [name, attribute]}:
            return f"<{name}.{attribute}>"
        case {"Fn::Sub": text}:
            return re.sub(r"\$\{([^}]+)\}", r"<\1>", text)
        case dict():
            return json.dumps(value, separators=(",", ":"))
        case _:
            return str(value)


def acknowledge(construct: IConstruct, rule: str, reason: str) -> None:
    """A finding that names no action or resource: "AwsSolutions-ECS2"."""
    Validations.of(construct).acknowledge(Acknowledgment(id=rule, reason=reason))
