"""The private subnets of a workload on EC2: those of the shared network, or of the VPC in [hosting]."""

from collections.abc import Callable

from aws_cdk import Annotations, Stack
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_ssm as ssm
from constructs import Construct

from stacks.ecs.shared_network import CIDR, SharedNetworkStack
from workloads import ExistingNetwork, Workload

Shared = Callable[[], SharedNetworkStack]
"""Returns the network of the stage, which the first workload that asks for it brings about."""


class PrivateNetwork(Construct):
    """`vpc`, the `subnets` to run in, and the `cidr` that callers are in."""

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        workload: Workload,
        existing: ExistingNetwork | None,
        shared: Shared,
    ) -> None:
        super().__init__(scope, id)
        self.vpc = self._existing(existing) if existing else self._shared(workload, shared())
        self.cidr = existing.cidr if existing else CIDR
        self.subnets = ec2.SubnetSelection(subnets=[*self.vpc.private_subnets])

    def _shared(self, workload: Workload, network: SharedNetworkStack) -> ec2.IVpc:
        Stack.of(self).add_stack_dependency(network)
        zones = network.zones.of(workload)
        subnets = [self._read(f"Subnet-{zone}", network.subnet_parameter(zone)) for zone in zones]
        return self._import(self._read("VpcId", network.vpc_parameter), CIDR, zones, subnets)

    def _read(self, id: str, parameter: str) -> str:
        value: str = ssm.StringParameter.from_string_parameter_name(self, id, parameter).string_value
        return value

    def _existing(self, existing: ExistingNetwork) -> ec2.IVpc:
        zones, subnets = list(existing.availability_zones), list(existing.subnet_ids)
        return self._import(existing.id, existing.cidr, zones, subnets)

    def _import(self, vpc: str, cidr: str, zones: list[str], subnets: list[str]) -> ec2.IVpc:
        imported = ec2.Vpc.from_vpc_attributes(
            self, "Vpc", vpc_id=vpc, vpc_cidr_block=cidr, availability_zones=zones, private_subnet_ids=subnets
        )
        reason = "Nothing here adds a route, so nothing reads the subnets' route tables."
        Annotations.of(imported).acknowledge_warning("@aws-cdk/aws-ec2:noSubnetRouteTableId", reason)
        return imported
