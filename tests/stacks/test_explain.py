"""`stacks explain` reads a stack's events, and the messages, stopped tasks and log of its ECS service."""

from collections.abc import Mapping
from typing import Any

import boto3
import pytest

from aws_api.errors import AwsRefused
from aws_api.explain import known_causes
from aws_api.sagemaker import SageMakerAccount
from stacks.explain import explain_deployment, failed_events

STACK_ID = "arn:aws:cloudformation:us-east-1:123456789012:stack/QueryIntentStack/1"
SERVICE_ARN = "arn:aws:ecs:us-east-1:123456789012:service/cluster/service"
KNOWN = {known.name: known for known in known_causes()}
PLACEMENT = "was unable to place a task because no container instance met all of its requirements."
CANCELLED = "Resource creation cancelled"


def event(status: str, reason: str = "", kind: str = "AWS::ECS::Service", physical_id: str = SERVICE_ARN) -> Any:
    names = {"StackId": STACK_ID, "LogicalResourceId": kind.rpartition("::")[2], "PhysicalResourceId": physical_id}
    return {**names, "ResourceType": kind, "ResourceStatus": status, "ResourceStatusReason": reason}


def of_stack(status: str) -> Any:
    return event(status, kind="AWS::CloudFormation::Stack", physical_id=STACK_ID)


class Account(SageMakerAccount):
    """An account with one stack; an exception as an answer is raised."""

    def __init__(self, *events: Any, **answers: Any) -> None:
        super().__init__(boto3.Session("key", "secret", region_name="us-east-1"))
        self.events = events
        resource = event("CREATE_IN_PROGRESS", "Resource creation Initiated")
        log = {"ResourceType": "AWS::Logs::LogGroup", "PhysicalResourceId": "task-log", "LogicalResourceId": "Log"}
        self.answers: dict[str, Any] = {
            "describe_stacks": {"Stacks": [{"StackId": STACK_ID, "StackStatus": "ROLLBACK_COMPLETE"}]},
            "describe_stack_resources": {"StackResources": [resource, log]},
            "describe_services": {"services": [service()]},
            "list_tasks": {"taskArns": []},
            "describe_log_streams": {"logStreams": []},
            **answers,
        }

    def call(self, service: str, operation: str, **arguments: Any) -> dict[str, Any]:
        answer = self.answers[operation]
        if isinstance(answer, Exception):
            raise answer
        return dict(answer)

    def pages(self, service: str, operation: str, key: str, **arguments: Any) -> list[Any]:
        return [*self.events]


def service(running: int = 1, failed_tasks: int = 0, *messages: str) -> Mapping[str, Any]:
    events = [{"message": message} for message in messages]
    counts = {"runningCount": running, "desiredCount": 1}
    return {**counts, "deployments": [{"failedTasks": failed_tasks}], "events": events}


def test_only_the_first_failures_of_the_latest_operation_count() -> None:
    cause = event("UPDATE_FAILED", "quota")
    events = [
        of_stack("UPDATE_ROLLBACK_COMPLETE"),
        of_stack("UPDATE_ROLLBACK_IN_PROGRESS"),
        event("UPDATE_FAILED", CANCELLED, "AWS::SageMaker::Endpoint"),
        cause,
        of_stack("UPDATE_IN_PROGRESS"),
        event("CREATE_FAILED", "of the operation before"),
    ]
    assert failed_events(events) == [cause]
    assert failed_events([of_stack("UPDATE_COMPLETE"), of_stack("UPDATE_IN_PROGRESS"), *events]) == []


def test_a_rolled_back_service_is_explained_by_why_its_tasks_stopped() -> None:
    breaker = "Error occurred during operation 'ECS Deployment Circuit Breaker was triggered'."
    pull = "CannotPullContainerError: Error response from daemon: manifest for nginx:1 not found"
    task = {"stoppedReason": "Essential container in task exited", "containers": [{"name": "server", "reason": pull}]}
    account = Account(
        event("CREATE_FAILED", breaker),
        of_stack("CREATE_IN_PROGRESS"),
        list_tasks={"taskArns": ["arn"]},
        describe_tasks={"tasks": [task]},
    )
    (explanation,) = explain_deployment(account, "QueryIntentStack").explanations
    assert explanation.cause == KNOWN["image-not-found"].cause
    assert explanation.reasons == (breaker, "Essential container in task exited", f"Container server: {pull}")
    assert explanation.subject == "Service (AWS::ECS::Service) of stack QueryIntentStack"
    assert explanation.read_on == (
        "aws cloudformation describe-stack-events --stack-name QueryIntentStack --region us-east-1"
    )


def test_a_task_killed_for_memory_is_explained_by_its_exit_code_and_shows_its_log() -> None:
    task = {"containers": [{"name": "server", "exitCode": 137}]}
    account = Account(
        list_tasks={"taskArns": ["arn"]},
        describe_tasks={"tasks": [task]},
        describe_services={"services": [service(0, 3)]},
        describe_log_streams={"logStreams": [{"logStreamName": "server/1"}]},
        get_log_events={"events": [{"message": "loading"}]},
    )
    (explanation,) = explain_deployment(account, "QueryIntentStack").explanations
    assert (explanation.cause, explanation.line) == (
        KNOWN["memory"].cause,
        "Container server ended with exit code 137.",
    )
    assert explanation.read_on == "aws logs tail task-log --since 1d --region us-east-1"


@pytest.mark.parametrize(("running", "failed_tasks", "count"), [(1, 0, 0), (0, 0, 1), (1, 2, 1)])
def test_a_service_without_its_tasks_is_explained_while_its_stack_waits(
    running: int, failed_tasks: int, count: int
) -> None:
    waiting = {"Stacks": [{"StackId": STACK_ID, "StackStatus": "CREATE_IN_PROGRESS"}]}
    described = {"services": [service(running, failed_tasks, PLACEMENT)]}
    account = Account(of_stack("CREATE_IN_PROGRESS"), describe_stacks=waiting, describe_services=described)
    explanations = explain_deployment(account, "QueryIntentStack").explanations
    shown = [(each.cause, each.reasons, each.status) for each in explanations]
    assert shown == [(KNOWN["ecs-placement"].cause, (PLACEMENT,), "tasks stop or are not placed")] * count


def test_a_service_that_is_not_created_yet_is_no_failure() -> None:
    account = Account(describe_stack_resources={"StackResources": [event("CREATE_IN_PROGRESS", physical_id="")]})
    assert explain_deployment(account, "QueryIntentStack").explanations == ()


def test_a_cluster_that_is_gone_leaves_the_reason_of_the_event() -> None:
    gone = AwsRefused("DescribeServices", "ClusterNotFoundException", "Cluster not found.")
    account = Account(event("CREATE_FAILED", PLACEMENT), describe_services=gone)
    (explanation,) = explain_deployment(account, "QueryIntentStack").explanations
    assert explanation.reasons == (PLACEMENT, str(gone))
    assert explanation.cause == KNOWN["ecs-placement"].cause


def test_a_log_that_may_not_be_read_is_reported_with_the_services_message() -> None:
    denied = AwsRefused("DescribeLogStreams", "AccessDeniedException", "not authorized")
    account = Account(event("CREATE_FAILED", "The moon was full."), describe_log_streams=denied)
    (explanation,) = explain_deployment(account, "QueryIntentStack").explanations
    assert (explanation.cause, explanation.unread) == (None, str(denied))
    assert f"  not read {denied}\n" in explanation.text()
