"""Resources that the services' own APIs make, and every stack's template, created and deleted again.

The endpoints of the stacks get a model that starts in a second on this CPU.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from aws_api.service_model import input_shape
from local_aws.cloudformation.recorded import REASON, schema_of
from local_aws.cloudformation.service_api import as_request
from tests.builders import known
from tests.local_aws.cloudformation.test_local_stacks import template
from tests.local_aws.conftest import BUCKET, IMAGE, ROLE, Clients, Endpoints, Stacks, echo_archive, wait_until
from workloads import ROOT

pytestmark = pytest.mark.integration

CLUSTER = {
    "Type": "AWS::ECS::Cluster",
    "Properties": {"ClusterSettings": [{"Name": "containerInsights", "Value": "enabled"}]},
}
CONTAINER = {"Name": "server", "Image": "server:1", "MemoryReservation": 512, "Essential": True}


def service(**properties: Any) -> dict[str, Any]:
    """A cluster, a task definition and a service of it."""
    task = {
        "Type": "AWS::ECS::TaskDefinition",
        "Properties": {"ContainerDefinitions": [CONTAINER], "RequiresCompatibilities": ["EC2"]},
    }
    wanted = {"Cluster": {"Ref": "Cluster"}, "TaskDefinition": {"Ref": "Task"}, "DesiredCount": 2, **properties}
    return {
        "Resources": {"Service": {"Type": "AWS::ECS::Service", "Properties": wanted}, "Cluster": CLUSTER, "Task": task}
    }


def test_a_property_that_the_schema_does_not_know_is_refused_with_its_path(stacks: Stacks) -> None:
    body = service(DesiredCount="several", PlacementConstraint=[])
    stack = stacks.create("misspelt", body)
    assert stack["StackStatus"] == "ROLLBACK_COMPLETE"
    assert stack["StackStatusReason"] == (
        "The following resource(s) failed: [Service]. Properties validation failed: "
        "Properties.DesiredCount: 'several' is not of type 'integer'; "
        "Properties: Additional properties are not allowed ('PlacementConstraint' was unexpected)"
    )


def test_a_template_may_write_numbers_and_truths_as_text() -> None:
    schema = known(schema_of("AWS::ECS::Service"))
    assert schema.problems({"DesiredCount": "2", "EnableExecuteCommand": "true"}) == []
    assert as_request(input_shape("ecs", "CreateService"), {"DesiredCount": "2"}) == {"desiredCount": 2}


def test_a_property_without_a_place_in_the_request_is_refused() -> None:
    shape = input_shape("ecs", "DeleteCluster")
    sentence = "Properties.Force: DeleteClusterRequest has no such parameter. It has: cluster."
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}$"):
        as_request(shape, {"Cluster": "one", "Force": True})


def test_a_recorded_type_has_refs_and_attributes_and_reports_its_reason(stacks: Stacks, client: Clients) -> None:
    body = service()
    arn = {"Fn::GetAtt": ["Cluster", "Arn"]}
    group = {"Type": "AWS::EC2::SecurityGroup", "Properties": {"GroupDescription": "one"}}
    body["Resources"]["Group"] = group
    body["Outputs"] = {
        "Arn": {"Value": arn},
        "Cluster": {"Value": {"Ref": "Cluster"}},
        "Task": {"Value": {"Ref": "Task"}},
        "Same": {"Value": {"Fn::Join": ["=", [{"Ref": "Group"}, {"Fn::GetAtt": ["Group", "GroupId"]}]]}},
    }
    stack = stacks.create("recorded", body)
    assert stack["StackStatus"] == "CREATE_COMPLETE", stack["StackStatusReason"]
    outputs = {each["OutputKey"]: each["OutputValue"] for each in stack["Outputs"]}
    cluster = outputs["Cluster"]
    assert cluster.startswith("recorded-Cluster-")
    assert outputs["Arn"] == f"arn:aws:ecs:us-east-1:123456789012:cluster/{cluster}"
    assert outputs["Task"].startswith("arn:aws:ecs:us-east-1:123456789012:task-definition/recorded-Task-")
    assert len(set(outputs["Same"].split("="))) == 1
    made = client("cloudformation").describe_stack_resources(StackName="recorded")["StackResources"]
    assert {each["ResourceStatusReason"] for each in made} == {REASON}
    group["Properties"] = {"GroupDescription": "another"}
    changed = stacks.update("recorded", body)
    assert changed["StackStatus"] == "UPDATE_COMPLETE"
    assert {each["OutputValue"] for each in changed["Outputs"]} != set(outputs.values()), "the group was replaced"
    assert stacks.delete("recorded") == {"StackStatus": "GONE"}


def test_a_change_to_a_create_only_property_makes_a_new_resource_and_then_drops_the_old(
    stacks: Stacks, client: Clients
) -> None:
    def body(name: str) -> dict[str, Any]:
        return {"Resources": {"Topic": {"Type": "AWS::SNS::Topic", "Properties": {"TopicName": name}}}}

    def topics() -> set[str]:
        return {each["TopicArn"].rpartition(":")[2] for each in client("sns").list_topics()["Topics"]}

    for name, change in (("old", stacks.create), ("new", stacks.update)):
        assert change("renamed", body(name))["StackStatus"].endswith("E_COMPLETE")
        assert topics() == {name}
    assert stacks.delete("renamed") == {"StackStatus": "GONE"}
    assert topics() == set()


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        (
            "Custom::Thing",
            "Custom::Thing is made by a Lambda function, and this local account runs none: do without the custom "
            "resource.",
        ),
        ("AWS::Strange::Thing", "This local account has no resource type AWS::Strange::Thing."),
    ],
)
def test_a_type_that_cannot_be_made_fails_its_stack_before_anything_is_made(
    kind: str, reason: str, stacks: Stacks
) -> None:
    stack = stacks.create("strange", {"Resources": {"Topic": {"Type": "AWS::SNS::Topic"}, "Thing": {"Type": kind}}})
    events = stacks.cloudformation.describe_stack_events(StackName="strange")["StackEvents"]
    assert {each["ResourceType"] for each in events} == {"AWS::CloudFormation::Stack"}
    assert stack["StackStatus"] == "ROLLBACK_COMPLETE"
    assert stack["StackStatusReason"] == f"The following resource(s) failed: [Thing]. {reason}"


def test_an_endpoint_takes_the_first_type_of_its_pool_that_is_here(endpoints: Endpoints, sagemaker: Any) -> None:
    pools = [{"InstanceType": "ml.g5.xlarge", "Priority": 1}, {"InstanceType": "ml.c5.xlarge", "Priority": 2}]
    variant = {"VariantName": "AllTraffic", "ModelName": endpoints.model("pooled"), "InstancePools": pools}
    sagemaker.create_endpoint_config(
        EndpointConfigName="pooled", ProductionVariants=[{**variant, "InitialInstanceCount": 1}]
    )
    assert endpoints.settled(endpoints.create("pooled", config="pooled"))["EndpointStatus"] == "InService"


def test_a_configuration_tells_all_that_it_was_made_from(endpoints: Endpoints, sagemaker: Any) -> None:
    network = {"SecurityGroupIds": ["sg-1"], "Subnets": ["subnet-1"]}
    container = {"Image": IMAGE, "ModelDataUrl": f"s3://{BUCKET}/echo.tar.gz"}
    about = {"ModelName": "told", "ExecutionRoleArn": ROLE, "PrimaryContainer": container}
    sagemaker.create_model(**about, EnableNetworkIsolation=True, VpcConfig=network)
    told = sagemaker.describe_model(ModelName="told")
    assert (told["EnableNetworkIsolation"], told["VpcConfig"]) == (True, network)
    variant = {
        "VariantName": "AllTraffic",
        "ModelName": "told",
        "InstanceType": "ml.c5.xlarge",
        "InitialInstanceCount": 1,
        "RoutingConfig": {"RoutingStrategy": "LEAST_OUTSTANDING_REQUESTS"},
    }
    shadow = {**variant, "VariantName": "Shadow", "InitialVariantWeight": 0.5}
    sagemaker.create_endpoint_config(
        EndpointConfigName="told", ProductionVariants=[variant], ShadowProductionVariants=[shadow]
    )
    told = sagemaker.describe_endpoint_config(EndpointConfigName="told")
    assert told["ProductionVariants"] == [variant]
    assert told["ShadowProductionVariants"] == [shadow]


def test_a_composite_alarm_is_told_apart_from_those_that_it_is_made_of(stacks: Stacks, client: Clients) -> None:
    alarm = template()["Resources"]["Alarm"]
    del alarm["Properties"]["Dimensions"]
    body: dict[str, Any] = {"Resources": {"Alarm": alarm}}
    rule = {"Fn::Join": ["", ['ALARM("', {"Ref": "Alarm"}, '")']]}
    body["Resources"]["Page"] = {"Type": "AWS::CloudWatch::CompositeAlarm", "Properties": {"AlarmRule": rule}}
    assert stacks.create("whole-paging", body)["StackStatus"] == "CREATE_COMPLETE"
    told = client("cloudwatch").describe_alarms(AlarmTypes=["CompositeAlarm", "MetricAlarm"])
    (composite,), (metric,) = told["CompositeAlarms"], told["MetricAlarms"]
    assert composite["AlarmRule"] == f'ALARM("{metric["AlarmName"]}")'
    assert json.loads(json.dumps(composite["ActionsEnabled"])) is True
    wait_until(lambda: stacks.delete("whole-paging") == {"StackStatus": "GONE"})
    assert client("cloudwatch").describe_alarms()["CompositeAlarms"] == []


NETWORK = "SharedNetworkStack"
"""Its values are parameters of the stacks that use it."""
ASSETS = "cdk-hnb659fds-assets-123456789012-us-east-1"
ARCHIVE = f"s3://{ASSETS}/echo.tar.gz"
"""Beside the archives that the CDK uploads: the role of a model may read those of this bucket, and no other object."""
SNAPSHOTS = sorted((ROOT / "tests/stacks/snapshots").glob("*.template.json"))
OF_ANOTHER_STACK = {"RecommendedScalingExample": "spelling"}
"""The endpoints that templates expect to exist."""


SHARED = ROOT / "tests" / "stacks" / "snapshots" / "SharedEndpointExample.template.json"


def test_an_inference_component_is_refused_before_anything_is_created(stacks: Stacks) -> None:
    stack = stacks.create("shared", deployable(SHARED))
    assert stack["StackStatus"] == "ROLLBACK_COMPLETE"
    assert "This local account has no resource type AWS::SageMaker::InferenceComponent." in stack["StackStatusReason"]


def parameters() -> Iterator[Any]:
    """Yields the templates that the account runs; those whose resource types all occur in the ones before are slow."""
    seen = set[str]()
    for snapshot in SNAPSHOTS:
        if snapshot == SHARED:
            continue
        types = {resource["Type"] for resource in json.loads(snapshot.read_text("utf-8"))["Resources"].values()}
        name = snapshot.name.partition(".")[0]
        yield pytest.param(snapshot, id=name, marks=[pytest.mark.slow] if types <= seen else [])
        seen |= types


def deployable(snapshot: Path) -> dict[str, Any]:
    """Returns the template without what only the CDK CLI fills in, and for hardware that is here."""
    template: dict[str, Any] = _without_mappings(
        json.loads(snapshot.read_text("utf-8").replace("<sha256>.tar.gz", "echo.tar.gz"))
    )
    template.pop("Mappings", None)
    template.pop("Rules", None)
    template["Parameters"] = {
        name: parameter for name, parameter in template.get("Parameters", {}).items() if name != "BootstrapVersion"
    }
    for resource in template["Resources"].values():
        properties = resource.get("Properties", {})
        if resource["Type"] == "AWS::SageMaker::Model":
            container = properties["PrimaryContainer"]
            container["ModelDataUrl"] = ARCHIVE
            container["Environment"] = {}
            container.pop("ModelDataSource", None)
        if resource["Type"] == "AWS::SageMaker::EndpointConfig":
            for variant in properties["ProductionVariants"]:
                variant.pop("InstancePools", None)
                variant.pop("InferenceAmiVersion", None)
                variant["InstanceType"] = "ml.c5.xlarge"
    return template


def _without_mappings(node: Any) -> Any:
    """Replaces look-ups in the table of image registries, which snapshots leave out."""
    if isinstance(node, dict):
        return (
            "123456789012" if "Fn::FindInMap" in node else {key: _without_mappings(each) for key, each in node.items()}
        )
    return [_without_mappings(each) for each in node] if isinstance(node, list) else node


@pytest.mark.parametrize("snapshot", [*parameters()])
def test_every_template_is_made_and_unmade_whole(
    snapshot: Path, stacks: Stacks, endpoints: Endpoints, client: Clients
) -> None:
    client("s3").create_bucket(Bucket=ASSETS)
    client("s3").put_object(Bucket=ASSETS, Key="echo.tar.gz", Body=echo_archive())
    template = deployable(snapshot)
    name = snapshot.name.partition(".")[0]
    if f"/{NETWORK}/" in json.dumps(template["Parameters"]):
        network = stacks.create(NETWORK, deployable(snapshot.with_name(f"{NETWORK}.template.json")))
        assert network["StackStatus"] == "CREATE_COMPLETE", network["StackStatusReason"]
    if endpoint := OF_ANOTHER_STACK.get(name):
        endpoints.create(endpoint, config=endpoints.config(endpoint))
        assert endpoints.settled(endpoint)["EndpointStatus"] == "InService"
    stack = stacks.create(name, template)
    assert stack["StackStatus"] == "CREATE_COMPLETE", stack["StackStatusReason"]
    made = client("cloudformation").describe_stack_resources(StackName=name)["StackResources"]
    wanted = {logical_id for logical_id, each in template["Resources"].items() if each["Type"] != "AWS::CDK::Metadata"}
    assert {each["LogicalResourceId"] for each in made} == wanted
    assert stacks.delete(name) == {"StackStatus": "GONE"}, stacks.reasons(name)
