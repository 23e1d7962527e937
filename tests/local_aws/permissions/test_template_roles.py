"""Roles of what does not run here are held to what AWS documents that it needs: tasks, state machines, schedules.

Sources: https://docs.aws.amazon.com/step-functions/latest/dg/connect-ecs.html and connect-sagemaker.html (IAM policies
of .sync), https://docs.aws.amazon.com/AmazonECS/latest/developerguide/task_execution_IAM_role.html.
"""

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError

from containers.batch.s3 import CONFIG
from local_aws.permissions.actions import ApiCall
from local_aws.permissions.policy import Permission
from local_aws.process.local_account import LocalAccount
from tests.local_aws.permissions.template_roles import WHERE, Template, on, refused
from workloads import ROOT

SNAPSHOTS = sorted((ROOT / "tests/stacks/snapshots").glob("*.template.json"))
BATCH = ROOT / "tests/stacks/snapshots/DuplicatesStack.template.json"
ECS_RULE = "StepFunctionsGetEventsForECSTaskRule"
SAGEMAKER_RULE = "StepFunctionsGetEventsForSageMakerProcessingJobsRule"
ANY_TASK = f"arn:aws:ecs:{WHERE.region}:{WHERE.account_id}:task/cluster/uuid"
TASKS, STATES, EVENTS = "ecs-tasks.amazonaws.com", "states.amazonaws.com", "events.amazonaws.com"


def task_definitions() -> Iterator[Any]:
    for file in SNAPSHOTS:
        for name in Template(file).all_of("AWS::ECS::TaskDefinition"):
            yield pytest.param(Template(file), name, id=name)


def starts_a_task(definition: dict[str, Any]) -> list[Permission]:
    """Returns what ECS needs to start the containers of a task: images of ECR, and the log driver's streams."""
    asked = list[Permission]()
    for container in definition["ContainerDefinitions"]:
        registry, _, name = container["Image"].partition("/")
        if found := re.fullmatch(r"(\d+)\.dkr\.ecr\.([a-z0-9-]+)\.amazonaws\.com", registry):
            repository = f"arn:aws:ecr:{found[2]}:{found[1]}:repository/{re.split('[:@]', name)[0]}"
            pull = ("ecr:BatchCheckLayerAvailability", "ecr:GetDownloadUrlForLayer", "ecr:BatchGetImage")
            asked += [*on("*", "ecr:GetAuthorizationToken"), *on(repository, *pull)]
        log = container["LogConfiguration"]["Options"]
        group = f"arn:aws:logs:{WHERE.region}:{WHERE.account_id}:log-group:{log['awslogs-group']}"
        asked += on(
            f"{group}:log-stream:{log['awslogs-stream-prefix']}/x/y", "logs:CreateLogStream", "logs:PutLogEvents"
        )
    return asked


@pytest.mark.parametrize(("template", "name"), list(task_definitions()))
def test_an_execution_role_can_start_its_task(template: Template, name: str) -> None:
    definition = template.all_of("AWS::ECS::TaskDefinition")[name]
    starter = definition["ExecutionRoleArn"]
    assert template.trusts(starter, TASKS)
    assert template.trusts(definition["TaskRoleArn"], TASKS)
    assert refused(template.document(starter), [], starts_a_task(definition)) == []
    for action in ("ecr:BatchGetImage", "logs:PutLogEvents", "ecr:GetAuthorizationToken"):
        (*_, missing) = refused(template.document(starter, without=action), [], starts_a_task(definition))
        assert missing


def states_of(machine: dict[str, Any]) -> list[dict[str, Any]]:
    """Returns every task state of a definition, also those within maps."""

    def found(states: dict[str, Any]) -> Iterator[dict[str, Any]]:
        for state in states.values():
            if state["Type"] == "Task":
                yield state
            yield from found(state.get("ItemProcessor", {}).get("States", {}))

    return list(found(json.loads(machine["DefinitionString"])["States"]))


def runs(template: Template, state: dict[str, Any]) -> tuple[list[ApiCall], list[Permission]]:
    """Returns what one task state needs of the machine's role."""
    parameters = state["Parameters"]
    match state["Resource"].rpartition("states:::")[2]:
        case "aws-sdk:s3:listObjectsV2":
            return [ApiCall("s3", "ListObjectsV2", {"Bucket": parameters["Bucket"]})], []
        case "ecs:runTask.sync":
            family = parameters["TaskDefinition"]
            (task,) = (
                each for each in template.all_of("AWS::ECS::TaskDefinition").values() if each["Family"] == family
            )
            passed = (each for role in ("TaskRoleArn", "ExecutionRoleArn") for each in _passing(task[role], TASKS))
            run = ApiCall("ecs", "RunTask", {"taskDefinition": f"{family}:7", "cluster": parameters["Cluster"]})
            return [run, *_rule(ECS_RULE)], [*on(ANY_TASK, "ecs:StopTask", "ecs:DescribeTasks"), *passed]
        case "sagemaker:createProcessingJob.sync":
            named = {"ProcessingJobName": "job"}
            calls = [ApiCall("sagemaker", f"{verb}ProcessingJob", named) for verb in ("Create", "Describe", "Stop")]
            return [*calls, *_rule(SAGEMAKER_RULE)], _passing(parameters["RoleArn"], "sagemaker.amazonaws.com")
    raise AssertionError(f"what {state['Resource']} needs is not written down here")


def _rule(name: str) -> list[ApiCall]:
    """The rule of EventBridge by which Step Functions learns that a job has ended."""
    return [
        ApiCall("events", "PutRule", {"Name": name}),
        ApiCall("events", "PutTargets", {"Rule": name}),
        ApiCall("events", "DescribeRule", {"Name": name}),
    ]


def _passing(role: str, service: str) -> list[Permission]:
    return on(role, "iam:PassRole", iam__passedtoservice=service)


def machines() -> Iterator[Any]:
    for file in SNAPSHOTS:
        for name, machine in Template(file).all_of("AWS::StepFunctions::StateMachine").items():
            yield pytest.param(Template(file), machine, id=name)


@pytest.mark.parametrize(("template", "machine"), list(machines()))
def test_a_state_machines_role_can_do_what_its_definition_says(template: Template, machine: dict[str, Any]) -> None:
    role = machine["RoleArn"]
    delivery = on(
        "*",
        *(f"logs:{verb}LogDelivery" for verb in ("Create", "Get", "Update", "Delete")),
        *(
            "logs:ListLogDeliveries",
            "logs:PutResourcePolicy",
            "logs:DescribeResourcePolicies",
            "logs:DescribeLogGroups",
        ),
    )
    needs = [runs(template, state) for state in states_of(machine)]
    calls, more = [call for each, _ in needs for call in each], [each for _, asked in needs for each in asked]
    assert template.trusts(role, STATES)
    assert len(needs) == 3
    assert refused(template.document(role), calls, [*more, *delivery]) == []
    (missing, *_) = refused(template.document(role, without="iam:PassRole"), calls, more)
    assert missing.startswith("iam:PassRole on ")


def test_a_state_machine_may_hand_the_tasks_roles_to_ecs_alone() -> None:
    template = Template(BATCH)
    (machine,) = template.all_of("AWS::StepFunctions::StateMachine").values()
    document = template.document(machine["RoleArn"])
    for task in template.all_of("AWS::ECS::TaskDefinition").values():
        assert refused(document, [], _passing(task["TaskRoleArn"], TASKS)) == []
        assert refused(document, [], _passing(task["TaskRoleArn"], "lambda.amazonaws.com")) != []


@pytest.fixture
def under(account: LocalAccount) -> Iterator[Callable[[str], Any]]:
    """Returns a client of S3 with a session of a role that has a document for its policy."""
    iam, sts = (boto3.client(name, **account.client_arguments()) for name in ("iam", "sts"))
    trust = {"Effect": "Allow", "Principal": {"AWS": WHERE.account_id}, "Action": "sts:AssumeRole"}
    names = list[str]()

    def client(document: str) -> Any:
        names.append(f"task-{len(names)}")
        trusting = json.dumps({"Version": "2012-10-17", "Statement": [trust]})
        arn = iam.create_role(RoleName=names[-1], AssumeRolePolicyDocument=trusting)["Role"]["Arn"]
        iam.put_role_policy(RoleName=names[-1], PolicyName="template", PolicyDocument=document)
        given = sts.assume_role(RoleArn=arn, RoleSessionName="task")["Credentials"]
        arguments: Any = {
            **account.client_arguments(),
            "aws_access_key_id": given["AccessKeyId"],
            "aws_secret_access_key": given["SecretAccessKey"],
            "aws_session_token": given["SessionToken"],
        }
        return boto3.client("s3", config=CONFIG, **arguments)

    yield client
    for name in names:
        iam.delete_role_policy(RoleName=name, PolicyName="template")
        iam.delete_role(RoleName=name)


@pytest.mark.integration
def test_a_shard_reads_its_model_and_no_other_asset(under: Callable[[str], Any], client: Callable[[str], Any]) -> None:
    template = Template(BATCH)
    tasks = template.all_of("AWS::ECS::TaskDefinition")
    (task,) = (each for name, each in tasks.items() if name.startswith("ShardTask"))
    (url,) = re.findall(r"--model s3://(\S+)", task["ContainerDefinitions"][0]["Command"][2])
    bucket, _, key = url.partition("/")
    _make(client("s3"), bucket)
    for name in (key, "template.json"):
        client("s3").put_object(Bucket=bucket, Key=name, Body=b"asset")
    s3 = under(template.document(task["TaskRoleArn"]))
    assert s3.get_object(Bucket=bucket, Key=key)["Body"].read() == b"asset"
    with pytest.raises(ClientError, match="s3:GetObject"):
        s3.get_object(Bucket=bucket, Key="template.json")


def _make(s3: Any, bucket: str) -> None:
    if bucket not in [each["Name"] for each in s3.list_buckets()["Buckets"]]:
        s3.create_bucket(Bucket=bucket)
