"""The VPC of an endpoint's instances: an existing one, or a new one with VPC endpoints and no internet access."""

from collections.abc import Sequence

from aws_cdk import RemovalPolicy
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from aws_cdk import aws_logs as logs
from constructs import Construct

from stacks.grants import acknowledge_log, acknowledge_resources, allow, arn_of
from workloads import EndpointNetwork, NewVpc

INTERFACES = (
    ("EcrApi", ec2.InterfaceVpcEndpointAwsService.ECR),
    ("EcrImages", ec2.InterfaceVpcEndpointAwsService.ECR_DOCKER),
    ("Logs", ec2.InterfaceVpcEndpointAwsService.CLOUDWATCH_LOGS),
    ("Metrics", ec2.InterfaceVpcEndpointAwsService.CLOUDWATCH_MONITORING),
    ("Keys", ec2.InterfaceVpcEndpointAwsService.KMS),
)
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
        vpc = ec2.CfnVPC(self, "Vpc", cidr_block=CIDR, enable_dns_hostnames=True, enable_dns_support=True)
        table = ec2.CfnRouteTable(self, "Routes", vpc_id=vpc.ref)
        subnets = [self._subnet(network, vpc, table, number) for number in range(len(network.zone_ids))]
        placed = ec2.Vpc.from_vpc_attributes(
            self,
            "Placed",
            vpc_id=vpc.ref,
            vpc_cidr_block=CIDR,
            availability_zones=list(network.zone_ids),
            isolated_subnet_ids=[subnet.ref for subnet in subnets],
            isolated_subnet_route_table_ids=[table.ref] * len(subnets),
        )
        group = ec2.SecurityGroup(
            self,
            "Group",
            vpc=placed,
            description="Instances of the endpoint and what they call.",
            allow_all_outbound=False,
        )
        group.add_ingress_rule(group, ec2.Port.tcp(443), "The VPC endpoints take calls from the instances.")
        # To any address: S3's gateway has S3's public addresses, and no other route leads out of the subnets.
        group.add_egress_rule(ec2.Peer.any_ipv4(), ec2.Port.tcp(443), "The instances call the services.")
        self._reach_services(placed, group)
        log_flow(self, placed)
        return [subnet.ref for subnet in subnets], [group.security_group_id]

    def _subnet(self, network: NewVpc, vpc: ec2.CfnVPC, table: ec2.CfnRouteTable, number: int) -> ec2.CfnSubnet:
        # L1, because only it takes a zone's id; ec2.Vpc would look up zone names in AWS at synth.
        subnet = ec2.CfnSubnet(
            self,
            f"Subnet{number}",
            vpc_id=vpc.ref,
            availability_zone_id=network.zone_ids[number],
            cidr_block=f"10.0.{number}.0/24",
        )
        route = ec2.CfnSubnetRouteTableAssociation(
            self, f"Route{number}", subnet_id=subnet.ref, route_table_id=table.ref
        )
        self.routes.append(route)
        return subnet

    def _reach_services(self, vpc: ec2.IVpc, group: ec2.SecurityGroup) -> None:
        storage = vpc.add_gateway_endpoint(
            "Storage",
            service=ec2.GatewayVpcEndpointAwsService.S3,
            subnets=[ec2.SubnetSelection(subnet_type=ec2.SubnetType.PRIVATE_ISOLATED)],
        )
        interfaces = [
            vpc.add_interface_endpoint(name, service=service, security_groups=[group], open=False)
            for name, service in INTERFACES
        ]
        self.routes += [storage, *interfaces]


def log_flow(scope: Construct, vpc: ec2.IVpc, traffic: ec2.FlowLogTrafficType | None = None) -> None:
    """Logs the connections of a network; by default all of them."""
    group = logs.LogGroup(scope, "Flow", retention=logs.RetentionDays.ONE_MONTH, removal_policy=RemovalPolicy.DESTROY)
    acknowledge_log(group)
    ec2.FlowLog(
        scope,
        "FlowLog",
        resource_type=ec2.FlowLogResourceType.from_vpc(vpc),
        destination=ec2.FlowLogDestination.to_cloud_watch_logs(group),
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
