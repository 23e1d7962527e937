"""Templates of AWS Solutions Constructs run against the account: deployed, or refused before anything is made.

others/ has templates with the resource types, properties and references of the synthesised ones in
https://github.com/awslabs/aws-solutions-constructs/tree/33c062fd06edcd28fbf0a135f5f0af9f27c41b9c, below
source/patterns/@aws-solutions-constructs/CONSTRUCT/test.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.local_aws.cloudformation.test_local_stacks import Stacks
from tests.local_aws.cloudformation.test_local_stacks import stacks as stacks
from tests.local_aws.conftest import BUCKET, IMAGE, wait_until

pytestmark = [pytest.mark.slow, pytest.mark.integration]

OTHERS = Path(__file__).parent / "others"
OWN_IMAGE = "123456789012.dkr.ecr.us-east-1.amazonaws.com/triton:1"
ECHO = f"s3://{BUCKET}/echo.tar.gz"
LACKS = "This local account has no resource type AWS::ApiGateway::"
NO_LAMBDA = "is made by a Lambda function, and this local account runs none: do without the custom resource."
Listing = tuple[str, str]


@dataclass(frozen=True, kw_only=True, slots=True)
class Construct:
    """A construct. Its template is that of integ.SNAPSHOT.js.snapshot."""

    name: str
    snapshot: str
    parameters: Mapping[str, str] = field(default_factory=dict)
    shown: Mapping[str, Listing] = field(default_factory=dict)
    """The service and the operation that list each of these resources."""
    refused: str = ""

    @property
    def template(self) -> str:
        return (OTHERS / f"{self.name.replace('-', '_')}.yaml").read_text()


SAGEMAKER = Construct(
    name="aws-lambda-sagemakerendpoint",
    snapshot="lamsag-deployFunction",
    parameters={"Image": OWN_IMAGE, "ModelData": ECHO},
    shown={
        "Model": ("sagemaker", "list_models"),
        "Config": ("sagemaker", "list_endpoint_configs"),
        "Endpoint": ("sagemaker", "list_endpoints"),
        "Key": ("kms", "list_keys"),
        "Function": ("lambda", "list_functions"),
        "ServingRole": ("iam", "list_roles"),
    },
)
CONSTRUCTS = [
    SAGEMAKER,
    Construct(
        name="aws-sns-sqs",
        snapshot="snssqs-no-arguments",
        shown={
            "Topic": ("sns", "list_topics"),
            "Queue": ("sqs", "list_queues"),
            "DeadLetters": ("sqs", "list_queues"),
            "QueueKey": ("kms", "list_keys"),
        },
    ),
    Construct(
        name="aws-eventbridge-stepfunctions",
        snapshot="evtstp-eventbridge-stepfunctions-no-argument",
        shown={
            "Rule": ("events", "list_rules"),
            "ExecutionFailed": ("cloudwatch", "describe_alarms"),
            "Log": ("logs", "describe_log_groups"),
            "Function": ("lambda", "list_functions"),
            "MachineRole": ("iam", "list_roles"),
        },
    ),
    Construct(
        name="aws-apigateway-sagemakerendpoint",
        snapshot="apisag-no-overwrite",
        refused=f"[Stage, UsagePlan, Validator, ApiAccount]. {LACKS}Account. {LACKS}RequestValidator. {LACKS}Stage. "
        f"{LACKS}UsagePlan.",
    ),
    Construct(
        name="aws-s3-sqs",
        snapshot="s3sqs-noArguments",
        refused=f"[Notifications, AutoDelete]. Custom::S3AutoDeleteObjects {NO_LAMBDA} Custom::S3BucketNotifications "
        f"{NO_LAMBDA}",
    ),
]


def given(parameters: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"ParameterKey": key, "ParameterValue": value} for key, value in parameters.items()]


def create(stacks: Stacks, name: str, template: str, parameters: Mapping[str, str]) -> dict[str, Any]:
    stacks.cloudformation.create_stack(StackName=name, TemplateBody=template, Parameters=given(parameters))
    return stacks.settle(name)


def execute(stacks: Stacks, name: str, template: str, parameters: Mapping[str, str]) -> dict[str, Any]:
    """Deploys as `cdk deploy` does: a change set of type CREATE, which is described and then executed."""
    about = {"StackName": name, "ChangeSetName": "cdk-deploy-change-set"}
    cloudformation = stacks.cloudformation
    cloudformation.create_change_set(
        **about, ChangeSetType="CREATE", TemplateBody=template, Parameters=given(parameters)
    )
    wait_until(lambda: cloudformation.describe_change_set(**about)["Status"] == "CREATE_COMPLETE", timeout_s=30.0)
    cloudformation.execute_change_set(**about)
    return stacks.settle(name)


def texts(node: Any) -> Iterator[str]:
    if isinstance(node, dict | list):
        for each in node.values() if isinstance(node, dict) else node:
            yield from texts(each)
    else:
        yield str(node)


@pytest.mark.parametrize("deploy", [create, execute])
@pytest.mark.parametrize("construct", CONSTRUCTS, ids=lambda construct: construct.name)
def test_a_construct_is_deployed_and_its_resources_are_shown_or_it_is_refused_before_anything_is_made(
    stacks: Stacks,
    client: Callable[[str], Any],
    construct: Construct,
    deploy: Callable[..., dict[str, Any]],
) -> None:
    stack = deploy(stacks, "construct", construct.template, construct.parameters)
    resources = stacks.cloudformation.describe_stack_resources(StackName="construct")["StackResources"]
    if construct.refused:
        assert stack["StackStatus"] == "ROLLBACK_COMPLETE"
        assert stack["StackStatusReason"] == f"The following resource(s) failed: {construct.refused}"
        events = stacks.cloudformation.describe_stack_events(StackName="construct")["StackEvents"]
        assert {each["LogicalResourceId"] for each in events} == {"construct"}, "only the stack has events"
        assert resources == []
        return
    assert stack["StackStatus"] == "CREATE_COMPLETE", stack.get("StackStatusReason")
    names = {each["LogicalResourceId"]: each["PhysicalResourceId"].rpartition("/")[2] for each in resources}
    for logical_id, (service, operation) in construct.shown.items():
        listed = {each.rpartition("/")[2] for each in texts(getattr(client(service), operation)())}
        assert names[logical_id] in listed, f"{logical_id} is not in {service} {operation}"


def test_a_constructs_endpoint_answers_and_its_role_cannot_pull_an_image_of_another_account(stacks: Stacks) -> None:
    """On AWS, too: https://github.com/awslabs/aws-solutions-constructs/issues/986"""
    create(stacks, "own", SAGEMAKER.template, SAGEMAKER.parameters)
    (endpoint,) = stacks.client("sagemaker").list_endpoints(NameContains="own-Endpoint")["Endpoints"]
    assert stacks.answer(endpoint["EndpointName"]) == "got x"
    stack = create(stacks, "another", SAGEMAKER.template, {**SAGEMAKER.parameters, "Image": IMAGE})
    assert stack["StackStatus"] == "ROLLBACK_COMPLETE"
    reason = f"does not have BatchCheckLayerAvailability permission for the image: '{IMAGE}'."
    assert stack["StackStatusReason"].endswith(reason)
