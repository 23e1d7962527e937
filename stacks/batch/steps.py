"""A run of a batch as a state machine: name it after its day, answer all shards at once, then account for every row.

What a shard and the account do is given as a `BatchWork`; the result is the state machine and its schedule. A shard
that fails is started again and answers what is missing. So does a run that is started again by hand, for the same day,
with {"time": "2026-11-21T02:00:00Z"}. A day without input ends the run before an instance is started for it: neither
waiting nor another try would bring the rows.
"""

from dataclasses import dataclass
from typing import Protocol

from aws_cdk import Duration, RemovalPolicy
from aws_cdk import aws_events as events
from aws_cdk import aws_events_targets as targets
from aws_cdk import aws_iam as iam
from aws_cdk import aws_logs as logs
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_stepfunctions as sfn
from aws_cdk import aws_stepfunctions_tasks as tasks
from constructs import Construct

from stacks.grants import acknowledge_log, acknowledge_policy_to_checkov, acknowledge_resources

TIME = "$.time"
"""Path of the time at which the run was due."""
DAY = "$.day"
"""Path of the run's name, such as 2026-11-21."""
SHARDS = "$.shards"
"""Path of the shards, written 1/3, 2/3, 3/3 as the batch program takes them."""
FOUND = "$.found"
"""Path of the number of objects that the day's input has, 0 or 1: more are not counted."""
MISSING_INPUT = "MissingInput"
"""The error with which a run of a day without input ends."""
RETRIES = 3
RETRY_AFTER = Duration.minutes(1)


class BatchWork(Protocol):
    """Makes the states of a run. Each of them is retried as a whole and has no result."""

    def shards(self, scope: Construct) -> sfn.IChainable: ...

    def account(self, scope: Construct) -> sfn.IChainable: ...


@dataclass(frozen=True, kw_only=True, slots=True)
class BatchStepsProps:
    schedule: str
    scheduled: bool
    """False where runs start by hand alone: the schedule is there and disabled."""
    input: s3.IBucket
    shards: int
    deadline: Duration
    work: BatchWork
    role: iam.Role


class BatchSteps(Construct):
    """`machine`, and the `rule` that starts it."""

    def __init__(self, scope: Construct, id: str, props: BatchStepsProps) -> None:
        super().__init__(scope, id)
        name_run = sfn.Pass(
            self,
            "NameRun",
            state_name="Name the run after its day",
            parameters={
                "day": sfn.JsonPath.array_get_item(sfn.JsonPath.string_split(sfn.JsonPath.string_at(TIME), "T"), 0),
                "shards": [f"{number}/{props.shards}" for number in range(1, props.shards + 1)],
            },
        )
        answer = sfn.Chain.start(props.work.shards(self)).next(props.work.account(self))
        chain = name_run.next(self._look_for_input(props.input)).next(self._unless_missing(props.input, answer))
        log = logs.LogGroup(
            self,
            "Log",
            retention=logs.RetentionDays.ONE_MONTH,
            removal_policy=RemovalPolicy.DESTROY,
        )
        acknowledge_log(log)
        self.machine = sfn.StateMachine(
            self,
            "Machine",
            role=props.role,
            definition_body=sfn.DefinitionBody.from_chainable(chain),
            timeout=props.deadline,
            tracing_enabled=True,
            logs=sfn.LogOptions(destination=log, level=sfn.LogLevel.ALL, include_execution_data=True),
        )
        reason = "Log delivery, X-Ray, and tasks that have no name before they run are on no resource; CDK's wording."
        acknowledge_resources(props.role, ["*"], reason)
        acknowledge_policy_to_checkov(props.role, reason)
        schedule = events.Schedule.expression(props.schedule)
        self.rule = events.Rule(self, "Schedule", schedule=schedule, enabled=props.scheduled)
        due = events.RuleTargetInput.from_object({"time": events.EventField.time})
        self.rule.add_target(targets.SfnStateMachine(self.machine, input=due))

    def _look_for_input(self, bucket: s3.IBucket) -> sfn.TaskStateBase:
        folder = sfn.JsonPath.format("{}/", sfn.JsonPath.string_at(DAY))
        state = tasks.CallAwsService(
            self,
            "LookForInput",
            state_name="Look for the day's input",
            service="s3",
            action="listObjectsV2",
            iam_action="s3:ListBucket",
            iam_resources=[bucket.bucket_arn],
            # The console makes an object for a folder, which is none of the rows: the list starts behind it.
            parameters={"Bucket": bucket.bucket_name, "Prefix": folder, "StartAfter": folder, "MaxKeys": 1},
            result_selector={"objects": sfn.JsonPath.number_at("$.KeyCount")},
            result_path=FOUND,
        )
        return with_retries(state)

    def _unless_missing(self, bucket: s3.IBucket, answer: sfn.Chain) -> sfn.Choice:
        cause = f"s3://{bucket.bucket_name}/{{}}/ is empty. Put the rows there and start the run again for that day."
        missing = sfn.Fail(
            self,
            "Missing",
            state_name="There is no input",
            error=MISSING_INPUT,
            cause_path=sfn.JsonPath.format(cause, sfn.JsonPath.string_at(DAY)),
        )
        choice = sfn.Choice(self, "IsThereInput", state_name="Is there input?")
        return choice.when(sfn.Condition.number_equals(f"{FOUND}.objects", 0), missing).otherwise(answer)


def with_retries(state: sfn.TaskStateBase) -> sfn.TaskStateBase:
    state.add_retry(errors=["States.ALL"], interval=RETRY_AFTER, max_attempts=RETRIES, backoff_rate=2)
    return state


def shard_command(model: str, shard: str) -> str:
    """Returns the shell command that answers one shard; the shell has INPUT, OUTPUT and DAY in its environment.

    A state machine's JSONPath cannot compute the words of a command, but it can set environment variables. A shard
    accepts any share of bad rows, because only the account sees the rows of all shards.
    """
    return (
        f'exec python3 -m containers.batch --model {model} --input "$INPUT/$DAY" --output "$OUTPUT/$DAY" '
        f'--shard "{shard}" --summary "$OUTPUT/runs/$DAY/" --max-bad-share 1'
    )


def account_command(max_bad_share: float) -> str:
    """Returns the shell command that accounts for every row, in the same environment."""
    return (
        'exec python3 -m containers.batch.account --input "$INPUT/$DAY" --output "$OUTPUT/$DAY" '
        f'--summaries "$OUTPUT/runs/$DAY" --max-bad-share {max_bad_share}'
    )
