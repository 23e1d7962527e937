"""A daily build that runs `python -m inference_recommender jobs cleanup`. One stack serves an account and region.

Tests delete their own resources. What a killed test leaves has a tag with its expiry, and costs by the hour.
"""

from aws_cdk import Duration, Environment, IgnoreMode, Stack
from aws_cdk import aws_codebuild as codebuild
from aws_cdk import aws_events as events
from aws_cdk import aws_events_targets as targets
from aws_cdk import aws_iam as iam
from aws_cdk import aws_logs as logs
from aws_cdk import aws_s3_assets as assets
from constructs import Construct

from stacks.buckets_and_logs import log_group
from stacks.grants import acknowledge, acknowledge_wildcards, allow, arn_of
from workloads import CODE

NAME = "CleanupStack"
TAG = "inference-recommender:expires-at"
KINDS = {"endpoint": "Endpoint", "endpoint-config": "EndpointConfig", "model": "Model"}
"""Nouns of ARNs and of the API. Tests compare these and the tag with aws_api, which a synthesis does not import."""
FILES = ("aws_api", "inference_recommender", "requirements", "scripts", "workloads")
"""Folders of the repository that the program imports, and that install what it needs."""
LEFT_OUT = ("workloads/*/", "__pycache__", "scripts/*", "!scripts/install_locked.sh")
"""Patterns of .gitignore: data of workloads and other scripts."""


REASONS = {
    r"Action::s3:(GetObject|GetBucket|List)\*": "What CDK's grants on a bucket are made of.",
    r"Resource::.*:log-group:.*:\*": "A build writes into a stream of its log group.",
}
"""Answers to cdk-nag's findings on what CDK grants a project, by pattern."""


class CleanupStack(Stack):
    def __init__(self, scope: Construct, id: str, *, environment: Environment | None = None) -> None:
        super().__init__(scope, id, env=environment, description="Deletes expired resources of tests each day.")
        program = assets.Asset(
            self,
            "Program",
            path=str(CODE),
            exclude=["/*", *(f"!/{name}" for name in FILES), *LEFT_OUT],
            ignore_mode=IgnoreMode.GIT,
        )
        log = log_group(self, "Log", retention=logs.RetentionDays.THREE_MONTHS)
        project = codebuild.Project(
            self,
            "Project",
            description="Deletes expired resources of tests.",
            role=self._role(log),
            source=codebuild.Source.s3(bucket=program.bucket, path=program.s3_object_key),
            build_spec=codebuild.BuildSpec.from_object(
                {
                    "version": "0.2",
                    "phases": {
                        "install": {
                            "runtime-versions": {"python": "3.11"},
                            "commands": ["bash scripts/install_locked.sh python requirements/project.txt"],
                        },
                        "build": {"commands": ["python -m inference_recommender jobs cleanup"]},
                    },
                }
            ),
            environment=codebuild.BuildEnvironment(build_image=codebuild.LinuxBuildImage.STANDARD_7_0),
            logging=codebuild.LoggingOptions(cloud_watch=codebuild.CloudWatchLoggingOptions(log_group=log)),
            grant_report_group_permissions=False,
        )
        acknowledge(project, "AwsSolutions-CB4", "It leaves no artifacts.")
        acknowledge_wildcards(self, REASONS)
        schedule = events.Schedule.rate(Duration.days(1))
        events.Rule(self, "Daily", schedule=schedule, targets=[targets.CodeBuildProject(project)])

    def _role(self, log: logs.LogGroup) -> iam.Role:
        """Returns the role that deletes only endpoints, configurations and models with the tag."""
        role = iam.Role(self, "Role", assumed_by=iam.ServicePrincipal("codebuild.amazonaws.com"))
        arns = [arn_of(self, "sagemaker", kind) for kind in KINDS]
        reason = "To list endpoints, configurations and models are actions on no resource."
        allow(role, [f"sagemaker:List{noun}s" for noun in KINDS.values()], ["*"], reason)
        allow(role, ["sagemaker:ListTags"], arns)
        tagged = {"Null": {f"aws:ResourceTag/{TAG}": "false"}}
        reason = "Tests name their resources; a condition on the tag keeps to expiring ones."
        allow(role, [f"sagemaker:Delete{noun}" for noun in KINDS.values()], arns, reason, tagged)
        log.grant_write(role)
        return role
