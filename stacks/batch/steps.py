"""A run of a batch as a state machine: name it after its day, all shards at once, then the account of every row.

In: what one shard and the account do (ecs_batch_work.py). Out: the state machine and its schedule. A shard that fails
is started again and does what is missing; a run started again for the same day, by hand with
{"time": "2026-11-21T02:00:00Z"}, does so too.
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

from stacks.grants import acknowledge_resources

DAY = "$.day"
"""Where each state finds the run's name: 2026-11-21."""
SHARDS = "$.shards"
"""1/3, 2/3, 3/3, as the batch program takes them."""
RETRIES = 3
RETRY_AFTER = Duration.minutes(1)


class Work(Protocol):
    """What the steps do. Each is retried as a whole, and gives no result."""

    def shards(self, scope: Construct) -> sfn.IChainable: ...

    def account(self, scope: Construct) -> sfn.IChainable: ...


@dataclass(frozen=True, kw_only=True, slots=True)
class BatchStepsProps:
    schedule: str
    shards: int
    deadline: Duration
    work: Work
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
                "day": sfn.JsonPath.array_get_item(sfn.JsonPath.string_split(_TIME, "T"), 0),
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
        self.rule = events.Rule(self, "Schedule", schedule=events.Schedule.expression(props.schedule))
        when = events.RuleTargetInput.from_object({"time": events.EventField.time})
        self.rule.add_target(targets.SfnStateMachine(self.machine, input=when))


_TIME = sfn.JsonPath.string_at("$.time")


def with_retries(state: sfn.TaskStateBase) -> sfn.TaskStateBase:
    state.add_retry(errors=["States.ALL"], interval=RETRY_AFTER, max_attempts=RETRIES, backoff_rate=2)
    return state
