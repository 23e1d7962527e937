"""EC2 instances for ECS tasks: cluster, launch template, auto scaling group, capacity provider.

ECS does not schedule Neuron chips, so each task has an instance of its own: it reserves every vCPU.
"""

from dataclasses import dataclass
from pathlib import Path

from aws_cdk import Duration, Size, Tags
from aws_cdk import aws_autoscaling as autoscaling
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_ecs as ecs
from aws_cdk import aws_iam as iam
from constructs import Construct

from stacks.grants import acknowledge, acknowledge_actions, acknowledge_policy_to_checkov, acknowledge_resources
from workloads import UsageError
from workloads.instances import family, instance_shape

ROOT_VOLUME = Size.gibibytes(100)
"""AWS's PyTorch images for Neuron, unpacked beside their layers, take more than the AMI's own 30 GiB."""
UNITS_PER_VCPU = 1024
NO_INSTANCE_ROLE_FOR_TASKS = "echo ECS_AWSVPC_BLOCK_IMDS=true >> /etc/ecs/ecs.config"
INSTANCE_WARM_UP = Duration.minutes(5)
"""Mostly the time to pull an image. Until then ECS starts no other instance in its place."""


FAMILIES = ("inf1", "inf2", "c5", "c6i", "c7i", "m5", "m6i", "m7i")
"""The families that one of the project's images runs on."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Machine:
    """`kind` is inf1, inf2 or cpu; `devices` are the device files of the Neuron chips."""

    instance_type: str
    kind: str
    vcpus: int
    devices: tuple[str, ...]


def machine(place: Path | str, instance_type: str) -> Machine:
    """Raises `UsageError` for a type that is not known. `place` is the file or the construct that names the type."""
    shape = instance_shape(instance_type)
    if shape is None or instance_type.split(".")[0] not in FAMILIES:
        raise UsageError(
            f"{place}: {instance_type}: its vCPUs and chips are unknown. Use a size of {', '.join(FAMILIES)}, in EC2's "
            "notation (inf1.6xlarge)."
        )
    return Machine(
        instance_type=instance_type,
        kind=family(instance_type) if shape.neuron_chips else "cpu",
        vcpus=shape.vcpus,
        devices=tuple(f"/dev/neuron{number}" for number in range(shape.neuron_chips)),
    )


class EcsFleet(Construct):
    """`cluster`, `strategy` and `alone` (placement constraints) for a task, and the `cpu` units it has to reserve."""

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        vpc: ec2.IVpc,
        subnets: ec2.SubnetSelection | None,
        machine: Machine,
        max_instances: int,
    ) -> None:
        super().__init__(scope, id)
        self._max_instances, self.vpc, self.subnets, self.machine = max_instances, vpc, subnets, machine
        self.cpu = machine.vcpus * UNITS_PER_VCPU
        self.cluster = ecs.Cluster(self, "Cluster", vpc=vpc, container_insights_v2=ecs.ContainerInsights.ENABLED)
        self.group = self._group()
        self.provider = ecs.AsgCapacityProvider(
            self,
            "CapacityProvider",
            auto_scaling_group=self.group,
            instance_warmup_period=INSTANCE_WARM_UP.to_seconds(),
            enable_managed_draining=True,
            # It would outlive the provider and block the stack's deletion (aws/containers-roadmap#2862).
            enable_managed_termination_protection=False,
        )
        self.cluster.add_asg_capacity_provider(self.provider)
        reason = "What the agent of any instance may do in this cluster; CDK's wording. Its telemetry has no resource."
        acknowledge_resources(self.role, ["*"], reason)
        acknowledge_actions(self.role, ["ecs:Submit*"], reason)
        acknowledge_policy_to_checkov(self.role, reason)
        self.strategy = ecs.CapacityProviderStrategy(capacity_provider=self.provider.capacity_provider_name, weight=1)
        self.alone = [
            ecs.PlacementConstraint.distinct_instances(),
            ecs.PlacementConstraint.member_of(f"attribute:ecs.instance-type == {machine.instance_type}"),
        ]

    def _group(self) -> autoscaling.AutoScalingGroup:
        self.role = iam.Role(
            self,
            "InstanceRole",
            assumed_by=iam.ServicePrincipal("ec2.amazonaws.com"),
            description="Lets the ECS agent of an instance register it and report.",
        )
        group = autoscaling.AutoScalingGroup(
            self,
            "Instances",
            vpc=self.vpc,
            vpc_subnets=self.subnets,
            launch_template=self._launch_template(),
            min_capacity=0,
            max_capacity=self._max_instances,
        )
        reason = "Instances come and go with the tasks, every day; what matters of it has an alarm."
        acknowledge(group, "AwsSolutions-AS3", reason)
        return group

    def _launch_template(self) -> ec2.LaunchTemplate:
        closed = ec2.SecurityGroup(self, "InstanceGroup", vpc=self.vpc, description="Instances receive no requests.")
        user_data = ec2.UserData.for_linux()
        user_data.add_commands(NO_INSTANCE_ROLE_FOR_TASKS)
        kind = ecs.AmiHardwareType.NEURON if self.machine.devices else ecs.AmiHardwareType.STANDARD
        template = ec2.LaunchTemplate(
            self,
            "LaunchTemplate",
            machine_image=ecs.EcsOptimizedImage.amazon_linux2023(kind),
            instance_type=ec2.InstanceType(self.machine.instance_type),
            role=self.role,
            security_group=closed,
            user_data=user_data,
            require_imdsv2=True,
            http_put_response_hop_limit=1,
            detailed_monitoring=True,
            block_devices=[
                ec2.BlockDevice(
                    device_name="/dev/xvda",
                    volume=ec2.BlockDeviceVolume.ebs(
                        int(ROOT_VOLUME.to_gibibytes()), encrypted=True, volume_type=ec2.EbsDeviceVolumeType.GP3
                    ),
                )
            ],
        )
        # CDK names instances by the template's path. Like logical ids, the name leaves out ids "Default".
        Tags.of(template).add("Name", template.node.path.replace("/Default/", "/"))
        return template
