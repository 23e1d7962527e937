"""The roles of a workload's release, one for each kind of step, on named resources where a name is known."""

from collections.abc import Iterable
from functools import partial

from aws_cdk import ArnFormat, Aws, PhysicalName, Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_s3 as s3
from constructs import Construct

from stacks.endpoint.network import grant_any_subnet
from stacks.endpoint.recommender_access import role_path
from stacks.grants import acknowledge_resources, allow, allow_passing, allow_pulling_from_aws, arn_of, log_group_arns

OWN_NAMES = "A job or an endpoint is named after its workload when it is made; the prefix keeps to the workload's own."
UNNAMED = "CloudFormation names each model and each configuration of an endpoint."
NO_RESOURCE = "To list, and to read metrics, targets and a job's steps, are actions on no resource."
REGISTRIES = "AWS's registries of SageMaker images differ by region and framework."
WRITE_LOGS = ("logs:CreateLogGroup", "logs:CreateLogStream", "logs:PutLogEvents")
READ_LOGS = ("logs:DescribeLogStreams", "logs:GetLogEvents")
BOOTSTRAP_ROLE = "aws-cdk:bootstrap-role"
"""The tag of the roles that `cdk bootstrap` makes; its value is the role's purpose."""


def measurements(workload: str) -> str:
    """Returns the folder of the releases' bucket by which a build in a VPC gets its files and returns its run."""
    return f"measurements/{workload}"


def build_cache(workload: str) -> str:
    """Returns the folder of the releases' bucket that keeps the workload's last build."""
    return f"caches/{workload}"


def publishing(accounts: Iterable[str]) -> iam.PolicyStatement:
    """Lets a role assume the roles by which CDK's bootstrap publishes files in these accounts."""
    return iam.PolicyStatement(
        actions=["sts:AssumeRole"],
        resources=[f"arn:*:iam::{account}:role/*" for account in accounts],
        conditions={"ForAnyValue:StringEquals": {f"iam:ResourceTag/{BOOTSTRAP_ROLE}": ["file-publishing"]}},
    )


def use_of(connection_arn: str) -> iam.PolicyStatement:
    """Lets a role use a connection, under the service in its ARN. CDK grants only codestar-connections.

    https://docs.aws.amazon.com/dtconsole/latest/userguide/security-iam.html
    """
    service = connection_arn.split(":")[2]
    return iam.PolicyStatement(actions=[f"{service}:UseConnection"], resources=[connection_arn])


class AssumingRole(iam.Role):
    """The role of a step that works as `target`, a role in another account or region. It may do nothing else.

    `commands` come before those of the step. The SDKs renew the role's session, which lasts an hour at most.
    """

    commands: tuple[str, ...] = ()

    def assume(self, target: iam.Role) -> None:
        Stack.of(self).resolve(target.role_arn)  # Gives the role its name before its stage is synthesised.
        allow(self, ["sts:AssumeRole"], [target.role_arn])
        region = Stack.of(target).region
        self.commands = (
            f"aws configure set role_arn {target.role_arn} --profile stage",
            "aws configure set credential_source EcsContainer --profile stage",
            f"export AWS_PROFILE=stage AWS_REGION={region} AWS_DEFAULT_REGION={region}",
        )


class ReleaseAccess(Construct):
    """Methods return the roles of the workload's steps.

    A build runs code from pip and from checkpoints, so it can write only its own folders. `pipeline` is the scope of
    the pipeline's own roles if this construct belongs to a stage in another account or region.
    """

    def __init__(
        self, scope: Construct, id: str, *, workload: str, releases: s3.IBucket, pipeline: Construct | None = None
    ) -> None:
        super().__init__(scope, id)
        self._workload, self._releases, self._pipeline = workload, releases, pipeline
        self._own_names = f"{workload.replace('_', '-')}-*"
        self._arn = partial(arn_of, self, "sagemaker")

    def build(self) -> iam.Role:
        """Returns the role of the workload's build, here and as a SageMaker processing job."""
        role = self._role("Build", "builds its model.", "sagemaker.amazonaws.com")
        verbs = ("Create", "Describe", "Stop")
        actions = [*(f"sagemaker:{verb}ProcessingJob" for verb in verbs), "sagemaker:AddTags"]
        allow(role, actions, [self._arn("processing-job", self._own_names)], OWN_NAMES)
        allow_passing(role, [role.role_arn])
        self._let_use(role, build_cache(self._workload), f"model-build/{self._workload}")
        allow(role, [*WRITE_LOGS, *READ_LOGS], log_group_arns(self, "/aws/sagemaker/ProcessingJobs*"), OWN_NAMES)
        allow_pulling_from_aws(role, "*", REGISTRIES)
        return role

    def record(self) -> iam.Role:
        """Returns the role that runs the workload's model on its chip, here and as a SageMaker endpoint."""
        role = self._role("Record", "runs its model on its chip.", "sagemaker.amazonaws.com")
        own = self._own_names
        endpoints, configs, models = (self._arn(resource, own) for resource in ("endpoint", "endpoint-config", "model"))
        for actions, arns in (
            (["CreateEndpoint"], [endpoints, configs]),
            (["DescribeEndpoint", "DeleteEndpoint"], [endpoints]),
            (["CreateEndpointConfig", "DeleteEndpointConfig"], [configs]),
            (["CreateModel", "DeleteModel"], [models]),
            (["AddTags"], [endpoints, configs, models]),
        ):
            allow(role, [f"sagemaker:{action}" for action in actions], arns, OWN_NAMES)
        allow_passing(role, [role.role_arn])
        self._let_use(role, f"recordings/{self._workload}")
        allow(role, [*WRITE_LOGS, *READ_LOGS], log_group_arns(self, f"/aws/sagemaker/Endpoints/{own}"), OWN_NAMES)
        allow_pulling_from_aws(role, "*", REGISTRIES)
        return role

    def take_down(self, stack_name: str) -> iam.Role:
        """Returns the role that deletes a stack of beta, by the role that made it."""
        role = self._role("TakeDown", "deletes the servers that the beta stage deployed.")
        self._let_change(role, stack_name, "DeleteStack", "DescribeStacks", "DescribeStackResources")
        group = Stack.of(self).format_arn(
            service="autoscaling",
            resource="autoScalingGroup",
            resource_name=f"*:autoScalingGroupName/{stack_name}-*",
            arn_format=ArnFormat.COLON_RESOURCE_NAME,
        )
        reason = "CloudFormation ends a group's name with an id that it makes."
        allow(role, ["autoscaling:DeleteLifecycleHook"], [group], reason)
        return self._of_step(role)

    def ask(self, stack_name: str, *, loaded: bool, proven: bool) -> iam.Role:
        """Returns the role that invokes the stack's endpoint and runs jobs on its model.

        With `loaded` or `proven` it also describes the endpoint, its tags and the served archive.
        """
        role = self._role("Ask", "asks and measures what the beta stage deployed.")
        # SageMaker writes an endpoint's name in lower case into its ARN.
        endpoint = self._arn("endpoint", stack_name.lower())
        allow(role, ["sagemaker:InvokeEndpoint"], [endpoint])
        if loaded or proven:
            self._let_read_endpoint(role, stack_name)
            allow(role, ["application-autoscaling:DescribeScalableTargets"], ["*"], NO_RESOURCE)
            allow(role, ["sagemaker:DescribeModel"], [self._arn("model", "*")], UNNAMED)
            allow(role, ["sagemaker:ListTags"], [endpoint])
        actions = [*(f"{verb}InferenceRecommendationsJob" for verb in ("Create", "Describe", "Stop"))]
        actions += ["GetScalingConfigurationRecommendation", "AddTags", "ListTags"]
        jobs = self._arn("inference-recommendations-job", self._own_names)
        allow(role, [f"sagemaker:{action}" for action in actions], [jobs], OWN_NAMES)
        passed = arn_of(self, "iam", "role", f"{role_path(stack_name).strip('/')}/*", region="")
        allow_passing(role, [passed])
        acknowledge_resources(role, [passed], OWN_NAMES)
        groups = ("InferenceRecommendationsJobs*", f"Endpoints/{self._own_names}", "Endpoints/sm-*")
        allow(role, READ_LOGS, log_group_arns(self, *(f"/aws/sagemaker/{name}" for name in groups)), OWN_NAMES)
        actions = ["cloudwatch:GetMetricData", "sagemaker:ListInferenceRecommendationsJobSteps"]
        allow(role, actions, ["*"], NO_RESOURCE)
        self._let_offer_payloads(role)
        return self._of_step(role)

    def measure_in_vpc(self, project: str) -> iam.Role:
        """Returns the role that starts a build of the project inside a service's VPC, here and as that build's role."""
        role = self._role("Ask", "asks and measures what the beta stage deployed, inside its VPC.")
        own = arn_of(self, "codebuild", "project", project)
        allow(role, ["codebuild:StartBuild", "codebuild:BatchGetBuilds"], [own])
        allow_passing(role, [role.role_arn], "codebuild.amazonaws.com")
        self._let_use(role, measurements(self._workload))
        logs = [f"{name}{rest}" for name in log_group_arns(self, f"/aws/codebuild/{project}") for rest in ("", ":*")]
        allow(role, WRITE_LOGS, logs, "A build writes into streams of its own group.")
        grant_any_subnet(role, "The VPC is the beta stage's, which is deployed later.")
        return role

    def register(self, group: str) -> iam.Role:
        """Returns the role that registers the stage's model in one model package group."""
        role = self._role("Register", "registers the measured model.")
        groups, packages = self._arn("model-package-group", group), self._arn("model-package", f"{group}/*")
        allow(role, ["sagemaker:DescribeModel"], [self._arn("model", "*")], UNNAMED)
        allow(role, ["sagemaker:CreateModelPackageGroup", "sagemaker:AddTags"], [groups])
        reason = "SageMaker numbers the versions of a group."
        allow(role, ["sagemaker:CreateModelPackage"], [groups, packages], reason)
        allow(role, ["sagemaker:ListModelPackageGroups"], ["*"], NO_RESOURCE)
        self._let_offer_payloads(role)
        return self._of_step(role)

    def pause_scaling(self, stack_name: str) -> iam.Role:
        """Returns the role that takes scaling out of a stack, by the role that made the stack."""
        role = self._role("PauseScaling", "prepares production for another instance type.")
        self._let_change(role, stack_name, "DescribeStacks", "GetTemplate", "UpdateStack")
        self._let_read_endpoint(role, stack_name)
        return self._of_step(role)

    def compare(self) -> iam.Role:
        """Returns the role that reads and keeps the run that the workload's next release is compared with."""
        role = self._role("Compare", "reads and keeps its baseline.")
        self._let_use(role, f"baselines/{self._workload}")
        return role

    def _let_use(self, role: iam.Role, *folders: str) -> None:
        """Lets a role read and write folders of the releases' bucket."""
        for folder in folders:
            self._releases.grant_read_write(role, f"{folder}/*")
            acknowledge_resources(role, [self._releases.arn_for_objects(f"{folder}/*")], "A step names its files.")

    def _let_change(self, role: iam.Role, stack_name: str, *actions: str) -> None:
        stack = arn_of(self, "cloudformation", "stack", f"{stack_name}/*")
        reason = "CloudFormation ends a stack's ARN with an id that it makes."
        allow(role, [f"cloudformation:{action}" for action in actions], [stack], reason)

    def _let_read_endpoint(self, role: iam.Role, stack_name: str) -> None:
        allow(role, ["sagemaker:DescribeEndpoint"], [self._arn("endpoint", stack_name.lower())])
        allow(role, ["sagemaker:DescribeEndpointConfig"], [self._arn("endpoint-config", "*")], UNNAMED)

    def _let_offer_payloads(self, role: iam.Role) -> None:
        """Lets a role put payloads into SageMaker's bucket of the account and region, and make that bucket."""
        bucket = f"sagemaker-{Aws.REGION}-{Aws.ACCOUNT_ID}"
        arn = Stack.of(self).format_arn(service="s3", region="", account="", resource=bucket)
        payloads = f"{arn}/inference-recommender/{self._workload}/*"
        allow(role, ["s3:PutObject"], [payloads], "The workload's own payloads.")
        allow(role, ["s3:CreateBucket", "s3:PutBucketPublicAccessBlock"], [arn])

    def _role(self, id: str, purpose: str, *services: str) -> iam.Role:
        builder = iam.ServicePrincipal("codebuild.amazonaws.com")
        step: iam.IPrincipal = builder
        name = None
        if self._pipeline is not None:
            name = PhysicalName.GENERATE_IF_NEEDED
            assuming = AssumingRole(
                self._pipeline, id, assumed_by=builder, role_name=name, description=f"Works as {self._workload}'s {id}."
            )
            account = iam.AccountPrincipal(Stack.of(assuming).account)
            step = account.with_conditions({"ArnEquals": {"aws:PrincipalArn": assuming.role_arn}})
        trusted = iam.CompositePrincipal(step, *map(iam.ServicePrincipal, services))
        return iam.Role(self, id, assumed_by=trusted, role_name=name, description=f"{self._workload}: {purpose}")

    def _of_step(self, role: iam.Role) -> iam.Role:
        """Returns the role of a step that works as `role`: itself, or the one that assumes it."""
        if self._pipeline is None:
            return role
        assuming = self._pipeline.node.find_child(role.node.id)
        assert isinstance(assuming, AssumingRole)
        assuming.assume(role)
        return assuming
