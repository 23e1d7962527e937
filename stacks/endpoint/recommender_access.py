"""The role under which Inference Recommender tests a workload's model.

AWS documents `AmazonSageMakerFullAccess` for it. This role may do only what a job does: read the payload and the model,
create, call and delete endpoints of its own, and read their metrics and logs.
"""

from dataclasses import dataclass

from aws_cdk import Aws, Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_s3 as s3
from constructs import Construct

from stacks.endpoint.endpoint import WorkloadEndpoint
from stacks.endpoint.serving_image import ServingImage
from stacks.grants import (
    ENDPOINT_LOGS,
    acknowledge_resources,
    allow,
    allow_container_telemetry,
    allow_passing_to_sagemaker,
)
from stacks.model_archive import ModelArchive

PAYLOADS = "inference-recommender/*"
JOB_LOGS = "/aws/sagemaker/InferenceRecommendationsJobs*"


@dataclass(frozen=True, kw_only=True, slots=True)
class RecommenderAccessProps:
    workload: str
    endpoint: WorkloadEndpoint
    archive: ModelArchive
    image: ServingImage


class RecommenderAccess(Construct):
    """`role` is the RoleArn of CreateInferenceRecommendationsJob."""

    def __init__(self, scope: Construct, id: str, props: RecommenderAccessProps) -> None:
        super().__init__(scope, id)
        self.role = iam.Role(
            self,
            "Role",
            assumed_by=iam.ServicePrincipal("sagemaker.amazonaws.com"),
            description=f"Lets SageMaker Inference Recommender measure {props.workload}.",
        )
        props.archive.grant_read(self.role)
        props.image.grant_pull(self.role)
        allow_container_telemetry(self.role, ENDPOINT_LOGS, JOB_LOGS)
        self._grant_payloads()
        self._grant_own_endpoints(props.workload.replace("_", "-"))
        self._grant_model(props.endpoint)
        self._grant_packages(props.workload.replace("_", "-"))
        allow(self.role, ["cloudwatch:GetMetricData"], ["*"])
        acknowledge_resources(self.role, ["*"], "cloudwatch:GetMetricData is an action on no resource.")

    def _grant_payloads(self) -> None:
        bucket = s3.Bucket.from_bucket_name(self, "DefaultBucket", f"sagemaker-{Aws.REGION}-{Aws.ACCOUNT_ID}")
        bucket.grant_read(self.role, PAYLOADS)
        acknowledge_resources(self.role, [bucket.arn_for_objects(PAYLOADS)], "Each job brings a payload of its own.")

    def _grant_own_endpoints(self, job_prefix: str) -> None:
        # A job is named after the workload, and what it creates after the job or sm-….
        def own(resource: str) -> list[str]:
            return [self._arn(resource, f"{prefix}-*") for prefix in (job_prefix, "sm")]

        endpoints, configs, models = own("endpoint"), own("endpoint-config"), own("model")
        jobs = [self._arn("inference-recommendations-job", f"{job_prefix}-*")]
        allow(self.role, _lifecycle("Endpoint"), [*endpoints, *configs])
        allow(self.role, _lifecycle("EndpointConfig"), configs)
        allow(self.role, _lifecycle("Model"), models)
        allow(self.role, ["sagemaker:InvokeEndpoint"], endpoints)
        allow(self.role, ["sagemaker:DescribeInferenceRecommendationsJob"], jobs)
        reason = "A job names what it creates itself; the prefix keeps it away from every other endpoint."
        acknowledge_resources(self.role, [*endpoints, *configs, *models, *jobs], reason)

    def _grant_model(self, endpoint: WorkloadEndpoint) -> None:
        allow(self.role, ["sagemaker:DescribeModel"], [endpoint.model_arn])
        # A default job may test the endpoint itself beside its own.
        allow(self.role, ["sagemaker:DescribeEndpoint", "sagemaker:InvokeEndpoint"], [endpoint.endpoint_arn])
        # A test with other environment parameters copies the model; under which role is undocumented.
        allow_passing_to_sagemaker(self.role, [endpoint.role.role_arn, self.role.role_arn])

    def _grant_packages(self, group: str) -> None:
        """Lets a job test a version of the workload in the model registry in place of the model."""
        packages = self._arn("model-package", f"{group}/*")
        allow(self.role, ["sagemaker:DescribeModelPackage"], [packages])
        acknowledge_resources(self.role, [packages], "Each version of the workload's model package has a number.")

    def _arn(self, resource: str, name: str) -> str:
        return Stack.of(self).format_arn(service="sagemaker", resource=resource, resource_name=name)


def _lifecycle(noun: str) -> list[str]:
    return [f"sagemaker:{verb}{noun}" for verb in ("Create", "Delete", "Describe")]
