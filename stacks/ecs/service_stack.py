"""A workload as an ECS service on EC2 instances of its own: fleet, server, scaling, alarms."""

from collections.abc import Iterator

from aws_cdk import CfnOutput, Stack
from constructs import Construct

from stacks.budget import cost_tags
from stacks.deployment import plan_deployment
from stacks.ecs.fleet import machine
from stacks.ecs.measuring import MeasuringProject
from stacks.ecs.service import InferentiaService
from stacks.ecs.shared_network import PrivateNetwork, Shared
from stacks.own_image import OwnImage
from stacks.workload_stack import WorkloadStackProps, add_legacy_note, add_warnings, named_key, refuse, region_of
from workloads import EcsServiceHosting, UsageError


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
        named_in = props.folder.recommendation_file if deployment.recommendation else props.folder.file
        kind = machine(named_in, deployment.instance_type).kind
        network = PrivateNetwork(self, "Network", workload=workload, shared=shared)
        service = InferentiaService(
            self,
            "Default",  # Leaves no trace in the logical ids of its resources.
            archive=props.built.archive(self, "Archive"),
            image=OwnImage(self, "Image", uri=hosting.image_uri, kind=kind, workload=props).image,
            recommendation=deployment.recommendation,
            objective=workload.latency_objective,
            vpc=network.vpc,
            vpc_subnets=network.subnets,
            instance_type=deployment.instance_type,
            min_instances=deployment.min_instances,
            autoscaled=deployment.autoscaled,
            safety_factor=workload.sizing.safety_factor,
            environment=props.built.artifact.environment,
            workload=workload.name,
            caller_cidrs=hosting.caller_cidrs,
            allowed_principals=hosting.allowed_principals,
            tls=hosting.tls,
            dns_record=hosting.vpc is None,
            kms_key=named_key(self, hosting.kms_key_arn),
            alarm_topic=props.options.alarm_topic,
            alarm_email=props.options.alarm_email,
        )
        if props.options.recommendation == "ignore":
            MeasuringProject(self, "Measuring", network=network)
        CfnOutput(self, "ServiceUrl", value=service.url)
        CfnOutput(self, "ClusterName", value=service.cluster.cluster_name)
        CfnOutput(self, "ServiceName", value=service.service.service_name)
        CfnOutput(self, "AlarmTopicArn", value=service.paging.topic.topic_arn)
        if service.endpoint_service is not None:
            CfnOutput(self, "EndpointServiceName", value=service.endpoint_service.vpc_endpoint_service_name)


def _problems_of_certificate(
    hosting: EcsServiceHosting, props: WorkloadStackProps, region: str | None
) -> Iterator[UsageError]:
    issued_in = hosting.tls.certificate_arn.split(":")[3] if hosting.tls else region
    if region not in (None, issued_in):
        yield UsageError(
            f"{props.folder.file}: hosting.tls.certificate_arn: is a certificate of {issued_in}, but the service is "
            f"deployed to {region}. A load balancer takes certificates of its own region: request one in {region}."
        )
