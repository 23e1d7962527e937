"""Every stack's template, as its snapshot has it, is created in the local account and deleted again.

The endpoints get a model that starts in a second on this CPU; the rest of each template is unchanged.
"""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.local_aws.cloudformation.test_local_stacks import Stacks, stacks  # noqa: F401  a fixture
from tests.local_aws.conftest import echo_archive
from workloads import ROOT

pytestmark = pytest.mark.integration

NETWORK = "SharedNetworkStack"
"""Its values are parameters of the stacks that use it."""
ASSETS = "cdk-hnb659fds-assets-123456789012-us-east-1"
ARCHIVE = f"s3://{ASSETS}/echo.tar.gz"
"""Beside the archives that the CDK uploads: the role of a model may read those of this bucket, and no other object."""
SNAPSHOTS = sorted((ROOT / "tests/stacks/snapshots").glob("*.template.json"))


def parameters() -> Iterator[Any]:
    """Yields the templates; those whose resource types all occur in the ones before are slow."""
    seen = set[str]()
    for snapshot in SNAPSHOTS:
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
    snapshot: Path,
    stacks: Stacks,  # noqa: F811
    client: Callable[[str], Any],
) -> None:
    client("s3").create_bucket(Bucket=ASSETS)
    client("s3").put_object(Bucket=ASSETS, Key="echo.tar.gz", Body=echo_archive())
    template = deployable(snapshot)
    name = snapshot.name.partition(".")[0]
    if f"/{NETWORK}/" in json.dumps(template["Parameters"]):
        network = stacks.create(NETWORK, deployable(snapshot.with_name(f"{NETWORK}.template.json")))
        assert network["StackStatus"] == "CREATE_COMPLETE", network["StackStatusReason"]
    stack = stacks.create(name, template)
    assert stack["StackStatus"] == "CREATE_COMPLETE", stack["StackStatusReason"]
    made = client("cloudformation").describe_stack_resources(StackName=name)["StackResources"]
    wanted = {logical_id for logical_id, each in template["Resources"].items() if each["Type"] != "AWS::CDK::Metadata"}
    assert {each["LogicalResourceId"] for each in made} == wanted
    assert stacks.delete(name) == {"StackStatus": "GONE"}, stacks.reasons(name)
