"""A workload as an ECS service on EC2 instances of its own: fleet, server, scaling, alarms."""

from collections.abc import Iterator

from aws_cdk import CfnOutput, Stack
from constructs import Construct

from stacks.budget import cost_tags
from stacks.deployment import Deployment, plan_deployment
from stacks.ecs.fleet import EcsFleet, machine
from stacks.ecs.measuring import MeasuringProject
from stacks.ecs.scaling import EcsScaling
from stacks.ecs.service import EcsService
from stacks.ecs.shared_network import PrivateNetwork, Shared
from stacks.ecs.task import EcsTask
from stacks.ecs.watch import EcsServiceWatch
from stacks.own_image import OwnImage
from stacks.workload_stack import WorkloadStackProps, add_legacy_note, add_warnings, named_key, refuse, region_of
from workloads import EcsServiceHosting, UsageError

TASKS_DURING_AN_UPDATE = 2
"""During an update each task has an old and a new version: see EcsService."""


class EcsServiceStack(Stack):
    """Has the outputs ServiceUrl, ClusterName, ServiceName, AlarmTopicArn and, for other VPCs, EndpointServiceName."""

    def __init__(
        self, scope: Construct, id: str, hosting: EcsServiceHosting, props: WorkloadStackProps, shared: Shared
    ) -> None:
        workload = props.folder.workload
        tags = dict(cost_tags(props.options.stage, workload.name))
        super().__init__(scope, id, env=props.environment, description=workload.description, tags=tags)
        region = region_of(self)
        deployment = plan_deployment(props, region)
        refuse(_problems_of_certificate(hosting, props, region))
        add_warnings(self, deployment.warnings)
        add_legacy_note(self, props.folder)
        named_in = props.folder.recommendation_file if deployment.recommended else props.folder.file
        runs_on = machine(named_in, deployment.instance_type)
        network = PrivateNetwork(self, "Network", workload=workload, shared=shared)
        most = deployment.most_instances * TASKS_DURING_AN_UPDATE
        fleet = EcsFleet(self, "Fleet", network=network, machine=runs_on, max_instances=most)
        service = self._service(hosting, props, fleet, deployment)
        if deployment.autoscaling is not None:
            EcsScaling(
                self,
                "Scaling",
                workload=workload.name,
                fleet=fleet,
                service=service,
                autoscaling=deployment.autoscaling,
                safety_factor=workload.sizing.safety_factor,
            )
        if props.options.recommendation == "ignore":
            MeasuringProject(self, "Measuring", network=network)
        watch = EcsServiceWatch(
            self,
            "Watch",
            workload=workload.name,
            service=service,
            objective=workload.latency_objective,
            recommended=deployment.recommended,
            reports=bool(runs_on.devices),
            own_key=hosting.kms_key_arn is not None,
            options=props.options,
        )
        CfnOutput(self, "ServiceUrl", value=service.url)
        CfnOutput(self, "ClusterName", value=fleet.cluster.cluster_name)
        CfnOutput(self, "ServiceName", value=service.service.service_name)
        CfnOutput(self, "AlarmTopicArn", value=watch.paging.topic.topic_arn)
        if service.endpoint_service is not None:
            CfnOutput(self, "EndpointServiceName", value=service.endpoint_service.vpc_endpoint_service_name)

    def _service(
        self, hosting: EcsServiceHosting, props: WorkloadStackProps, fleet: EcsFleet, deployment: Deployment
    ) -> EcsService:
        workload, artifact, runs_on = props.folder.workload, props.built.artifact, fleet.machine
        image = OwnImage(self, "Image", uri=hosting.image_uri, kind=runs_on.kind, workload=props)
        task = EcsTask(
            self,
            "Task",
            workload=workload.name,
            image=image,
            devices=runs_on.devices,
            purpose="reads its model archive",
            key=named_key(self, hosting.kms_key_arn),
        )
        return EcsService(
            self,
            "Serving",
            fleet=fleet,
            task=task,
            archive=props.built.archive(self, "Archive"),
            environment={**artifact.environment, **deployment.environment},
            hosting=hosting,
        )


def _problems_of_certificate(
    hosting: EcsServiceHosting, props: WorkloadStackProps, region: str | None
) -> Iterator[UsageError]:
    issued_in = hosting.tls.certificate_arn.split(":")[3] if hosting.tls else region
    if region not in (None, issued_in):
        yield UsageError(
            f"{props.folder.file}: hosting.tls.certificate_arn: is a certificate of {issued_in}, but the service is "
            f"deployed to {region}. A load balancer takes certificates of its own region: request one in {region}."
        )
