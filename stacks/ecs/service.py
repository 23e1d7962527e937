"""A model on EC2 instances with Inferentia chips: an ECS service behind a network load balancer inside the VPC.

Each instance has one task. Other VPCs call the service through an endpoint service (AWS PrivateLink), or from
`caller_cidrs` if they are connected. On Inferentia the server is containers/neuron (HTTP); on CPU it is Triton (HTTP
and gRPC).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from aws_cdk import Duration
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_ecs as ecs
from aws_cdk import aws_elasticloadbalancingv2 as elb
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_route53 as route53
from aws_cdk import aws_route53_targets as targets
from constructs import Construct

from stacks.context import Options
from stacks.deployment import problems_of_size, sized
from stacks.ecs.fleet import EcsFleet, machine
from stacks.ecs.metrics import ServiceMetrics
from stacks.ecs.scaling import EcsScaling
from stacks.ecs.task import EcsTask
from stacks.ecs.watch import EcsServiceWatch
from stacks.grants import acknowledge
from stacks.model_archive import ModelArchive
from stacks.own_image import EcrImage
from stacks.workload_stack import refuse_arguments
from workloads import LatencyObjective, Recommendation, Sizing
from workloads.hosting import Tls

DEFAULTS = Sizing()
TASKS_DURING_AN_UPDATE = 2
"""During an update each task has an old and a new version: see `_service`."""
MODEL_FOLDER = "/opt/ml/model"
SERVER = "server"
HEALTH = "/v2/health/ready"
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


class InferentiaService(ServiceMetrics, Construct):
    """An ECS service that serves one model, with autoscaling, alarms, a topic for them and a dashboard.

    The recommendation decides instance type, autoscaling and variables of the server, which is Triton on CPU types.
    Callers use `url`, and `connections` admits their security groups. `paging.topic` publishes alarms.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        archive: ModelArchive,
        image: EcrImage,
        recommendation: Recommendation | None,
        objective: LatencyObjective,
        vpc: ec2.IVpc,
        vpc_subnets: ec2.SubnetSelection | None = None,
        instance_type: str | None = None,
        min_instances: int = 2,
        autoscaled: bool = True,
        safety_factor: float = DEFAULTS.safety_factor,
        environment: Mapping[str, str] | None = None,
        workload: str | None = None,
        caller_cidrs: Sequence[str] = (),
        allowed_principals: Sequence[str] = (),
        tls: Tls | None = None,
        dns_record: bool = True,
        kms_key: kms.IKey | None = None,
        alarm_topic: str | None = None,
        alarm_email: str | None = None,
    ) -> None:
        """Raises `UsageError` with a line for each problem.

        Without a recommendation the service has one `instance_type`, to be measured. `safety_factor` is the share of
        the CPU that autoscaling on CPU types tracks. Callers and tasks report metrics under `workload`, by default the
        recommendation's. `allowed_principals` may connect by AWS PrivateLink. `dns_record` makes the domain name of
        `tls` resolve in the VPC. `kms_key` encrypts logs and messages.
        """
        super().__init__(scope, id)
        refuse_arguments(self, problems_of_size(recommendation, instance_type, archive.sha256, autoscaled=autoscaled))
        fleet = sized(recommendation, instance_type, min_instances, autoscaled=autoscaled)
        runs_on = machine(self.node.path, fleet.instance_type)
        self.workload = workload or (recommendation.workload if recommendation else id)
        most = fleet.autoscaling.max_capacity if fleet.autoscaling else fleet.instance_count or 1
        self._fleet = EcsFleet(
            self, "Fleet", vpc=vpc, subnets=vpc_subnets, machine=runs_on, max_instances=TASKS_DURING_AN_UPDATE * most
        )
        self.cluster, self._archive, self._tls = self._fleet.cluster, archive, tls
        purpose, devices = "reads its model archive", runs_on.devices
        self._task = EcsTask(
            self, "Task", workload=self.workload, image=image, devices=devices, purpose=purpose, key=kms_key
        )
        self._server, self._serving = NEURON if devices else TRITON, Construct(self, "Serving")
        self._containers({**(environment or {}), **fleet.environment})
        ports = self._server.ports
        balancer_group = self._group("BalancerGroup", "Callers in the VPC reach the load balancer.")
        tasks = self._group("TaskGroup", "The load balancer reaches the tasks.")
        for protocol, port in ports.items():
            for cidr in dict.fromkeys((vpc.vpc_cidr_block, *caller_cidrs)):
                where = "inside the VPC" if cidr == vpc.vpc_cidr_block else cidr
                balancer_group.add_ingress_rule(ec2.Peer.ipv4(cidr), ec2.Port.tcp(port), f"{protocol} from {where}")
            tasks.add_ingress_rule(balancer_group, ec2.Port.tcp(port), f"{protocol} from the load balancer")
        self.connections = ec2.Connections(security_groups=[balancer_group], default_port=ec2.Port.tcp(ports["http"]))
        self.balancer = elb.NetworkLoadBalancer(
            self._serving,
            "Balancer",
            vpc=vpc,
            vpc_subnets=vpc_subnets,
            internet_facing=False,
            # Zones have different numbers of tasks, and every task should get the same share.
            cross_zone_enabled=True,
            security_groups=[balancer_group],
            # Through PrivateLink come addresses of other VPCs; allowed_principals says who may connect.
            enforce_security_group_inbound_rules_on_private_link_traffic=False if allowed_principals else None,
        )
        reason = (
            "A network load balancer logs only TLS connections, not requests. The tasks report requests and errors."
        )
        acknowledge(self.balancer, "AwsSolutions-ELB2", reason)
        self.service = self._service(tasks)
        self.target_groups = {protocol: self._target_group(protocol, port) for protocol, port in ports.items()}
        self.endpoint_service = self._endpoint_service(allowed_principals)
        scheme, host = ("https", tls.domain_name) if tls else ("http", self.balancer.load_balancer_dns_name)
        self.url = f"{scheme}://{host}:{ports['http']}"
        if tls and dns_record:
            self._name(tls.domain_name)
        if fleet.autoscaling is not None:
            EcsScaling(
                self,
                "Scaling",
                service=self,
                cluster_name=self.cluster.cluster_name,
                autoscaling=fleet.autoscaling,
                by_invocations=bool(devices),
                safety_factor=safety_factor,
            )
        self.paging = EcsServiceWatch(
            self,
            "Watch",
            service=self,
            objective=objective,
            recommended=recommendation.recommended if recommendation else None,
            reports=bool(devices),
            own_key=kms_key is not None,
            options=Options(alarm_topic=alarm_topic, alarm_email=alarm_email),
        ).paging

    def _containers(self, environment: Mapping[str, str]) -> None:
        task, url = self._task, self._archive.url
        self._archive.grant_read(task.role)
        fetch = task.add_init_container("model", ["python3", "-m", "containers.batch.archive", url, MODEL_FOLDER])
        health = f"http://localhost:{self._server.ports['http']}{HEALTH}"
        server = task.add_container(
            SERVER,
            self._server.command,
            {**self._server.environment, **environment},
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
        return ec2.SecurityGroup(self._serving, id, vpc=self._fleet.vpc, description=description)

    def _service(self, tasks: ec2.SecurityGroup) -> ecs.Ec2Service:
        service = ecs.Ec2Service(
            self._serving,
            "Service",
            cluster=self._fleet.cluster,
            task_definition=self._task.definition,
            vpc_subnets=self._fleet.subnets,
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

    def _endpoint_service(self, allowed_principals: Sequence[str]) -> ec2.VpcEndpointService | None:
        if not allowed_principals:
            return None
        return ec2.VpcEndpointService(
            self._serving,
            "EndpointService",
            vpc_endpoint_service_load_balancers=[self.balancer],
            # Only the named principals can connect, so no person has to accept each connection.
            acceptance_required=False,
            allowed_principals=[iam.ArnPrincipal(arn) for arn in allowed_principals],
        )

    def _name(self, domain_name: str) -> None:
        """Makes the name resolve inside the VPC. The zone has only this name: the domain's others resolve as before."""
        zone = route53.PrivateHostedZone(self._serving, "Zone", vpc=self._fleet.vpc, zone_name=domain_name)
        target = route53.RecordTarget.from_alias(targets.LoadBalancerTarget(self.balancer))
        route53.ARecord(self._serving, "Name", zone=zone, target=target)

    def _target_group(self, protocol: str, port: int) -> elb.NetworkTargetGroup:
        tls = self._tls
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
