"""Grants that CDK has no method for, and reasons for findings of cdk-nag and checkov."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from aws_cdk import Acknowledgment, ArnFormat, Aws, CfnResource, Stack, Validations
from aws_cdk import aws_iam as iam
from aws_cdk import aws_sns as sns
from constructs import IConstruct

ENDPOINT_LOGS = "/aws/sagemaker/Endpoints/*"
"""The endpoint's own log group is named after it, and it is created after the role: that part is not known here."""

PULL = ("ecr:BatchCheckLayerAvailability", "ecr:GetDownloadUrlForLayer", "ecr:BatchGetImage")
THIS_ACCOUNT = {"StringEquals": {"aws:SourceAccount": Aws.ACCOUNT_ID}}
CHECKOVS = {"AwsSolutions-S1": "CKV_AWS_18", "AwsSolutions-ELB2": "CKV_AWS_91"}
"""Rules of cdk-nag that checkov has by another name."""


def allow(
    role: iam.Role,
    actions: Sequence[str],
    arns: Sequence[str],
    reason: str | None = None,
    conditions: Mapping[str, Mapping[str, object]] | None = None,
) -> None:
    """Grants actions. `reason` answers the findings on ARNs with a wildcard."""
    iam.Grant.add_to_principal(grantee=role, actions=list(actions), resource_arns=list(arns), conditions=conditions)
    if reason is not None:
        acknowledge_resources(role, arns, reason)


def allow_passing(role: iam.Role, role_arns: Sequence[str], service: str = "sagemaker.amazonaws.com") -> None:
    """Lets `role` start resources of a service that work under one of the given roles."""
    allow(role, ["iam:PassRole"], role_arns, conditions={"StringEquals": {"iam:PassedToService": service}})


def allow_pulling_from_aws(role: iam.Role, repository: str, reason: str) -> None:
    """Lets `role` pull images of AWS's own registries, whose accounts depend on the region."""
    allow(role, PULL, [arn_of(role, "ecr", "repository", repository, account="*")], reason)
    allow(role, ["ecr:GetAuthorizationToken"], ["*"], "ecr:GetAuthorizationToken is an action on no resource.")


def log_group_arns(scope: IConstruct, *names: str) -> list[str]:
    """Returns the ARNs of log groups. A name may end in a wildcard."""
    form = ArnFormat.COLON_RESOURCE_NAME
    return [
        Stack.of(scope).format_arn(service="logs", resource="log-group", resource_name=name, arn_format=form)
        for name in names
    ]


def arn_of(
    scope: IConstruct,
    service: str,
    resource: str,
    name: str = "*",
    *,
    account: str | None = None,
    region: str | None = None,
) -> str:
    """Returns an ARN of the stack's account and region, or of others."""
    return Stack.of(scope).format_arn(
        service=service, resource=resource, resource_name=name, account=account, region=region
    )


def let_publish(topic: sns.Topic, service: str, sid: str) -> None:
    """Lets an AWS service publish, only for this account. A topic policy replaces the default one."""
    topic.add_to_resource_policy(
        iam.PolicyStatement(
            sid=sid,
            principals=[iam.ServicePrincipal(service)],
            actions=["sns:Publish"],
            resources=[topic.topic_arn],
            conditions=THIS_ACCOUNT,
        )
    )


def allow_container_telemetry(role: iam.Role, *log_groups: str) -> None:
    """Lets a SageMaker container write its logs and metrics. `log_groups` may end in a wildcard."""
    actions = ["CreateLogGroup", "CreateLogStream", "DescribeLogStreams", "PutLogEvents"]
    reason = "A log group is named after an endpoint that has no name yet."
    allow(role, [f"logs:{action}" for action in actions], log_group_arns(role, *log_groups), reason)
    namespaces = {"StringLike": {"cloudwatch:namespace": ["AWS/SageMaker", "/aws/sagemaker/*"]}}
    reason = "cloudwatch:PutMetricData is an action on no resource; it has a namespace."
    allow(role, ["cloudwatch:PutMetricData"], ["*"], reason, namespaces)


def acknowledge(construct: IConstruct, rule: str, reason: str) -> None:
    """Gives the reason for a finding without action or resource, to cdk-nag and to checkov if it has the same rule."""
    Validations.of(construct).acknowledge(Acknowledgment(id=rule, reason=reason))
    if rule in CHECKOVS:
        acknowledge_to_checkov(construct, CHECKOVS[rule], reason)


def acknowledge_to_checkov(construct: IConstruct, check: str, reason: str) -> None:
    """Answers what checkov finds, in the template, where it reads answers: `check` is like "CKV_AWS_158"."""
    resource = construct.node.default_child or construct
    assert isinstance(resource, CfnResource)
    answers = resource.get_metadata("checkov") or {"skip": []}
    resource.add_metadata("checkov", {"skip": [*answers["skip"], {"id": check, "comment": reason}]})


def acknowledge_policy_to_checkov(role: iam.IRole, reason: str) -> None:
    """Answers that actions which write are allowed on every resource. The role's policy has to be there already."""
    acknowledge_to_checkov(role.node.find_child("DefaultPolicy"), "CKV_AWS_111", reason)


def acknowledge_actions(role: iam.Role, actions: Iterable[str], reason: str) -> None:
    _acknowledge(role, [f"Action::{action}" for action in actions], reason)


def acknowledge_resources(role: iam.Role, arns: Iterable[str], reason: str) -> None:
    resolved = Stack.of(role).resolve(list(arns))
    _acknowledge(role, [f"Resource::{_as_text(arn)}" for arn in resolved], reason)


def acknowledge_wildcards(scope: IConstruct, reasons: Mapping[str, str]) -> None:
    """Gives reasons for findings on the policies of a library's constructs, by pattern. Others stay findings."""
    for policy in scope.node.find_all():
        if isinstance(policy, iam.CfnPolicy):
            for finding in _wildcards(Stack.of(policy).resolve(policy.policy_document)):
                reason = next((reason for pattern, reason in reasons.items() if re.fullmatch(pattern, finding)), None)
                if reason is not None:
                    _acknowledge(policy, [finding], reason)


def _wildcards(document: Mapping[str, Any]) -> Iterator[str]:
    for statement in document["Statement"]:
        for key in ("Action", "Resource"):
            values = statement.get(key, [])
            for value in values if isinstance(values, list) else [values]:
                if "*" in (text := _as_text(value)):
                    yield f"{key}::{text}"


def _acknowledge(construct: IConstruct, findings: Iterable[str], reason: str) -> None:
    answers = [Acknowledgment(id=f"AwsSolutions-IAM5[{finding}]", reason=reason) for finding in findings]
    Validations.of(construct).acknowledge(*answers)


def _as_text(value: Any) -> str:
    """Returns a resolved value as cdk-nag writes it in a finding."""
    match value:
        case {"Fn::Join": [separator, parts]}:
            return str(separator).join(_as_text(part) for part in parts)
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
