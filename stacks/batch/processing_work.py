"""A batch's steps as SageMaker processing jobs: one job with an instance for each shard, then one for the account.

Each host takes its share of the chunks of every file (`--shard hosts`) and reads S3 itself. ShardedByS3Key would hand
out whole files, and one host would get the largest. A job that fails is started again and answers what is missing.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aws_cdk import ArnFormat, Aws, Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_stepfunctions as sfn
from constructs import Construct

from stacks.batch.steps import DAY, RETRIES, RETRY_AFTER, account_command, shard_command
from stacks.batch.storage import BatchStorage
from stacks.grants import acknowledge_resources, allow, allow_container_telemetry, allow_passing_to_sagemaker
from stacks.model_archive import ModelArchive
from stacks.own_image import OwnImage
from workloads import UsageError

_SIXTH = frozenset({"xlarge", "2xlarge", "4xlarge", "8xlarge", "12xlarge", "16xlarge", "24xlarge", "32xlarge"})
_SEVENTH = frozenset(
    {"large", "xlarge", "2xlarge", "4xlarge", "8xlarge", "12xlarge", "16xlarge", "24xlarge", "48xlarge"}
)
SIZES: Mapping[str, frozenset[str]] = {
    "c5": frozenset({"xlarge", "2xlarge", "4xlarge", "9xlarge", "18xlarge"}),
    "m5": frozenset({"large", "xlarge", "2xlarge", "4xlarge", "12xlarge", "24xlarge"}),
    "c6i": _SIXTH,
    "m6i": _SIXTH | {"large"},
    "c7i": _SEVENTH,
    "m7i": _SEVENTH,
}
"""CPU types on which SageMaker runs processing jobs. A test compares them with the API's own list."""
VOLUME_GB = 100
JOB_LOGS = "/aws/sagemaker/ProcessingJobs*"
STOPPING = "StepFunctionsGetEventsForSageMakerProcessingJobsRule"
"""The rule through which Step Functions is told that a job has ended."""
PREFIX_LENGTH = 17
"""A job's name has at most 63 characters, of which the UUID takes 36 and the step up to 10."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ProcessingBatchWorkProps:
    workload: str
    image: OwnImage
    archive: ModelArchive
    storage: BatchStorage
    instance_type: str
    shards: int
    deadline_s: int
    max_bad_share: float
    role: iam.Role
    """The state machine's role."""


class ProcessingBatchWork(Construct):
    """A `BatchWork` whose states run processing jobs."""

    def __init__(self, scope: Construct, id: str, props: ProcessingBatchWorkProps) -> None:
        super().__init__(scope, id)
        self._props = props
        self._prefix = props.workload.replace("_", "-")[:PREFIX_LENGTH]
        self.role = iam.Role(
            self,
            "JobRole",
            assumed_by=iam.ServicePrincipal("sagemaker.amazonaws.com"),
            description=f"{props.workload}: reads the archive and the rows, writes answers and their account.",
        )
        props.image.grant_pull(self.role)
        props.archive.grant_read(self.role)
        props.storage.grant_run(self.role)
        allow_container_telemetry(self.role, JOB_LOGS)
        self._grant_jobs(props.role)

    def shards(self, scope: Construct) -> sfn.IChainable:
        command = shard_command(self._props.archive.url, "hosts")
        return self._job(scope, "Shards", "Answer every shard", command, self._props.shards)

    def account(self, scope: Construct) -> sfn.IChainable:
        command = account_command(self._props.max_bad_share)
        return self._job(scope, "Account", "Account for every row", command, 1)

    def _job(self, scope: Construct, id: str, name: str, command: str, instances: int) -> sfn.IChainable:
        retry = {
            "ErrorEquals": ["States.ALL"],
            "IntervalSeconds": RETRY_AFTER.to_seconds(),
            "MaxAttempts": RETRIES,
            "BackoffRate": 2,
        }
        state = {
            "Type": "Task",
            "Resource": f"arn:{Aws.PARTITION}:states:::sagemaker:createProcessingJob.sync",
            "Parameters": self._request(f"{self._prefix}-{id.lower()}", command, instances),
            "ResultPath": None,
            "Retry": [retry],
        }
        return sfn.CustomState(scope, id, state_json={**state, "Comment": name})

    def _request(self, name: str, command: str, instances: int) -> dict[str, Any]:
        props = self._props
        return {
            "ProcessingJobName.$": f"States.Format('{name}-{{}}', States.UUID())",
            "AppSpecification": {"ImageUri": props.image.uri, "ContainerEntrypoint": ["sh", "-c", command]},
            "Environment": {
                "DAY.$": DAY,
                "INPUT": props.storage.input.s3_url_for_object(),
                "OUTPUT": props.storage.output.s3_url_for_object(),
                "METRICS_STACK": Aws.STACK_NAME,
                "METRICS_WORKLOAD": props.workload,
                "AWS_DEFAULT_REGION": Aws.REGION,
            },
            "ProcessingResources": {
                "ClusterConfig": {
                    "InstanceCount": instances,
                    "InstanceType": props.instance_type,
                    "VolumeSizeInGB": VOLUME_GB,
                }
            },
            "RoleArn": self.role.role_arn,
            "StoppingCondition": {"MaxRuntimeInSeconds": props.deadline_s},
        }

    def _grant_jobs(self, steps: iam.Role) -> None:
        stack = Stack.of(self)
        jobs = stack.format_arn(service="sagemaker", resource="processing-job", resource_name=f"{self._prefix}-*")
        verbs = ["CreateProcessingJob", "DescribeProcessingJob", "StopProcessingJob", "AddTags"]
        allow(steps, [f"sagemaker:{verb}" for verb in verbs], [jobs])
        acknowledge_resources(steps, [jobs], "Each job has a name of its own, which no other may have had.")
        rule = stack.format_arn(
            service="events", resource="rule", resource_name=STOPPING, arn_format=ArnFormat.SLASH_RESOURCE_NAME
        )
        allow(steps, [f"events:{verb}" for verb in ("PutTargets", "PutRule", "DescribeRule")], [rule])
        allow_passing_to_sagemaker(steps, [self.role.role_arn])


def check_processing_type(file: Path, instance_type: str) -> None:
    """Raises `UsageError` for an ml.* type without processing jobs. `file` is the one that names the type."""
    _, family, size = instance_type.split(".")
    if size not in SIZES.get(family, ()):
        raise UsageError(
            f"{file}: {instance_type}: SageMaker has no processing jobs on it. Write it as EC2 does, without ml., to "
            "run the batch on ECS, or choose another."
        )
