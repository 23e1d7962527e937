"""An ECS service behind a network load balancer inside the VPC: one task on each instance.

Other VPCs call it through an endpoint service (AWS PrivateLink), or from `caller_cidrs` if they are connected.
On Inferentia the server is containers/neuron (HTTP); on CPU it is Triton (HTTP and gRPC).
"""

from collections.abc import Mapping
from dataclasses import dataclass

from aws_cdk import Duration
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_ecs as ecs
from aws_cdk import aws_elasticloadbalancingv2 as elb
from aws_cdk import aws_iam as iam
from aws_cdk import aws_route53 as route53
from aws_cdk import aws_route53_targets as targets
from constructs import Construct

from stacks.ecs.fleet import EcsFleet
from stacks.ecs.task import EcsTask
from stacks.grants import acknowledge
from stacks.model_archive import ModelArchive
from workloads import EcsServiceHosting

MODEL_FOLDER = "/opt/ml/model"
SERVER = "server"
HEALTH = "/v2/health/ready"
MINUTE = Duration.minutes(1)
START_UP = Duration.minutes(10)
"""The longest that loading and warming up every graph on every core takes, after the image is pulled."""
DRAINING = Duration.seconds(60)
"""Time that callers have to close their kept-alive connections."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Server:
    """`ports` by protocol; the health check uses "http"."""

    command: tuple[str, ...]
    environment: Mapping[str, str]
    ports: Mapping[str, int]


NEURON = Server(command=("serve",), environment={"MODEL_FOLDER": MODEL_FOLDER, "PORT": "8080"}, ports={"http": 8080})
CLOSED = "model-repository,model-config,shared-memory,statistics,trace,logging"
"""APIs of Triton that are closed to callers. Inference, health and metadata stay open."""
TRITON = Server(
    command=(
        "sh",
        "-c",
        # The key is random and secret. If there were none, Triton would refuse its flags and not start.
        "key=$(cat /proc/sys/kernel/random/uuid); exec tritonserver"
        f" --model-repository={MODEL_FOLDER} --model-control-mode=none --http-port=8000 --grpc-port=8001"
        f" --allow-metrics=false --http-restricted-api={CLOSED}:key=$key --grpc-restricted-protocol={CLOSED}:key=$key",
    ),
    environment={},
    ports={"http": 8000, "grpc": 8001},
)


class EcsService(Construct):
    """`service`, `balancer`, `target_groups` by protocol, the `url` that callers use, and the `endpoint_service`."""

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        fleet: EcsFleet,
        task: EcsTask,
        archive: ModelArchive,
        environment: Mapping[str, str],
        hosting: EcsServiceHosting,
    ) -> None:
        super().__init__(scope, id)
        network, server = fleet.network, NEURON if fleet.machine.devices else TRITON
        self._task, self._archive, self._environment = task, archive, environment
        self._server, self._fleet, self._network, self._hosting = server, fleet, network, hosting
        self._containers()
        self.balancer_group = self._group("BalancerGroup", "Callers in the VPC reach the load balancer.")
        tasks = self._group("TaskGroup", "The load balancer reaches the tasks.")
        for protocol, port in server.ports.items():
            for cidr in dict.fromkeys((network.cidr, *hosting.caller_cidrs)):
                where = "inside the VPC" if cidr == network.cidr else cidr
                self.balancer_group.add_ingress_rule(
                    ec2.Peer.ipv4(cidr), ec2.Port.tcp(port), f"{protocol} from {where}"
                )
            tasks.add_ingress_rule(self.balancer_group, ec2.Port.tcp(port), f"{protocol} from the load balancer")
        self.balancer = elb.NetworkLoadBalancer(
            self,
            "Balancer",
            vpc=network.vpc,
            vpc_subnets=network.subnets,
            internet_facing=False,
            # Zones have different numbers of tasks, and every task should get the same share.
            cross_zone_enabled=True,
            security_groups=[self.balancer_group],
            # Through PrivateLink come addresses of other VPCs; allowed_principals says who may connect.
            enforce_security_group_inbound_rules_on_private_link_traffic=False if hosting.allowed_principals else None,
        )
        reason = (
            "A network load balancer logs only TLS connections, not requests. The tasks report requests and errors."
        )
        acknowledge(self.balancer, "AwsSolutions-ELB2", reason)
        self.service = self._service(tasks)
        self.target_groups = {protocol: self._target_group(protocol, port) for protocol, port in server.ports.items()}
        self.endpoint_service = self._endpoint_service()
        scheme, host = (
            ("https", hosting.tls.domain_name) if hosting.tls else ("http", self.balancer.load_balancer_dns_name)
        )
        self.url = f"{scheme}://{host}:{server.ports['http']}"
        if hosting.tls and hosting.vpc is None:
            self._name(hosting.tls.domain_name)

    def metric_healthy_tasks(self) -> cloudwatch.Metric:
        return self.target_groups["http"].metrics.healthy_host_count(period=MINUTE, statistic="Minimum")

    def metric_unhealthy_tasks(self) -> cloudwatch.Metric:
        return self.target_groups["http"].metrics.un_healthy_host_count(period=MINUTE, statistic="Maximum")

    def metric_resets(self) -> cloudwatch.Metric:
        """Connections that tasks reset, per minute."""
        return self.balancer.metrics.tcp_target_reset_count(period=MINUTE, statistic="Sum")

    def metric_cpu(self) -> cloudwatch.Metric:
        """Per cent of what the tasks reserve, which is all of their instances' vCPUs."""
        return self.service.metric_cpu_utilization(period=MINUTE)

    def metric_memory(self) -> cloudwatch.Metric:
        """Per cent of what the tasks reserve; often over 100, because they reserve little and have no limit."""
        return self.service.metric_memory_utilization(period=MINUTE)

    def _containers(self) -> None:
        task, url = self._task, self._archive.url
        self._archive.grant_read(task.role)
        fetch = task.add_init_container("model", ["python3", "-m", "containers.batch.archive", url, MODEL_FOLDER])
        health = f"http://localhost:{self._server.ports['http']}{HEALTH}"
        server = task.add_container(
            SERVER,
            self._server.command,
            {**self._server.environment, **self._environment},
            self._fleet.cpu,
            health_check=ecs.HealthCheck(
                command=["CMD-SHELL", f"curl --fail --silent {health} || exit 1"],
                # The maximum start period of 300 s and ten retries cover START_UP.
                interval=Duration.seconds(30),
                timeout=Duration.seconds(5),
                start_period=Duration.seconds(300),
                retries=10,
            ),
        )
        for protocol, port in self._server.ports.items():
            server.add_port_mappings(ecs.PortMapping(container_port=port, name=protocol))
        task.definition.add_volume(name="model")
        for container, read_only in ((fetch, False), (server, True)):
            container.add_mount_points(
                ecs.MountPoint(source_volume="model", container_path=MODEL_FOLDER, read_only=read_only)
            )
        server.add_container_dependencies(
            ecs.ContainerDependency(container=fetch, condition=ecs.ContainerDependencyCondition.SUCCESS)
        )

    def _group(self, id: str, description: str) -> ec2.SecurityGroup:
        return ec2.SecurityGroup(self, id, vpc=self._network.vpc, description=description)

    def _service(self, tasks: ec2.SecurityGroup) -> ecs.Ec2Service:
        service = ecs.Ec2Service(
            self,
            "Service",
            cluster=self._fleet.cluster,
            task_definition=self._task.definition,
            vpc_subnets=self._network.subnets,
            security_groups=[tasks],
            capacity_provider_strategies=[self._fleet.strategy],
            placement_constraints=self._fleet.alone,
            placement_strategies=[ecs.PlacementStrategy.spread_across(ecs.BuiltInAttributes.AVAILABILITY_ZONE)],
            # No desired count: an update would set an autoscaled service back to it.
            circuit_breaker=ecs.DeploymentCircuitBreaker(enable=True, rollback=True),
            # An update starts a second fleet; the old one serves until the new one is healthy.
            min_healthy_percent=100,
            max_healthy_percent=200,
            health_check_grace_period=START_UP,
        )
        # The service has to be deleted before its capacity provider, which cannot be deleted while it is in use.
        service.node.add_dependency(self._fleet.cluster)
        return service

    def _endpoint_service(self) -> ec2.VpcEndpointService | None:
        if not self._hosting.allowed_principals:
            return None
        return ec2.VpcEndpointService(
            self,
            "EndpointService",
            vpc_endpoint_service_load_balancers=[self.balancer],
            # Only the named principals can connect, so no person has to accept each connection.
            acceptance_required=False,
            allowed_principals=[iam.ArnPrincipal(arn) for arn in self._hosting.allowed_principals],
        )

    def _name(self, domain_name: str) -> None:
        """Makes the name resolve inside the VPC. The zone has only this name: the domain's others resolve as before."""
        zone = route53.PrivateHostedZone(self, "Zone", vpc=self._network.vpc, zone_name=domain_name)
        target = route53.RecordTarget.from_alias(targets.LoadBalancerTarget(self.balancer))
        route53.ARecord(self, "Name", zone=zone, target=target)

    def _target_group(self, protocol: str, port: int) -> elb.NetworkTargetGroup:
        tls = self._hosting.tls
        listener = self.balancer.add_listener(
            protocol.capitalize(),
            port=port,
            protocol=elb.Protocol.TLS if tls else elb.Protocol.TCP,
            certificates=[elb.ListenerCertificate.from_arn(tls.certificate_arn)] if tls else None,
            ssl_policy=elb.SslPolicy.RECOMMENDED_TLS if tls else None,
            # A gRPC client ends a connection on which ALPN did not choose HTTP/2.
            alpn_policy=elb.AlpnPolicy.HTTP2_ONLY if tls and protocol == "grpc" else None,
        )
        target_group = listener.add_targets(
            "Tasks",
            port=port,
            protocol=elb.Protocol.TCP,
            targets=[self.service.load_balancer_target(container_name=SERVER, container_port=port)],
            deregistration_delay=DRAINING,
            health_check=elb.HealthCheck(
                protocol=elb.Protocol.HTTP,
                port=str(self._server.ports["http"]),
                path=HEALTH,
                interval=Duration.seconds(10),
                timeout=Duration.seconds(5),
                healthy_threshold_count=2,
                unhealthy_threshold_count=3,
            ),
        )
        target_group.set_attribute("deregistration_delay.connection_termination.enabled", "true")
        return target_group
