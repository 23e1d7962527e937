"""Explains why a stack failed: events of CloudFormation, and what its endpoint or ECS service reports."""

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import takewhile
from typing import Any

from aws_api.errors import AwsRefused
from aws_api.explain import (
    LOG_LINES,
    Explanations,
    Failure,
    described_endpoint,
    endpoint_failure,
    explain,
    explain_endpoint,
    has_failed,
    log_command,
)
from aws_api.logs import ContainerLog, first_log
from aws_api.sagemaker import SageMakerAccount

STACK, ENDPOINT, SERVICE = "AWS::CloudFormation::Stack", "AWS::SageMaker::Endpoint", "AWS::ECS::Service"
STARTS = frozenset({"CREATE_IN_PROGRESS", "UPDATE_IN_PROGRESS", "DELETE_IN_PROGRESS", "IMPORT_IN_PROGRESS"})
"""A stack's own status at the beginning of an operation."""
CANCELLED = re.compile(r"cancell?ed", re.IGNORECASE)
"""CloudFormation cancels the other resources of an operation when one fails."""
LATEST_EVENTS = 10
"""Latest messages of an ECS service that are searched."""


def explain_deployment(account: SageMakerAccount, name: str) -> Explanations:
    """Explains a stack, or an endpoint if there is no such stack. Raises `UsageError` for an unknown name."""
    try:
        stack = account.call("cloudformation", "describe_stacks", StackName=name)["Stacks"][0]
    except AwsRefused as error:
        if error.code != "ValidationError":  # a stack that does not exist has no code of its own
            raise
        return explain_endpoint(account, name)
    events = account.pages("cloudformation", "describe_stack_events", "StackEvents", StackName=stack["StackId"])
    resources = account.call("cloudformation", "describe_stack_resources", StackName=stack["StackId"])["StackResources"]
    failures = [_failed_resource(account, name, event, resources) for event in failed_events(events)]
    if not failures:
        failures = [*_failing_now(account, name, resources)]
    explanations = tuple(map(explain, failures))
    return Explanations(name=f"stack {name}", status=stack["StackStatus"], explanations=explanations)


def failed_events(events: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Returns the failures of the latest operation, in order, from a stack's events, newest first."""

    def is_stack(event: Mapping[str, Any]) -> bool:
        return bool(event["ResourceType"] == STACK and event.get("PhysicalResourceId") == event["StackId"])

    latest = takewhile(lambda event: not (is_stack(event) and event["ResourceStatus"] in STARTS), events)
    failed = [event for event in latest if event["ResourceStatus"].endswith("_FAILED")][::-1]
    own = [event for event in failed if not is_stack(event)]
    return [event for event in own if not CANCELLED.search(event.get("ResourceStatusReason", ""))] or failed


def _failed_resource(
    account: SageMakerAccount, stack: str, event: Mapping[str, Any], resources: Sequence[Mapping[str, Any]]
) -> Failure:
    physical_id, log = event.get("PhysicalResourceId", ""), ContainerLog()
    reasons = [event.get("ResourceStatusReason", "")]
    if event["ResourceType"] == ENDPOINT and physical_id:
        endpoint = physical_id.rpartition("/")[2]
        failure = endpoint_failure(account, endpoint, described_endpoint(account, endpoint))
        reasons, log = [*reasons, *(each for each in failure.reasons if each not in reasons[0])], failure.log
    elif event["ResourceType"] == SERVICE and physical_id:
        groups = [each["PhysicalResourceId"] for each in resources if each["ResourceType"] == "AWS::Logs::LogGroup"]
        log = first_log(account, [(group, None) for group in groups], LOG_LINES)
        reasons += _service_reasons(account, physical_id)
    return Failure(
        subject=f"{event['LogicalResourceId']} ({event['ResourceType']}) of stack {stack}",
        status=event["ResourceStatus"],
        reasons=tuple(filter(None, reasons)),
        log=log,
        read_on=log_command(account, log, f"cloudformation describe-stack-events --stack-name {stack}"),
    )


def _failing_now(account: SageMakerAccount, stack: str, resources: Sequence[Mapping[str, Any]]) -> Iterator[Failure]:
    """Yields failures behind a stack that has none itself: a failed endpoint, a service without its tasks."""
    for resource in resources:
        physical_id = resource.get("PhysicalResourceId", "")
        if resource["ResourceType"] == ENDPOINT and physical_id:
            name = physical_id.rpartition("/")[2]
            failure = endpoint_failure(account, name, described_endpoint(account, name))
            if has_failed(failure):
                yield failure
        elif resource["ResourceType"] == SERVICE and physical_id and _lacks_tasks(account, physical_id):
            # CloudFormation's own status and reason are those of a resource in progress.
            event = {**resource, "ResourceStatus": "tasks stop or are not placed", "ResourceStatusReason": ""}
            yield _failed_resource(account, stack, event, resources)


def _services(account: SageMakerAccount, arn: str) -> list[dict[str, Any]]:
    described = account.call("ecs", "describe_services", cluster=arn.split("/")[1], services=[arn])
    return list(described["services"])


def _lacks_tasks(account: SageMakerAccount, arn: str) -> bool:
    return any(
        service["runningCount"] < service["desiredCount"]
        or any(deployment.get("failedTasks") for deployment in service["deployments"])
        for service in _services(account, arn)
    )


def _service_reasons(account: SageMakerAccount, arn: str) -> tuple[str, ...]:
    """Returns an ECS service's latest messages and why its tasks stopped, as far as they outlive a rollback."""
    reasons: list[str] = []
    try:
        for service in _services(account, arn):
            reasons += [event["message"] for event in service.get("events", [])[:LATEST_EVENTS]]
        cluster = arn.split("/")[1]
        request = {"cluster": cluster, "serviceName": arn, "desiredStatus": "STOPPED"}
        if stopped := account.call("ecs", "list_tasks", **request)["taskArns"]:
            tasks = account.call("ecs", "describe_tasks", cluster=cluster, tasks=stopped)["tasks"]
            reasons += [line for task in tasks for line in _why_stopped(task)]
    except AwsRefused as error:
        reasons.append(str(error))
    return tuple(dict.fromkeys(reasons))


def _why_stopped(task: Mapping[str, Any]) -> list[str]:
    lines = [task["stoppedReason"]] if task.get("stoppedReason") else []
    for container in task.get("containers", []):
        if code := container.get("exitCode"):
            lines.append(f"Container {container['name']} ended with exit code {code}.")
        if reason := container.get("reason"):
            lines.append(f"Container {container['name']}: {reason}")
    return lines
