"""Private subnets without a route to the internet, and VPC endpoints for the AWS services that instances call.

An existing VPC is used as [hosting] describes it. Nothing is looked up, because synth calls no AWS.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from aws_cdk import Fn
from aws_cdk import aws_ec2 as ec2
from constructs import Construct

from stacks.grants import acknowledge_log
from workloads import ExistingNetwork

ZONES = 2
MOST_ZONES = 6
CIDR = "10.0.0.0/16"
ENDPOINTS = {
    "Ecr": ec2.InterfaceVpcEndpointAwsService.ECR,
    "EcrDocker": ec2.InterfaceVpcEndpointAwsService.ECR_DOCKER,
    "Logs": ec2.InterfaceVpcEndpointAwsService.CLOUDWATCH_LOGS,
    "Ecs": ec2.InterfaceVpcEndpointAwsService.ECS,
    "EcsAgent": ec2.InterfaceVpcEndpointAwsService.ECS_AGENT,
    "EcsTelemetry": ec2.InterfaceVpcEndpointAwsService.ECS_TELEMETRY,
}


@dataclass(frozen=True, kw_only=True, slots=True)
class PrivateNetworkProps:
    existing: ExistingNetwork | None


class PrivateNetwork(Construct):
    """`vpc`, the `subnets` to run in, and the `cidr` that callers are in."""

    def __init__(self, scope: Construct, id: str, props: PrivateNetworkProps) -> None:
        super().__init__(scope, id)
        existing = props.existing
        self.vpc = self._new() if existing is None else self._existing(existing)
        self.cidr = CIDR if existing is None else existing.cidr
        self.subnets = ec2.SubnetSelection(subnets=[*self.vpc.isolated_subnets, *self.vpc.private_subnets])

    def _new(self) -> ec2.Vpc:
        private = ec2.SubnetConfiguration(name="Private", subnet_type=ec2.SubnetType.PRIVATE_ISOLATED, cidr_mask=20)
        vpc = ec2.Vpc(
            self,
            "Vpc",
            ip_addresses=ec2.IpAddresses.cidr(CIDR),
            nat_gateways=0,
            subnet_configuration=[private],
            max_azs=MOST_ZONES,
        )
        flow = vpc.add_flow_log("FlowLog", traffic_type=ec2.FlowLogTrafficType.REJECT)
        assert flow.log_group is not None
        acknowledge_log(flow.log_group)
        vpc.add_gateway_endpoint("S3", service=ec2.GatewayVpcEndpointAwsService.S3)
        group = ec2.SecurityGroup(self, "EndpointGroup", vpc=vpc, description="Instances and tasks reach AWS services.")
        group.add_ingress_rule(ec2.Peer.ipv4(CIDR), ec2.Port.HTTPS, "From inside the VPC")
        for name, service in ENDPOINTS.items():
            vpc.add_interface_endpoint(name, service=service, open=False, security_groups=[group])
        return vpc

    def _existing(self, existing: ExistingNetwork) -> ec2.IVpc:
        return ec2.Vpc.from_vpc_attributes(
            self,
            "Vpc",
            vpc_id=existing.id,
            vpc_cidr_block=existing.cidr,
            availability_zones=list(existing.availability_zones),
            private_subnet_ids=list(existing.subnet_ids),
        )


def zones(named: Sequence[str]) -> list[str]:
    """Returns the named zones, or the first two of whichever region is deployed to."""
    return list(named) or [Fn.select(number, Fn.get_azs()) for number in range(ZONES)]
