"""An ECS task: roles, log and containers. The main container gets the instance's Neuron devices."""

from collections.abc import Mapping, Sequence
from typing import Any

from aws_cdk import Annotations, Aws, Duration
from aws_cdk import aws_ecs as ecs
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from constructs import Construct

from stacks.buckets_and_logs import log_group
from stacks.grants import acknowledge
from stacks.own_image import EcrImage

LEAST_MEMORY_MIB = 512
"""Reserved memory. There is no limit, because a task has its instance to itself."""
OPEN_FILES = 65_536
"""Each connection needs one; Docker's own limit is 1,024."""
SHARED_MEMORY_MIB = 1024
"""Triton hands tensors to its Python backend through shared memory; Docker's own limit is 64 MiB."""
REGION = {"AWS_DEFAULT_REGION": Aws.REGION}
"""ECS tells a container its region under a name that boto3 does not look at."""
STOP_TIMEOUT = Duration.seconds(60)
"""Time between SIGTERM and SIGKILL; the servers finish the requests they have within 20 to 30 s."""


class EcsTask(Construct):
    """`definition` to run, `role` to grant to, `log` to read."""

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        workload: str,
        image: EcrImage,
        devices: tuple[str, ...],
        purpose: str,
        key: kms.IKey | None = None,
    ) -> None:
        super().__init__(scope, id)
        self._workload, self._image, self._devices = workload, image, devices
        tasks = iam.ServicePrincipal("ecs-tasks.amazonaws.com")
        self.role = iam.Role(self, "Role", assumed_by=tasks, description=f"{workload}: {purpose}.")
        starts = f"Starts the containers of {workload}: pulls the image, writes the log."
        starter = iam.Role(self, "ExecutionRole", assumed_by=tasks, description=starts)
        image.grant_pull(starter)
        self.log = log_group(self, "Log", key=key)
        self.definition = ecs.Ec2TaskDefinition(
            self, "Task", network_mode=ecs.NetworkMode.AWS_VPC, task_role=self.role, execution_role=starter
        )
        acknowledge(
            self.definition, "AwsSolutions-ECS2", "What the environment says is configuration; no secret is in it."
        )

    def add_container(
        self,
        name: str,
        command: Sequence[str],
        environment: Mapping[str, str],
        cpu: int,
        health_check: ecs.HealthCheck | None = None,
    ) -> ecs.ContainerDefinition:
        """Adds the main container, with the devices of the chips and the variables by which it names its metrics."""
        named = {"METRICS_STACK": Aws.STACK_NAME, "METRICS_WORKLOAD": self._workload}
        return self._pulled(
            name,
            command,
            {**environment, **named, **REGION},
            cpu=cpu,
            linux_parameters=self._linux(name),
            ulimits=[ecs.Ulimit(name=ecs.UlimitName.NOFILE, soft_limit=OPEN_FILES, hard_limit=OPEN_FILES)],
            stop_timeout=STOP_TIMEOUT,
            health_check=health_check,
        )

    def add_init_container(self, name: str, command: Sequence[str]) -> ecs.ContainerDefinition:
        """Adds a container that ends before the others start. It runs as root, which owns the volume that it fills."""
        return self._pulled(name, command, REGION, essential=False, user="0")

    def _pulled(
        self, name: str, command: Sequence[str], environment: Mapping[str, str], **properties: Any
    ) -> ecs.ContainerDefinition:
        container = self.definition.add_container(
            name,
            image=ecs.ContainerImage.from_registry(self._image.uri),
            command=list(command),
            environment=dict(environment),
            memory_reservation_mib=LEAST_MEMORY_MIB,
            logging=ecs.LogDriver.aws_logs(stream_prefix=name, log_group=self.log),
            **properties,
        )
        granted = "The execution role has been granted the pull; CDK does not see it for an image named by its URI."
        Annotations.of(container).acknowledge_warning("@aws-cdk/aws-ecs:ecrImageRequiresPolicy", granted)
        return container

    def _linux(self, name: str) -> ecs.LinuxParameters:
        linux = ecs.LinuxParameters(
            self, f"{name.capitalize()}Linux", init_process_enabled=True, shared_memory_size=SHARED_MEMORY_MIB
        )
        if self._devices:
            linux.add_capabilities(ecs.Capability.IPC_LOCK)  # The Neuron runtime locks memory that chips read.
        for device in self._devices:
            readable = [ecs.DevicePermission.READ, ecs.DevicePermission.WRITE]
            linux.add_devices(ecs.Device(host_path=device, container_path=device, permissions=readable))
        return linux
