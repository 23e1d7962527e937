"""The roles that measure a model: of Inference Recommender jobs, and of load generators.

AWS documents `AmazonSageMakerFullAccess` for jobs; `[recommender] managed_policy` attaches it. Without it the role has
only the permissions that a job needs.
"""

from collections.abc import Sequence

from aws_cdk import Aws, Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_s3 as s3
from constructs import Construct

from stacks.endpoint.endpoint import WorkloadEndpoint
from stacks.endpoint.network import grant_interfaces
from stacks.endpoint.serving_image import ServingImage
from stacks.grants import (
    ENDPOINT_LOGS,
    acknowledge_actions,
    acknowledge_resources,
    allow,
    allow_container_telemetry,
    allow_passing,
    allow_pulling_from_aws,
    sagemaker_arn,
)
from stacks.model_archive import ModelArchive
from workloads import Workload, images

PAYLOADS = "inference-recommender/*"
JOB_LOGS = "/aws/sagemaker/InferenceRecommendationsJobs*"
GENERATOR_LOGS = "/aws/sagemaker/ProcessingJobs*"
MANAGED_POLICY = "AmazonSageMakerFullAccess"


def role_path(stack_name: str) -> str:
    """Returns the IAM path of a stack's role. CloudFormation may cut a role's name, but never its path."""
    return f"/inference-recommender/{stack_name}/"


class RecommenderAccess(Construct):
    """`role` is the RoleArn of CreateInferenceRecommendationsJob."""

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        workload: Workload,
        endpoint: WorkloadEndpoint,
        archive: ModelArchive,
        image: ServingImage,
    ) -> None:
        super().__init__(scope, id)
        workload, prefix = workload, _prefix(workload)
        self.role = iam.Role(
            self,
            "Role",
            assumed_by=iam.ServicePrincipal("sagemaker.amazonaws.com"),
            path=role_path(Stack.of(self).stack_name),
            description=f"Lets SageMaker Inference Recommender measure {workload.name}.",
        )
        archive.grant_read(self.role)
        image.grant_pull(self.role)
        allow_container_telemetry(self.role, ENDPOINT_LOGS, JOB_LOGS)
        self._grant_payloads()
        self._grant_own_endpoints(prefix)
        self._grant_model(endpoint)
        self._grant_packages(prefix)
        _grant_subnets(self.role)
        _grant_key(self.role, workload.recommender.kms_key_arn)
        if workload.recommender.managed_policy:
            self.role.add_managed_policy(iam.ManagedPolicy.from_aws_managed_policy_name(MANAGED_POLICY))
        allow(self.role, ["cloudwatch:GetMetricData"], ["*"])
        acknowledge_resources(self.role, ["*"], "cloudwatch:GetMetricData is an action on no resource.")

    def _grant_payloads(self) -> None:
        bucket = _default_bucket(self)
        bucket.grant_read(self.role, PAYLOADS)
        acknowledge_resources(self.role, [bucket.arn_for_objects(PAYLOADS)], "Each job brings a payload of its own.")

    def _grant_own_endpoints(self, job_prefix: str) -> None:
        # A job is named after the workload, and what it creates after the job or sm-….
        def own(resource: str) -> list[str]:
            return [sagemaker_arn(self, resource, f"{prefix}-*") for prefix in (job_prefix, "sm")]

        endpoints, configs, models = own("endpoint"), own("endpoint-config"), own("model")
        jobs = [sagemaker_arn(self, "inference-recommendations-job", f"{job_prefix}-*")]
        allow(self.role, _lifecycle("Endpoint"), [*endpoints, *configs])
        allow(self.role, _lifecycle("EndpointConfig"), configs)
        allow(self.role, _lifecycle("Model"), models)
        allow(self.role, ["sagemaker:InvokeEndpoint"], endpoints)
        allow(self.role, ["sagemaker:DescribeInferenceRecommendationsJob"], jobs)
        # A job has tags; whether it hands them on to what it creates is not documented.
        allow(self.role, ["sagemaker:AddTags", "sagemaker:ListTags"], [*endpoints, *configs, *models, *jobs])
        reason = "A job names what it creates itself; the prefix keeps it away from every other endpoint."
        acknowledge_resources(self.role, [*endpoints, *configs, *models, *jobs], reason)

    def _grant_model(self, endpoint: WorkloadEndpoint) -> None:
        allow(self.role, ["sagemaker:DescribeModel"], [endpoint.model_arn])
        # A default job may test the endpoint itself beside its own.
        allow(self.role, ["sagemaker:DescribeEndpoint", "sagemaker:InvokeEndpoint"], [endpoint.endpoint_arn])
        # A test with other environment parameters copies the model; under which role is undocumented.
        allow_passing(self.role, [endpoint.role.role_arn, self.role.role_arn])

    def _grant_packages(self, group: str) -> None:
        """Lets a job test a version of the workload in the model registry in place of the model."""
        packages = sagemaker_arn(self, "model-package", f"{group}/*")
        allow(self.role, ["sagemaker:DescribeModelPackage"], [packages])
        acknowledge_resources(self.role, [packages], "Each version of the workload's model package has a number.")


class GeneratorAccess(Construct):
    """`role` is the role of the Processing job of `recommender.generators`."""

    def __init__(self, scope: Construct, id: str, *, workload: Workload, endpoint: WorkloadEndpoint) -> None:
        super().__init__(scope, id)
        self.role = iam.Role(
            self,
            "Role",
            assumed_by=iam.ServicePrincipal("sagemaker.amazonaws.com"),
            description=f"Lets load generators ask {workload.name}.",
        )
        repository = images.PYTORCH_CPU.partition(":")[0]
        allow_pulling_from_aws(self.role, repository, "The account of AWS's registry depends on the region.")
        self._grant_folder(workload.name)
        allow_container_telemetry(self.role, GENERATOR_LOGS)
        own = sagemaker_arn(self, "endpoint", f"{_prefix(workload)}-*")
        allow(self.role, ["sagemaker:InvokeEndpoint"], [endpoint.endpoint_arn, own])
        acknowledge_resources(self.role, [own], "An experiment names its endpoints after the workload.")
        _grant_subnets(self.role)
        _grant_key(self.role, workload.recommender.kms_key_arn)

    def _grant_folder(self, workload: str) -> None:
        bucket, folder = _default_bucket(self), f"inference-recommender/{workload}/load-test/*"
        bucket.grant_read(self.role, folder)
        bucket.grant_put(self.role, folder)
        acknowledge_actions(
            self.role,
            ["s3:GetObject*", "s3:GetBucket*", "s3:List*", "s3:Abort*"],
            "CDK's wording of reading and writing objects.",
        )
        acknowledge_resources(self.role, [bucket.arn_for_objects(folder)], "Each load test has a folder of its own.")


def _grant_subnets(role: iam.Role) -> None:
    """Lets SageMaker attach instances to the subnets of --subnet, which are not known here."""

    def any_of(resource: str) -> str:
        return Stack.of(role).format_arn(service="ec2", resource=resource, resource_name="*")

    destinations = [any_of("subnet"), any_of("security-group")]
    grant_interfaces(role, destinations)
    acknowledge_resources(role, destinations, "The subnets are those that a run names.")


def _grant_key(role: iam.Role, key_arn: str | None) -> None:
    """Grants what hosting, S3 and a job need of a key: without kms:CreateGrant a job fails after it has begun."""
    if key_arn is None:
        return
    allow(
        role,
        ["kms:Decrypt", "kms:DescribeKey", "kms:GenerateDataKey", "kms:GenerateDataKeyWithoutPlaintext"],
        [key_arn],
    )
    allow(role, ["kms:CreateGrant"], [key_arn], {"Bool": {"kms:GrantIsForAWSResource": "true"}})


def _default_bucket(scope: Construct) -> s3.IBucket:
    return s3.Bucket.from_bucket_name(scope, "DefaultBucket", f"sagemaker-{Aws.REGION}-{Aws.ACCOUNT_ID}")


def _prefix(workload: Workload) -> str:
    return workload.name.replace("_", "-")


def _lifecycle(noun: str) -> Sequence[str]:
    return [f"sagemaker:{verb}{noun}" for verb in ("Create", "Delete", "Describe")]
