"""The roles that measure a model: of Inference Recommender jobs, and of load generators.

AWS documents `AmazonSageMakerFullAccess` for jobs; `[recommender] managed_policy` attaches it. Without it the role has
only the permissions that a job needs.
"""

from collections.abc import Sequence

from aws_cdk import Aws, Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_s3 as s3
from constructs import Construct

from stacks.endpoint.endpoint import RecommendedEndpoint
from stacks.endpoint.network import grant_any_subnet
from stacks.grants import (
    ENDPOINT_LOGS,
    acknowledge_actions,
    acknowledge_resources,
    allow,
    allow_container_telemetry,
    allow_passing,
    allow_pulling_from_aws,
    arn_of,
)
from stacks.model_archive import ModelArchive
from stacks.own_image import EcrImage
from workloads import Workload, images

PAYLOADS = "inference-recommender/*"
JOB_LOGS = "/aws/sagemaker/InferenceRecommendationsJobs*"
GENERATOR_LOGS = "/aws/sagemaker/ProcessingJobs*"
MANAGED_POLICY = "AmazonSageMakerFullAccess"
NAMED_BY_RUN = "The subnets are those that a run names."


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
        endpoint: RecommendedEndpoint,
        archive: ModelArchive,
        image: EcrImage,
    ) -> None:
        super().__init__(scope, id)
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
        bucket = _default_bucket(self)
        bucket.grant_read(self.role, PAYLOADS)
        acknowledge_resources(self.role, [bucket.arn_for_objects(PAYLOADS)], "Each job brings a payload of its own.")
        self._grant_own_endpoints(workload.package_group)
        allow(self.role, ["sagemaker:DescribeModel"], [endpoint.model_arn])
        # A default job may test the endpoint itself beside its own.
        allow(self.role, ["sagemaker:DescribeEndpoint", "sagemaker:InvokeEndpoint"], [endpoint.endpoint_arn])
        # A test with other environment parameters copies the model; under which role is undocumented.
        allow_passing(self.role, [endpoint.role.role_arn, self.role.role_arn])
        # A job may test a version of the workload in the model registry in place of the model.
        packages = arn_of(self, "sagemaker", "model-package", f"{workload.package_group}/*")
        reason = "Each version of the workload's model package has a number."
        allow(self.role, ["sagemaker:DescribeModelPackage"], [packages], reason)
        grant_any_subnet(self.role, NAMED_BY_RUN)
        _grant_key(self.role, workload.recommender.kms_key_arn)
        if workload.recommender.managed_policy:
            self.role.add_managed_policy(iam.ManagedPolicy.from_aws_managed_policy_name(MANAGED_POLICY))
        reason = "cloudwatch:GetMetricData is an action on no resource."
        allow(self.role, ["cloudwatch:GetMetricData"], ["*"], reason)

    def _grant_own_endpoints(self, job_prefix: str) -> None:
        # A job is named after the workload, and what it creates after the job or sm-….
        def own(resource: str) -> list[str]:
            return [arn_of(self, "sagemaker", resource, f"{prefix}-*") for prefix in (job_prefix, "sm")]

        endpoints, configs, models = own("endpoint"), own("endpoint-config"), own("model")
        jobs = [arn_of(self, "sagemaker", "inference-recommendations-job", f"{job_prefix}-*")]
        reason = "A job names what it creates itself; the prefix keeps it away from every other endpoint."
        for actions, arns in (
            (_lifecycle("Endpoint"), [*endpoints, *configs]),
            (_lifecycle("EndpointConfig"), configs),
            (_lifecycle("Model"), models),
            (["InvokeEndpoint"], endpoints),
            (["DescribeInferenceRecommendationsJob"], jobs),
            # A job has tags; whether it hands them on to what it creates is not documented.
            (["AddTags", "ListTags"], [*endpoints, *configs, *models, *jobs]),
        ):
            allow(self.role, [f"sagemaker:{action}" for action in actions], arns, reason)


class GeneratorAccess(Construct):
    """`role` is the role of the Processing job of `recommender.generators`."""

    def __init__(self, scope: Construct, id: str, *, workload: Workload, endpoint: RecommendedEndpoint) -> None:
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
        own = arn_of(self, "sagemaker", "endpoint", f"{workload.package_group}-*")
        reason = "An experiment names its endpoints after the workload."
        allow(self.role, ["sagemaker:InvokeEndpoint"], [endpoint.endpoint_arn, own], reason)
        grant_any_subnet(self.role, NAMED_BY_RUN)
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


def _grant_key(role: iam.Role, key_arn: str | None) -> None:
    """Grants what hosting, S3 and a job need of a key: without kms:CreateGrant a job fails after it has begun."""
    if key_arn is None:
        return
    uses = ("Decrypt", "DescribeKey", "GenerateDataKey", "GenerateDataKeyWithoutPlaintext")
    allow(role, [f"kms:{use}" for use in uses], [key_arn])
    allow(role, ["kms:CreateGrant"], [key_arn], conditions={"Bool": {"kms:GrantIsForAWSResource": "true"}})


def _default_bucket(scope: Construct) -> s3.IBucket:
    return s3.Bucket.from_bucket_name(scope, "DefaultBucket", f"sagemaker-{Aws.REGION}-{Aws.ACCOUNT_ID}")


def _lifecycle(noun: str) -> Sequence[str]:
    return [f"{verb}{noun}" for verb in ("Create", "Delete", "Describe")]
