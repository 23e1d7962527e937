"""The VPC of an endpoint's instances: an existing one, or a new one with VPC endpoints and no internet access."""

from collections.abc import Mapping, Sequence
from typing import Any

from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from constructs import Construct

from stacks.buckets_and_logs import log_group
from stacks.grants import acknowledge_resources, allow, arn_of
from workloads import EndpointNetwork, NewVpc

INTERFACES = {
    "EcrApi": ec2.InterfaceVpcEndpointAwsService.ECR,
    "EcrImages": ec2.InterfaceVpcEndpointAwsService.ECR_DOCKER,
    "Logs": ec2.InterfaceVpcEndpointAwsService.CLOUDWATCH_LOGS,
    "Metrics": ec2.InterfaceVpcEndpointAwsService.CLOUDWATCH_MONITORING,
    "Keys": ec2.InterfaceVpcEndpointAwsService.KMS,
}
CIDR = "10.0.0.0/16"


class EndpointVpc(Construct):
    """`subnet_ids` and `security_group_ids` for a model, and the `routes` that must exist before it."""

    def __init__(self, scope: Construct, id: str, *, network: EndpointNetwork) -> None:
        super().__init__(scope, id)
        self.routes: list[Construct] = []
        if isinstance(network, NewVpc):
            self.subnet_ids, self.security_group_ids = self._new(network)
        else:
            self.subnet_ids = list(network.subnet_ids)
            self.security_group_ids = list(network.security_group_ids)

    def grant_join(self, role: iam.Role) -> None:
        """Lets SageMaker, in the role's name, attach instances to the subnets."""
        subnets = [arn_of(self, "ec2", "subnet", subnet) for subnet in self.subnet_ids]
        groups = [arn_of(self, "ec2", "security-group", group) for group in self.security_group_ids]
        grant_interfaces(role, [*subnets, *groups])

    def _new(self, network: NewVpc) -> tuple[list[str], list[str]]:
        zones = {str(number): zone for number, zone in enumerate(network.zone_ids)}
        subnets = {n: {"availability_zone_id": zone, "cidr_block": f"10.0.{n}.0/24"} for n, zone in zones.items()}
        isolated = IsolatedVpc(self, CIDR, subnets)
        group = ec2.SecurityGroup(
            self,
            "Group",
            vpc=isolated.vpc,
            description="Instances of the endpoint and what they call.",
            allow_all_outbound=False,
        )
        group.add_ingress_rule(group, ec2.Port.tcp(443), "The VPC endpoints take calls from the instances.")
        # To any address: S3's gateway has S3's public addresses, and no other route leads out of the subnets.
        group.add_egress_rule(ec2.Peer.any_ipv4(), ec2.Port.tcp(443), "The instances call the services.")
        self.routes = [*isolated.routes, *isolated.reach_services("Storage", INTERFACES, group)]
        log_flow(self, isolated.vpc)
        return [subnet.ref for subnet in isolated.subnets], [group.security_group_id]


class IsolatedVpc:
    """A VPC below `scope` whose subnets have no route to the internet, and the associations of its route table.

    `subnets` has the properties of each `CfnSubnet`, its zone among them, by the end of its id.
    """

    def __init__(self, scope: Construct, cidr: str, subnets: Mapping[str, Mapping[str, Any]]) -> None:
        vpc = ec2.CfnVPC(scope, "Vpc", cidr_block=cidr, enable_dns_hostnames=True, enable_dns_support=True)
        table = ec2.CfnRouteTable(scope, "Routes", vpc_id=vpc.ref)
        # L1, because only it takes a zone's id; ec2.Vpc would look up zone names in AWS at synth.
        self.subnets = [ec2.CfnSubnet(scope, f"Subnet{end}", vpc_id=vpc.ref, **each) for end, each in subnets.items()]
        self.routes = [
            ec2.CfnSubnetRouteTableAssociation(scope, f"Route{end}", subnet_id=subnet.ref, route_table_id=table.ref)
            for end, subnet in zip(subnets, self.subnets, strict=True)
        ]
        self.vpc = ec2.Vpc.from_vpc_attributes(
            scope,
            "Placed",
            vpc_id=vpc.ref,
            vpc_cidr_block=cidr,
            availability_zones=[
                each.get("availability_zone_id") or each["availability_zone"] for each in subnets.values()
            ],
            isolated_subnet_ids=[subnet.ref for subnet in self.subnets],
            isolated_subnet_route_table_ids=[table.ref] * len(subnets),
        )

    def reach_services(
        self, storage: str, interfaces: Mapping[str, ec2.InterfaceVpcEndpointAwsService], group: ec2.SecurityGroup
    ) -> list[Construct]:
        """Adds VPC endpoints by their ids: `storage` for S3, and one for each other service."""
        isolated = ec2.SubnetSelection(subnet_type=ec2.SubnetType.PRIVATE_ISOLATED)
        return [
            self.vpc.add_gateway_endpoint(storage, service=ec2.GatewayVpcEndpointAwsService.S3, subnets=[isolated]),
            *(
                self.vpc.add_interface_endpoint(name, service=service, security_groups=[group], open=False)
                for name, service in interfaces.items()
            ),
        ]


def log_flow(scope: Construct, vpc: ec2.IVpc, traffic: ec2.FlowLogTrafficType | None = None) -> None:
    """Logs the connections of a network; by default all of them."""
    ec2.FlowLog(
        scope,
        "FlowLog",
        resource_type=ec2.FlowLogResourceType.from_vpc(vpc),
        destination=ec2.FlowLogDestination.to_cloud_watch_logs(log_group(scope, "Flow")),
        traffic_type=traffic,
    )


def grant_any_subnet(role: iam.Role, reason: str) -> None:
    """Lets a service attach its instances to subnets that are not known here."""
    destinations = [arn_of(role, "ec2", kind) for kind in ("subnet", "security-group")]
    grant_interfaces(role, destinations)
    acknowledge_resources(role, destinations, reason)


def grant_interfaces(role: iam.Role, destinations: Sequence[str]) -> None:
    """Lets a service attach its instances to `destinations`, ARNs of subnets and security groups."""
    interfaces = [arn_of(role, "ec2", "network-interface")]
    verbs = ["CreateNetworkInterface", "DeleteNetworkInterface"]
    permissions = [f"{verb}Permission" for verb in verbs]
    allow(role, [f"ec2:{action}" for action in (*verbs, *permissions)], [*interfaces, *destinations])
    acknowledge_resources(role, interfaces, "An interface has no id before it is created.")
    described = ["NetworkInterfaces", "Vpcs", "DhcpOptions", "Subnets", "SecurityGroups"]
    allow(role, [f"ec2:Describe{noun}" for noun in described], ["*"], "EC2's Describe actions are on no resource.")
