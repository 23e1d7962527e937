"""A workload on a SageMaker real-time endpoint: serving, scaling, alarms, and the role that measures it."""

from aws_cdk import CfnOutput, Stack
from constructs import Construct

from stacks.budget import cost_tags
from stacks.deployment import Deployment
from stacks.endpoint.alarms import EndpointAlarms
from stacks.endpoint.dashboard import EndpointDashboard
from stacks.endpoint.endpoint import WorkloadEndpoint
from stacks.endpoint.endpoint_plan import EndpointPlan, plan_endpoint
from stacks.endpoint.metrics import EndpointMetrics
from stacks.endpoint.recommender_access import GeneratorAccess, RecommenderAccess
from stacks.endpoint.scaling import EndpointScaling
from stacks.endpoint.served_model import Served
from stacks.endpoint.serving_image import ServingImage, runs_on_neuron
from stacks.paging import Paging
from stacks.workload_stack import BuiltArtifact, WorkloadStackProps, add_legacy_note, add_warnings, region_of
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
        deployment = plan.deployment
        add_warnings(self, plan.warnings)
        add_legacy_note(self, props.folder)
        metrics = EndpointMetrics(stack=self.stack_name, workload=workload.name)
        objective, recommended = workload.latency_objective, deployment.recommended
        alarms = EndpointAlarms(self, "Alarms", metrics=metrics, objective=objective, recommended=recommended)
        production = self._served(plan)
        endpoint = WorkloadEndpoint(
            self,
            "Serving",
            metrics=metrics,
            objective=objective,
            hosting=hosting,
            plan=plan,
            production=production,
            shadow=self._shadow(shadow),
            in_production=props.options.in_production,
        )
        if deployment.autoscaling is not None:
            EndpointScaling(
                self,
                "Scaling",
                endpoint_name=endpoint.endpoint_name,
                autoscaling=deployment.autoscaling,
                rules=hosting.scaling,
            )
        paging = self._watch(metrics, alarms, deployment)
        recommender = RecommenderAccess(
            self,
            "Recommender",
            workload=workload,
            endpoint=endpoint,
            archive=production.archive,
            image=production.image,
        )
        generator = GeneratorAccess(self, "Generator", workload=workload, endpoint=endpoint)
        # inference_recommender finds these outputs by name.
        CfnOutput(self, "EndpointName", value=endpoint.endpoint_name)
        CfnOutput(self, "ModelName", value=endpoint.model_name)
        CfnOutput(self, "RecommenderRoleArn", value=recommender.role.role_arn)
        CfnOutput(self, "GeneratorRoleArn", value=generator.role.role_arn)
        CfnOutput(self, "HostedTarget", value=props.folder.workload.hosting.target)
        CfnOutput(self, "PagingTopicArn", value=paging.topic.topic_arn)

    def _served(self, plan: EndpointPlan) -> Served:
        built, deployment = self._props.built, plan.deployment
        image = self._image("Image", self._hosting.image_uri, built.artifact, plan.instance_types)
        # The servers print metrics of their own as lines of their log.
        reporting = {"METRICS_WORKLOAD": self._props.folder.workload.name, "METRICS_STACK": self.stack_name}
        return Served(
            artifact=built.artifact,
            archive=built.archive(self, "Archive"),
            image=image,
            environment={**built.artifact.environment, **deployment.environment, **reporting},
            instance_types=plan.instance_types,
            instance_count=deployment.instance_count,
        )

    def _shadow(self, built: BuiltArtifact | None) -> Served | None:
        shadow = self._hosting.shadow
        if built is None or shadow is None:
            return None
        return Served(
            artifact=built.artifact,
            archive=built.archive(self, "ShadowArchive"),
            image=self._image("ShadowImage", shadow.image_uri, built.artifact, (shadow.instance_type,)),
            environment=built.artifact.environment,
            instance_types=(shadow.instance_type,),
            instance_count=shadow.instance_count,
        )

    def _image(
        self, id: str, uri: str | None, artifact: ModelArtifact, instance_types: tuple[str, ...]
    ) -> ServingImage:
        return ServingImage(
            self,
            id,
            image_uri=uri,
            triton_version=self._hosting.triton_on(instance_types[0], uri),
            artifact=artifact,
            instance_types=instance_types,
            workload=self._props,
        )

    def _watch(self, metrics: EndpointMetrics, alarms: EndpointAlarms, deployment: Deployment) -> Paging:
        workload = self._props.folder.workload
        EndpointDashboard(
            self,
            "Watch",
            metrics=metrics,
            objective=workload.latency_objective,
            alarms=alarms.all,
            instance_type=deployment.instance_type,
            recommended=deployment.recommended,
            on_neuron=runs_on_neuron(self._props.built.artifact),
        )
        return Paging(
            self,
            "Paging",
            workload=workload.name,
            alarms=alarms.paging,
            options=self._props.options,
            own_key=self._hosting.kms_key_arn is not None,
        )
