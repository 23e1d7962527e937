"""Templates of AWS Solutions Constructs run against the account: deployed, or refused before anything is made.

others/CONSTRUCT.yaml has the resource types, properties and references of a synthesised template in
https://github.com/awslabs/aws-solutions-constructs/tree/33c062fd06edcd28fbf0a135f5f0af9f27c41b9c. `Snapshot` in its
metadata is that template's folder below source/patterns/@aws-solutions-constructs/CONSTRUCT/test. `Shown` has the API
that lists each resource; `Refused` is the reason if the account cannot make the stack.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from local_aws.cloudformation.template import parse
from tests.local_aws.conftest import BUCKET, IMAGE, Clients, Stacks, wait_until

pytestmark = [pytest.mark.slow, pytest.mark.integration]

OTHERS = Path(__file__).parent / "others"
CONSTRUCTS = {file.stem: file.read_text() for file in sorted(OTHERS.glob("aws_*.yaml"))}
SAGEMAKER = CONSTRUCTS["aws_lambda_sagemakerendpoint"]
OWN_IMAGE = "123456789012.dkr.ecr.us-east-1.amazonaws.com/triton:1"


def create(stacks: Stacks, name: str, template: str, image: str = OWN_IMAGE) -> dict[str, Any]:
    stacks.cloudformation.create_stack(StackName=name, TemplateBody=template, Parameters=parameters(template, image))
    return stacks.settle(name)


def execute(stacks: Stacks, name: str, template: str) -> dict[str, Any]:
    """Deploys as `cdk deploy` does: a change set of type CREATE, which is described and then executed."""
    about = {"StackName": name, "ChangeSetName": "cdk-deploy-change-set"}
    change = {"ChangeSetType": "CREATE", "TemplateBody": template, "Parameters": parameters(template)}
    cloudformation = stacks.cloudformation
    cloudformation.create_change_set(**about, **change)
    wait_until(lambda: cloudformation.describe_change_set(**about)["Status"] == "CREATE_COMPLETE", timeout_s=30.0)
    cloudformation.execute_change_set(**about)
    return stacks.settle(name)


def parameters(template: str, image: str = OWN_IMAGE) -> list[dict[str, str]]:
    values = {"Image": image, "ModelData": f"s3://{BUCKET}/echo.tar.gz"}
    return [{"ParameterKey": key, "ParameterValue": values[key]} for key in parse(template).get("Parameters", {})]


def texts(node: Any) -> Iterator[str]:
    if isinstance(node, dict | list):
        for each in node.values() if isinstance(node, dict) else node:
            yield from texts(each)
    else:
        yield str(node)


@pytest.mark.parametrize("deploy", [create, execute])
@pytest.mark.parametrize("construct", CONSTRUCTS)
def test_a_construct_is_deployed_and_its_resources_are_shown_or_it_is_refused_before_anything_is_made(
    stacks: Stacks, client: Clients, construct: str, deploy: Callable[..., dict[str, Any]]
) -> None:
    template = CONSTRUCTS[construct]
    expected = parse(template)["Metadata"]
    stack = deploy(stacks, "construct", template)
    resources = stacks.cloudformation.describe_stack_resources(StackName="construct")["StackResources"]
    if "Refused" in expected:
        assert stack["StackStatus"] == "ROLLBACK_COMPLETE"
        assert stack["StackStatusReason"] == f"The following resource(s) failed: {expected['Refused']}"
        events = stacks.cloudformation.describe_stack_events(StackName="construct")["StackEvents"]
        assert {each["LogicalResourceId"] for each in events} == {"construct"}, "only the stack has events"
        assert resources == []
        return
    assert stack["StackStatus"] == "CREATE_COMPLETE", stack.get("StackStatusReason")
    names = {each["LogicalResourceId"]: each["PhysicalResourceId"].rpartition("/")[2] for each in resources}
    for logical_id, listing in expected["Shown"].items():
        service, operation = listing.split(".")
        listed = {each.rpartition("/")[2] for each in texts(getattr(client(service), operation)())}
        assert names[logical_id] in listed, f"{logical_id} is not in {service} {operation}"


def test_a_constructs_endpoint_answers_and_its_role_cannot_pull_an_image_of_another_account(stacks: Stacks) -> None:
    """On AWS, too: https://github.com/awslabs/aws-solutions-constructs/issues/986"""
    create(stacks, "own", SAGEMAKER)
    (endpoint,) = stacks.client("sagemaker").list_endpoints(NameContains="own-Endpoint")["Endpoints"]
    assert stacks.answer(endpoint["EndpointName"]) == "got x"
    stack = create(stacks, "another", SAGEMAKER, IMAGE)
    assert stack["StackStatus"] == "ROLLBACK_COMPLETE"
    reason = f"does not have BatchCheckLayerAvailability permission for the image: '{IMAGE}'."
    assert stack["StackStatusReason"].endswith(reason)
