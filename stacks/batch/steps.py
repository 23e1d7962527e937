"""A run of a batch as a state machine: name it after its day, answer all shards at once, then account for every row.

What a shard and the account do is given as a `BatchWork`; the result is the state machine and its schedule. A shard
that fails is started again and answers what is missing. So does a run that is started again by hand, for the same day,
with {"time": "2026-11-21T02:00:00Z"}.
"""

from dataclasses import dataclass
from typing import Protocol

from aws_cdk import Duration, RemovalPolicy
from aws_cdk import aws_events as events
from aws_cdk import aws_events_targets as targets
from aws_cdk import aws_iam as iam
from aws_cdk import aws_logs as logs
from aws_cdk import aws_stepfunctions as sfn
from constructs import Construct

from stacks.grants import acknowledge_log, acknowledge_policy_to_checkov, acknowledge_resources

TIME = "$.time"
"""Path of the time at which the run was due."""
DAY = "$.day"
"""Path of the run's name, such as 2026-11-21."""
SHARDS = "$.shards"
"""Path of the shards, written 1/3, 2/3, 3/3 as the batch program takes them."""
RETRIES = 3
RETRY_AFTER = Duration.minutes(1)


class BatchWork(Protocol):
    """Makes the states of a run. Each of them is retried as a whole and has no result."""

    def shards(self, scope: Construct) -> sfn.IChainable: ...

    def account(self, scope: Construct) -> sfn.IChainable: ...


@dataclass(frozen=True, kw_only=True, slots=True)
class BatchStepsProps:
    schedule: str
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
        chain = sfn.Chain.start(name_run).next(props.work.shards(self)).next(props.work.account(self))
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
        self.rule = events.Rule(self, "Schedule", schedule=events.Schedule.expression(props.schedule))
        due = events.RuleTargetInput.from_object({"time": events.EventField.time})
        self.rule.add_target(targets.SfnStateMachine(self.machine, input=due))


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
