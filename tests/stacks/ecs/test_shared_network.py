"""The network that the workloads on EC2 share: one for all of a stage, in zones that have their instance types."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from aws_cdk import App, Environment, Stack, Stage
from aws_cdk.assertions import Template

from stacks.app import add_stacks
from stacks.context import DEFAULT_CIDR, PRODUCTION, Options
from stacks.ecs.shared_network import NAME, SharedNetworkStack
from stacks.ecs.zones import SharedZones
from tests.builders import message_of
from tests.stacks.miniature import Repository, Synthesis, make_ec2_repository, recommend_for_production, synthesis_of
from tests.stacks.templates import assert_is_snapshot, filled, lint_matches, make_app, nag_findings
from tests.stacks.test_templates import masked
from workloads import UsageError

VIRGINIA = Environment(account="123456789012", region="us-east-1")


def both(root: Path, target: str = "inf1") -> dict[str, Repository]:
    """A service and a batch on EC2 in one repository."""
    made = {name: make_ec2_repository(root, name, target) for name in ("query_intent", "duplicates")}
    recommend_for_production(made["query_intent"])
    return made


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> App:
    return both(tmp_path_factory.mktemp("both"))["duplicates"].app(options=PRODUCTION)


@pytest.fixture(scope="module")
def network(app: App) -> Synthesis:
    return synthesis_of(app, NAME)


def shared(
    made: Mapping[str, Repository], options: Options = PRODUCTION, region: str | None = "us-east-1"
) -> SharedZones:
    """Returns the zones alone, without the templates that have them."""
    found = {repository.workload_file: repository.folder.workload for repository in made.values()}
    return SharedZones(found, region, in_production=options.in_production)


def zones(app: App) -> list[Any]:
    subnets = synthesis_of(app, NAME).of_type("AWS::EC2::Subnet").values()
    found = [each["Properties"] for each in subnets]
    return [filled(each.get("AvailabilityZoneId") or each["AvailabilityZone"]) for each in found]


def test_all_workloads_share_one_vpc_and_its_endpoints(app: App) -> None:
    templates = [Template.from_stack(stack) for stack in app.node.children if isinstance(stack, Stack)]
    assert len(templates) == 3
    endpoints = [each for template in templates for each in template.find_resources("AWS::EC2::VPCEndpoint").values()]
    names = [filled(each["Properties"]["ServiceName"]).removeprefix("com.amazonaws.us-east-1.") for each in endpoints]
    assert sorted(names) == ["ecr.api", "ecr.dkr", "ecs", "ecs-agent", "ecs-telemetry", "logs", "s3"]
    assert sum(len(template.find_resources("AWS::EC2::VPC")) for template in templates) == 1


def test_the_network_has_no_route_to_the_internet(network: Synthesis) -> None:
    for kind in ("AWS::EC2::InternetGateway", "AWS::EC2::NatGateway", "AWS::EC2::Route"):
        assert not network.of_type(kind)
    for subnet in network.of_type("AWS::EC2::Subnet").values():
        assert subnet["Properties"]["MapPublicIpOnLaunch"] is False
    assert network.only("AWS::EC2::FlowLog")["TrafficType"] == "REJECT"
    group = network.only("AWS::EC2::SecurityGroup")
    assert [each["CidrIp"] for each in group["SecurityGroupIngress"]] == ["10.0.0.0/16"]


def test_a_stack_reads_parameters_that_the_network_writes_and_imports_no_export(app: App, network: Synthesis) -> None:
    """An export that is imported could not change as long as any workload is deployed."""
    written = {each["Properties"]["Name"] for each in network.of_type("AWS::SSM::Parameter").values()}
    assert written == {f"/{NAME}/vpc", f"/{NAME}/subnet/first", f"/{NAME}/subnet/second"}
    for name in ("QueryIntentStack", "DuplicatesStack"):
        synthesis = synthesis_of(app, name)
        assert {each for each in read(synthesis) if NAME in each} == written
        assert "ImportValue" not in str(synthesis.json)
        assert [stack.node.id for stack in synthesis.stack.dependencies] == [NAME]
    assert "Export" not in str(network.json["Outputs"])


def test_each_stage_of_a_release_has_a_network_of_its_own(tmp_path: Path) -> None:
    both(tmp_path)
    app = make_app(tmp_path / "cdk.out")
    for name, options in (("Beta", Options()), ("Production", PRODUCTION)):
        stage = Stage(app, name)
        add_stacks(stage, tmp_path, options=options)
        stack = stage.node.find_child(NAME)
        assert isinstance(stack, Stack)
        assert f"/{name}-{NAME}/vpc" in str(Template.from_stack(stack).to_json())


def test_zones_are_those_of_the_region_that_have_the_type(tmp_path: Path) -> None:
    """us-east-1's az3 has no Inf1, and az1 no Inf2."""
    made = both(tmp_path)
    assert shared(made).all == ["use1-az1", "use1-az2"]
    made["duplicates"].change_hosting(target="inf2")
    assert shared(made).all == ["use1-az2", "use1-az4"]


def test_beta_has_one_zone_unless_a_workload_names_a_number(tmp_path: Path) -> None:
    made = both(tmp_path)
    assert shared(made, Options()).all == ["use1-az1"]
    made["duplicates"].change_hosting(zone_count=1)
    app = made["duplicates"].app(VIRGINIA, PRODUCTION)
    assert zones(app) == ["use1-az1", "use1-az2"]
    subnets = {
        name: [each for each in read(synthesis_of(app, f"{name}Stack")) if "subnet" in each]
        for name in ("Duplicates", "QueryIntent")
    }
    assert [len(each) for each in subnets.values()] == [1, 2]


def read(synthesis: Synthesis) -> list[str]:
    return [str(each["Default"]) for each in synthesis.json["Parameters"].values()]


def test_a_workload_that_is_not_built_keeps_its_zones(tmp_path: Path) -> None:
    """Who has built the batch alone does not take the service's zone down."""
    made = both(tmp_path)
    made["duplicates"].change_hosting(zone_count=1)
    made["query_intent"].artifact_file("inf1").unlink()
    assert zones(made["duplicates"].app(VIRGINIA, PRODUCTION)) == ["use1-az1", "use1-az2"]


def test_without_a_region_the_first_zones_are_used_with_a_caution(tmp_path: Path) -> None:
    app = both(tmp_path)["duplicates"].app()
    assert zones(app) == ["us-east-1a"]
    assert synthesis_of(app, NAME).warnings() == [
        "The shared network has the first zone of whichever region is deployed to, and that they have inf1.6xlarge is "
        "not known. Synthesise with a region (AWS_REGION), or name hosting.availability_zones. [ack: network:zones]"
    ]


def test_cpu_types_and_known_regions_give_no_caution(tmp_path: Path) -> None:
    made = both(tmp_path, "cpu")
    made["duplicates"].instance_types("cpu", "c5.xlarge")
    assert shared(made, Options(), region=None).caution() is None
    assert shared(both(tmp_path / "inf1"), Options()).caution() is None


@pytest.mark.parametrize("named", [["us-east-1b", "us-east-1d"], ["use1-az4", "use1-az6"]])
def test_named_zones_apply_to_all_workloads(tmp_path: Path, named: list[str]) -> None:
    made = both(tmp_path)
    made["query_intent"].change_hosting(availability_zones=named)
    app = made["duplicates"].app(VIRGINIA, PRODUCTION)
    assert zones(app) == named
    for name in ("DuplicatesStack", "QueryIntentStack"):
        assert {each for each in read(synthesis_of(app, name)) if "subnet" in each} == {
            f"/{NAME}/subnet/{zone}" for zone in named
        }
    app.synth()
    assert "missing" not in json.loads((Path(app.outdir) / "manifest.json").read_text("utf-8"))


def test_a_zone_keeps_its_addresses_when_zones_are_added(tmp_path: Path) -> None:
    made = both(tmp_path)
    addresses = []
    for named in (["us-east-1d"], ["us-east-1b", "us-east-1d"]):
        made["query_intent"].change_hosting(availability_zones=named)
        app = make_app(tmp_path / "cdk.out")
        network = Synthesis(app, SharedNetworkStack(app, NAME, zones=shared(made), cidr=DEFAULT_CIDR, measured=False))
        subnets = [each["Properties"] for each in network.of_type("AWS::EC2::Subnet").values()]
        addresses.append({each["AvailabilityZone"]: each["CidrBlock"] for each in subnets})
    assert addresses[0]["us-east-1d"] == addresses[1]["us-east-1d"] == "10.0.48.0/20"
    assert addresses[1]["us-east-1b"] == "10.0.16.0/20"


def test_a_stages_network_may_have_other_addresses(tmp_path: Path) -> None:
    """Networks with the same addresses cannot be peered."""
    app = both(tmp_path)["duplicates"].app(VIRGINIA, replace(PRODUCTION, network_cidr="10.9.0.0/20"))
    network = synthesis_of(app, NAME)
    assert network.only("AWS::EC2::VPC")["CidrBlock"] == "10.9.0.0/20"
    subnets = [each["Properties"]["CidrBlock"] for each in network.of_type("AWS::EC2::Subnet").values()]
    assert subnets == ["10.9.1.0/24", "10.9.2.0/24"]
    for synthesis in (network, synthesis_of(app, "QueryIntentStack")):
        groups = [each["Properties"] for each in synthesis.of_type("AWS::EC2::SecurityGroup").values()]
        admitted = {rule["CidrIp"] for group in groups for rule in group.get("SecurityGroupIngress", ())}
        assert admitted == {"10.9.0.0/20"}


def test_addresses_of_a_network_without_workloads_are_refused(tmp_path: Path) -> None:
    repository = make_ec2_repository(tmp_path, "query_intent")
    repository.change_hosting(
        vpc={"id": "vpc-0a", "cidr": "172.16.0.0/16", "subnet_ids": ["subnet-1"], "availability_zones": ["us-east-1a"]}
    )
    assert message_of(UsageError, repository.app, VIRGINIA, Options(network_cidr="10.9.0.0/16")) == (
        "-c beta-network-cidr: got '10.9.0.0/16', but no workload is in the shared network. Leave the option out, or "
        "leave hosting.vpc out of a workload on EC2."
    )


def test_zone_names_and_ids_cannot_be_mixed(tmp_path: Path) -> None:
    made = both(tmp_path)
    made["query_intent"].change_hosting(availability_zones=["use1-az1"])
    made["duplicates"].change_hosting(availability_zones=["us-east-1b"])
    assert message_of(UsageError, made["duplicates"].app, VIRGINIA) == (
        f"{made['duplicates'].workload_file}: hosting.availability_zones: got the name 'us-east-1b', and "
        f"{made['query_intent'].workload_file} the id 'use1-az1'. Workloads on EC2 share a network: write all of their "
        "zones as names, or all as ids."
    )


def test_the_template_is_the_one_last_reviewed(network: Synthesis) -> None:
    assert_is_snapshot(NAME, masked(network.json))


@pytest.mark.slow
def test_cdk_nag_and_cfn_lint_have_no_findings(app: App, network: Synthesis) -> None:
    assert nag_findings(app) == []
    assert [str(match) for match in lint_matches(network.json, "us-east-1", "eu-west-1")] == []
