"""A workload on a SageMaker real-time endpoint: serving, scaling, alarms, and the role that measures it."""

from aws_cdk import CfnOutput, RemovalPolicy, Stack
from constructs import Construct

from stacks.budget import cost_tags
from stacks.endpoint.endpoint import RecommendedEndpoint
from stacks.endpoint.endpoint_plan import plan_endpoint
from stacks.endpoint.recommender_access import GeneratorAccess, RecommenderAccess
from stacks.endpoint.served_model import Served
from stacks.endpoint.serving_image import ServingImage, server_environment
from stacks.own_image import EcrImage
from stacks.workload_stack import BuiltArtifact, WorkloadStackProps, add_legacy_note, add_warnings, named_key, region_of
from workloads import ModelArtifact, SageMakerEndpointHosting


class SageMakerEndpointStack(Stack):
    """A SageMaker endpoint with scaling, alarms, a dashboard and the roles that measure it."""

    def __init__(
        self,
        scope: Construct,
        id: str,
        hosting: SageMakerEndpointHosting,
        props: WorkloadStackProps,
        shadow: BuiltArtifact | None = None,
    ) -> None:
        workload = props.folder.workload
        tags = dict(cost_tags(props.options.stage, workload.name))
        super().__init__(scope, id, env=props.environment, description=workload.description, tags=tags)
        self._props, self._hosting = props, hosting
        plan = plan_endpoint(props, hosting, region_of(self), shadow.artifact if shadow else None)
        add_warnings(self, plan.warnings)
        add_legacy_note(self, props.folder)
        archive = props.built.archive(self, "Archive")
        image = self._image("Image", hosting.image_uri, props.built.artifact, plan.instance_types)
        # In production the log of a deleted endpoint is kept. A failed first deployment leaves none behind.
        keep = RemovalPolicy.RETAIN_ON_UPDATE_OR_DELETE if props.options.in_production else RemovalPolicy.DESTROY
        endpoint = RecommendedEndpoint(
            self,
            "Default",  # Leaves no trace in the logical ids of its resources.
            archive=archive,
            image=image,
            recommendation=plan.deployment.recommendation,
            objective=workload.latency_objective,
            instance_type=plan.deployment.instance_type,
            min_instances=plan.deployment.min_instances,
            scaling=hosting.scaling if plan.deployment.autoscaled else None,
            environment={**server_environment(props.built.artifact), **props.built.artifact.environment},
            endpoint_name=self.stack_name,
            workload=workload.name,
            fallback_instance_types=hosting.fallback_instance_types,
            update=plan.update,
            shadow=self._shadow(shadow),
            network=hosting.network,
            kms_key=named_key(self, hosting.kms_key_arn),
            data_capture=hosting.data_capture,
            alarm_topic=props.options.alarm_topic,
            alarm_email=props.options.alarm_email,
            log_removal_policy=keep,
        )
        recommender = RecommenderAccess(
            self, "Recommender", workload=workload, endpoint=endpoint, archive=archive, image=image
        )
        generator = GeneratorAccess(self, "Generator", workload=workload, endpoint=endpoint)
        # inference_recommender finds these outputs by name.
        CfnOutput(self, "EndpointName", value=endpoint.endpoint_name)
        CfnOutput(self, "ModelName", value=endpoint.model_name)
        CfnOutput(self, "RecommenderRoleArn", value=recommender.role.role_arn)
        CfnOutput(self, "GeneratorRoleArn", value=generator.role.role_arn)
        CfnOutput(self, "HostedTarget", value=workload.hosting.target)
        CfnOutput(self, "PagingTopicArn", value=endpoint.paging.topic.topic_arn)

    def _shadow(self, built: BuiltArtifact | None) -> Served | None:
        shadow = self._hosting.shadow
        if built is None or shadow is None:
            return None
        return Served(
            archive=built.archive(self, "ShadowArchive"),
            image=self._image("ShadowImage", shadow.image_uri, built.artifact, (shadow.instance_type,)),
            environment={**server_environment(built.artifact), **built.artifact.environment},
            instance_types=(shadow.instance_type,),
            instance_count=shadow.instance_count,
            percent=shadow.percent,
        )

    def _image(self, id: str, uri: str | None, artifact: ModelArtifact, instance_types: tuple[str, ...]) -> EcrImage:
        return ServingImage(
            self,
            id,
            image_uri=uri,
            triton_version=self._hosting.triton_on(instance_types[0], uri),
            artifact=artifact,
            instance_types=instance_types,
            workload=self._props,
        ).image
