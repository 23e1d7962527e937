"""The roles of a release's steps, one for each kind of step, on named resources where a name is known."""

from dataclasses import dataclass

from aws_cdk import ArnFormat, Aws, Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_s3 as s3
from constructs import Construct

from stacks.grants import acknowledge_resources, allow, allow_passing_to_sagemaker

OWN_NAMES = "A job or an endpoint is named after its workload when it is made; the prefix keeps to the workload's own."


def build_cache(workload: str) -> str:
    """Returns the folder of the releases' bucket that keeps what a workload's last build made."""
    return f"caches/{workload}"


@dataclass(frozen=True, kw_only=True, slots=True)
class ReleaseAccessProps:
    releases: s3.IBucket
    """Keeps builds and baselines."""


class ReleaseAccess(Construct):
    """`ask` invokes and measures what beta deployed, `compare` reads and writes baselines; each build has a role.

    A build runs code of others, which pip installs and a checkpoint brings. It reaches its own workload's files only:
    what it could change elsewhere, another build, a gate or production would take for its own.
    """

    def __init__(self, scope: Construct, id: str, props: ReleaseAccessProps) -> None:
        super().__init__(scope, id)
        self._releases = props.releases
        self.ask = self._role("Ask", "Asks and measures what the beta stage deployed.")
        self.compare = self._role("Compare", "Reads and keeps the runs that releases are compared with.")
        props.releases.grant_read_write(self.compare, "baselines/*")
        acknowledge_resources(
            self.compare, [props.releases.arn_for_objects("baselines/*")], "A baseline is a folder of files."
        )

    def build(self, workload: str) -> iam.Role:
        """Returns the role of the workload's build, here and as a SageMaker processing job."""
        role = self._role(f"Build-{workload}", f"{workload}: builds its model.", "sagemaker.amazonaws.com")
        self._let_build(role, workload)
        return role

    def may_measure(self, workload: str, stack_name: str) -> None:
        """Lets `ask` invoke the stack's endpoint and run jobs on its model."""
        jobs = [self._arn("inference-recommendations-job", f"{workload.replace('_', '-')}-*")]
        # SageMaker writes an endpoint's name in lower case into its ARN.
        endpoint = self._arn("endpoint", stack_name.lower())
        roles = [self._role_arn(f"{stack_name}-RecommenderRole*")]
        allow(self.ask, ["sagemaker:InvokeEndpoint"], [endpoint])
        verbs = ("Create", "Describe", "Stop")
        actions = [f"sagemaker:{verb}InferenceRecommendationsJob" for verb in verbs]
        others = ["sagemaker:ListInferenceRecommendationsJobSteps", "sagemaker:AddTags", "sagemaker:ListTags"]
        allow(self.ask, [*actions, *others], jobs)
        allow_passing_to_sagemaker(self.ask, roles)
        acknowledge_resources(self.ask, [*jobs, *roles], OWN_NAMES)

    def may_offer_payloads(self) -> None:
        """Lets `ask` put payloads where jobs look for them, and read the metrics of its tests."""
        bucket = s3.Bucket.from_bucket_name(self, "Payloads", f"sagemaker-{Aws.REGION}-{Aws.ACCOUNT_ID}")
        payloads = bucket.arn_for_objects("inference-recommender/*")
        allow(self.ask, ["s3:PutObject"], [payloads])
        allow(self.ask, ["cloudwatch:GetMetricData"], ["*"])
        acknowledge_resources(self.ask, [payloads], "Each workload has a payload of its own.")
        acknowledge_resources(self.ask, ["*"], "cloudwatch:GetMetricData is an action on no resource.")

    def _let_build(self, role: iam.Role, workload: str) -> None:
        jobs = self._arn("processing-job", f"{workload.replace('_', '-')}-*")
        verbs = ("Create", "Describe", "Stop")
        allow(role, [*(f"sagemaker:{verb}ProcessingJob" for verb in verbs), "sagemaker:AddTags"], [jobs])
        allow_passing_to_sagemaker(role, [role.role_arn])
        files = [f"{build_cache(workload)}/*", f"model-build/{workload}/*"]
        for pattern in files:
            self._releases.grant_read_write(role, pattern)
        logs = Stack.of(self).format_arn(
            service="logs",
            resource="log-group",
            resource_name="/aws/sagemaker/ProcessingJobs*",
            arn_format=ArnFormat.COLON_RESOURCE_NAME,
        )
        images = Stack.of(self).format_arn(service="ecr", account="*", resource="repository", resource_name="*")
        allow(role, ["logs:CreateLogGroup", "logs:CreateLogStream", "logs:PutLogEvents"], [logs])
        allow(role, ["ecr:BatchCheckLayerAvailability", "ecr:GetDownloadUrlForLayer", "ecr:BatchGetImage"], [images])
        allow(role, ["ecr:GetAuthorizationToken"], ["*"])
        objects = [self._releases.arn_for_objects(pattern) for pattern in files]
        acknowledge_resources(role, [jobs, *objects, logs], OWN_NAMES)
        acknowledge_resources(role, [images], "AWS's registries of SageMaker images differ by region and framework.")
        acknowledge_resources(role, ["*"], "ecr:GetAuthorizationToken is an action on no resource.")

    def _role(self, id: str, description: str, *services: str) -> iam.Role:
        principals = [iam.ServicePrincipal(name) for name in ("codebuild.amazonaws.com", *services)]
        return iam.Role(self, id, assumed_by=iam.CompositePrincipal(*principals), description=description)

    def _arn(self, resource: str, name: str) -> str:
        return Stack.of(self).format_arn(service="sagemaker", resource=resource, resource_name=name)

    def _role_arn(self, name: str) -> str:
        return Stack.of(self).format_arn(service="iam", region="", resource="role", resource_name=name)
