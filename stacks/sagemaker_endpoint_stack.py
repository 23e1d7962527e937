"""A workload on a SageMaker real-time endpoint: what serves it, scales it, watches it and may measure it."""

from aws_cdk import Annotations, CfnOutput, Stack
from constructs import Construct

from stacks.deployment import Deployment, plan_deployment
from stacks.endpoint_alarms import EndpointAlarms, EndpointAlarmsProps
from stacks.endpoint_dashboard import EndpointDashboard, EndpointDashboardProps
from stacks.endpoint_scaling import EndpointScaling, EndpointScalingProps
from stacks.model_archive import ModelArchive, ModelArchiveProps
from stacks.recommender_access import RecommenderAccess, RecommenderAccessProps
from stacks.triton_image import TritonImage, TritonImageProps
from stacks.workload_endpoint import WorkloadEndpoint, WorkloadEndpointProps
from stacks.workload_stack import WorkloadStackProps
from workloads import ModelArtifact, SageMakerEndpointHosting


class SageMakerEndpointStack(Stack):
    """Outputs: EndpointName, ModelName, RecommenderRoleArn."""

    def __init__(self, scope: Construct, id: str, hosting: SageMakerEndpointHosting, props: WorkloadStackProps) -> None:
        workload, artifact = props.folder.workload, props.artifact
        super().__init__(scope, id, env=props.environment, description=workload.description)
        deployment = plan_deployment(props.folder, hosting, artifact, props.recommendation)
        for caution in deployment.cautions:
            Annotations.of(self).add_warning_v2(caution.id, caution.text)
        archive = ModelArchive(
            self, "Archive", ModelArchiveProps(file=props.archive_file, sha256=artifact.archive_sha256)
        )
        image = TritonImage(
            self,
            "Image",
            TritonImageProps(hosting=hosting, instance_type=deployment.instance_type, workload_file=props.folder.file),
        )
        endpoint = self._endpoint(artifact, archive, image, deployment)
        if deployment.autoscaling is not None:
            scaling = EndpointScalingProps(endpoint=endpoint, autoscaling=deployment.autoscaling)
            EndpointScaling(self, "Scaling", scaling)
        EndpointAlarms(self, "Alarms", EndpointAlarmsProps(endpoint=endpoint, objective=workload.latency_objective))
        watched = EndpointDashboardProps(endpoint=endpoint, objective=workload.latency_objective)
        EndpointDashboard(self, "Watch", watched)
        access = RecommenderAccessProps(workload=workload.name, endpoint=endpoint, archive=archive, image=image)
        recommender = RecommenderAccess(self, "Recommender", access)
        # `inference_recommender` and the README find these by name.
        CfnOutput(self, "EndpointName", value=endpoint.endpoint_name)
        CfnOutput(self, "ModelName", value=endpoint.model_name)
        CfnOutput(self, "RecommenderRoleArn", value=recommender.role.role_arn)

    def _endpoint(
        self, artifact: ModelArtifact, archive: ModelArchive, image: TritonImage, deployment: Deployment
    ) -> WorkloadEndpoint:
        return WorkloadEndpoint(
            self,
            "Serving",
            WorkloadEndpointProps(
                archive=archive,
                image=image,
                default_model=artifact.default_model,
                instance_type=deployment.instance_type,
                instance_count=deployment.instance_count,
                environment={**artifact.environment, **deployment.environment},
            ),
        )
