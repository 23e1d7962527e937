"""A CodeBuild project inside a service's VPC, from which a release invokes and measures the service.

It is in the service's stack, because StartBuild cannot choose a VPC and only this stage knows the VPC's ids. A release
starts it with its own role and files: scripts/release/measure_in_vpc.sh.
"""

from aws_cdk import Duration, Stack
from aws_cdk import aws_codebuild as codebuild
from aws_cdk import aws_ec2 as ec2
from constructs import Construct

from stacks.ecs.shared_network import PrivateNetwork
from stacks.grants import acknowledge, acknowledge_to_checkov, acknowledge_wildcards

COMMANDS = (
    'export PYTHONPATH="$PWD/packages"',
    'bash scripts/release/smoke_test.sh "$WORKLOAD" "$URL"',
    'bash scripts/release/measure_url.sh "$WORKLOAD" "$URL" "$INSTANCE_TYPE"',
    'aws s3 cp --recursive --only-show-errors runs/candidate "$PLACE/run"',
)
"""The commands of a build. They install nothing, because a VPC without internet reaches no package index."""
LONGEST = Duration.hours(2)
REASONS = {
    r"Resource::.*:(log-group:/aws/codebuild/|report-group/).*": "CodeBuild names them after the project.",
    r"Resource::.*:network-interface/\*": "CodeBuild makes interfaces in the project's subnets, by a condition.",
    r"Resource::\*": "EC2's Describe actions are on no resource, and an interface has no id before it is made.",
}
"""Answers to cdk-nag's findings on the policies that CDK gives a project in a VPC, by pattern."""


def project_name(stack_name: str) -> str:
    """Returns a name that a release's role can have before the stack exists."""
    return f"{stack_name}-Measure"


class MeasuringProject(Construct):
    """`project` runs `COMMANDS` in the subnets of the service."""

    def __init__(self, scope: Construct, id: str, *, network: PrivateNetwork) -> None:
        super().__init__(scope, id)
        caller = ec2.SecurityGroup(
            self, "Group", vpc=network.vpc, description="Builds that measure the service. Nothing calls them."
        )
        self.project = codebuild.Project(
            self,
            "Project",
            project_name=project_name(Stack.of(self).stack_name),
            description="Measures the service inside its VPC.",
            vpc=network.vpc,
            subnet_selection=network.subnets,
            security_groups=[caller],
            build_spec=codebuild.BuildSpec.from_object(
                {
                    "version": "0.2",
                    "phases": {
                        # The image has this Python; a version that it lacks would need the internet.
                        "install": {"runtime-versions": {"python": "3.11"}},
                        "build": {"commands": list(COMMANDS)},
                    },
                }
            ),
            environment=codebuild.BuildEnvironment(
                build_image=codebuild.LinuxBuildImage.STANDARD_7_0, compute_type=codebuild.ComputeType.LARGE
            ),
            timeout=LONGEST,
        )
        acknowledge(self.project, "AwsSolutions-CB4", "It leaves no artifacts: the run goes to the release's bucket.")
        acknowledge_wildcards(self, REASONS)
        in_vpc = self.project.node.find_child("PolicyDocument")
        acknowledge_to_checkov(in_vpc, "CKV_AWS_111", REASONS[r"Resource::\*"])
