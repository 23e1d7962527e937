"""The network that all workloads on EC2 of a stage share: private subnets and VPC endpoints.

Stacks find it by SSM parameters: CloudFormation could not change an export that a stack imports.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from aws_cdk import Annotations, CfnOutput, Environment, Fn, Stack
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_ssm as ssm
from constructs import Construct

from stacks.ecs.zones import ORDINALS, SharedZones, is_zone_id
from stacks.endpoint.network import IsolatedVpc, log_flow
from workloads import EcsServiceHosting, ExistingNetwork, ScheduledBatchHosting, Workload
from workloads.hosting import ipv4_network

NAME = "SharedNetworkStack"
ZONE_BITS = 4
"""Bits of an address that number the zone. A /16 has a /20 for each of 16 zones."""
ENDPOINTS = {
    "Ecr": ec2.InterfaceVpcEndpointAwsService.ECR,
    "EcrDocker": ec2.InterfaceVpcEndpointAwsService.ECR_DOCKER,
    "Logs": ec2.InterfaceVpcEndpointAwsService.CLOUDWATCH_LOGS,
    "Ecs": ec2.InterfaceVpcEndpointAwsService.ECS,
    "EcsAgent": ec2.InterfaceVpcEndpointAwsService.ECS_AGENT,
    "EcsTelemetry": ec2.InterfaceVpcEndpointAwsService.ECS_TELEMETRY,
}
MEASURING = {"CodeBuild": ec2.InterfaceVpcEndpointAwsService.CODEBUILD}
"""For builds in the VPC, beside S3 and CloudWatch Logs.

https://docs.aws.amazon.com/codebuild/latest/userguide/use-vpc-endpoints-with-codebuild.html
"""


class SharedNetworkStack(Stack):
    """Has the output VpcId. `zones` tells which subnets are whose, and the `…_parameter`s where their ids are.

    `measured` lets CodeBuild run in it, for a stage in which services are measured.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        zones: SharedZones,
        cidr: str,
        measured: bool,
        tags: Mapping[str, str] | None = None,
        environment: Environment | None = None,
    ) -> None:
        about = "The network of all workloads on EC2."
        super().__init__(scope, id, env=environment, description=about, tags=dict(tags or {}))
        self.zones, self.cidr = zones, cidr
        if caution := zones.caution():
            Annotations.of(self).add_warning_v2("network:zones", caution)
        isolated = IsolatedVpc(self, cidr, {f"-{zone}": self._subnet(zone) for zone in zones.all})
        self._parameter("VpcParameter", self.vpc_parameter, isolated.vpc.vpc_id)
        for zone, subnet in zip(zones.all, isolated.subnets, strict=True):
            self._parameter(f"Subnet-{zone}-Parameter", self.subnet_parameter(zone), subnet.ref)
        about = "Instances and tasks reach AWS services."
        group = ec2.SecurityGroup(self, "EndpointGroup", vpc=isolated.vpc, description=about)
        group.add_ingress_rule(ec2.Peer.ipv4(cidr), ec2.Port.HTTPS, "From inside the VPC")
        isolated.reach_services("S3", ENDPOINTS | (MEASURING if measured else {}), group)
        log_flow(self, isolated.vpc, ec2.FlowLogTrafficType.REJECT)
        CfnOutput(self, "VpcId", value=isolated.vpc.vpc_id)

    @property
    def vpc_parameter(self) -> str:
        return f"/{self.stack_name}/vpc"

    def subnet_parameter(self, zone: str) -> str:
        return f"/{self.stack_name}/subnet/{zone}"

    def _subnet(self, zone: str) -> dict[str, Any]:
        # A zone keeps its addresses when others come or go: a subnet would be replaced by one that overlaps it.
        cidr = str(list(ipv4_network(self.cidr).subnets(ZONE_BITS))[_number(zone)])
        name = Fn.select(ORDINALS.index(zone), Fn.get_azs()) if zone in ORDINALS else zone
        place = {"availability_zone_id": zone} if is_zone_id(zone) else {"availability_zone": name}
        return {**place, "cidr_block": cidr, "map_public_ip_on_launch": False}

    def _parameter(self, id: str, name: str, value: str) -> None:
        ssm.CfnParameter(self, id, name=name, type="String", value=value)


def _number(zone: str) -> int:
    """Returns a number from 0 to 15 that is the zone's own among those written in the same form."""
    if zone in ORDINALS:
        return ORDINALS.index(zone)
    return int(zone.rpartition("-az")[2]) if is_zone_id(zone) else ord(zone[-1]) - ord("a")


Shared = Callable[[], SharedNetworkStack]
"""Returns the network of the stage, which the first workload that asks for it brings about."""


class PrivateNetwork(Construct):
    """`vpc`, and the `subnets` to run in."""

    def __init__(self, scope: Construct, id: str, *, workload: Workload, shared: Shared) -> None:
        super().__init__(scope, id)
        hosting = workload.hosting
        assert isinstance(hosting, EcsServiceHosting | ScheduledBatchHosting)
        self.vpc = self._existing(hosting.vpc, hosting.availability_zones) or self._shared(workload, shared())
        self.subnets = ec2.SubnetSelection(subnets=[*self.vpc.private_subnets])

    def _shared(self, workload: Workload, network: SharedNetworkStack) -> ec2.IVpc:
        Stack.of(self).add_stack_dependency(network)
        subnets = {
            zone: self._read(f"Subnet-{zone}", network.subnet_parameter(zone)) for zone in network.zones.of(workload)
        }
        return self._import(self._read("VpcId", network.vpc_parameter), network.cidr, subnets)

    def _read(self, id: str, parameter: str) -> str:
        value: str = ssm.StringParameter.from_string_parameter_name(self, id, parameter).string_value
        return value

    def _existing(self, vpc: ExistingNetwork | None, named: Sequence[str]) -> ec2.IVpc | None:
        """Returns the VPC with its subnets in the named zones, or with all where no zone is named."""
        if vpc is None:
            return None
        subnets = dict(zip(vpc.availability_zones, vpc.subnet_ids, strict=True))
        chosen = {zone: subnet for zone, subnet in subnets.items() if zone in (named or subnets)}
        return self._import(vpc.id, vpc.cidr, chosen)

    def _import(self, vpc: str, cidr: str, subnets: Mapping[str, str]) -> ec2.IVpc:
        imported = ec2.Vpc.from_vpc_attributes(
            self,
            "Vpc",
            vpc_id=vpc,
            vpc_cidr_block=cidr,
            availability_zones=list(subnets),
            private_subnet_ids=list(subnets.values()),
        )
        reason = "Nothing here adds a route, so nothing reads the subnets' route tables."
        Annotations.of(imported).acknowledge_warning("@aws-cdk/aws-ec2:noSubnetRouteTableId", reason)
        return imported
