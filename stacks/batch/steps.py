"""A run of a batch as a state machine: look for the day's input, answer all shards at once, account for every row.

A restarted shard, or a run started again with {"time": "2026-11-21T02:00:00Z"}, answers the missing rows.
"""

from aws_cdk import ArnFormat, Duration, Stack
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_ecs as ecs
from aws_cdk import aws_events as events
from aws_cdk import aws_events_targets as targets
from aws_cdk import aws_iam as iam
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_stepfunctions as sfn
from aws_cdk import aws_stepfunctions_tasks as tasks
from constructs import Construct

from stacks.batch.storage import BatchStorage
from stacks.buckets_and_logs import log_group
from stacks.ecs.fleet import EcsFleet
from stacks.ecs.task import EcsTask
from stacks.grants import acknowledge_policy_to_checkov, acknowledge_resources
from stacks.model_archive import ModelArchive
from workloads import ScheduledBatchHosting

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
CONTAINER = "batch"
ACCOUNT_CPU = 1024


class BatchSteps(Construct):
    """`machine`, and the `rule` that starts it. Without `scheduled` the rule is disabled.

    Each shard is an ECS task that has an instance to itself. `role` is the state machine's.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        hosting: ScheduledBatchHosting,
        scheduled: bool,
        shards: int,
        fleet: EcsFleet,
        shard: EcsTask,
        account: EcsTask,
        archive: ModelArchive,
        storage: BatchStorage,
        role: iam.Role,
    ) -> None:
        super().__init__(scope, id)
        self._fleet, self._storage = fleet, storage
        self._group = ec2.SecurityGroup(
            self, "TaskGroup", vpc=fleet.vpc, description="Tasks of the batch. They accept no connections."
        )
        archive.grant_read(shard.role)
        for task in (shard, account):
            storage.grant_run(task.role)
            _acknowledge_any_revision(role, task.definition)
        # CDK's own grant lets the state machine hand the tasks' roles to any service; a denial wins over it.
        condition = {"StringNotEquals": {"iam:PassedToService": "ecs-tasks.amazonaws.com"}}
        deny = iam.PolicyStatement(
            effect=iam.Effect.DENY, actions=["iam:PassRole"], resources=["*"], conditions=condition
        )
        role.add_to_policy(deny)
        name_run = sfn.Pass(
            self,
            "NameRun",
            state_name="Name the run after its day",
            parameters={
                "day": sfn.JsonPath.array_get_item(sfn.JsonPath.string_split(sfn.JsonPath.string_at(TIME), "T"), 0),
                "shards": [f"{number}/{shards}" for number in range(1, shards + 1)],
            },
        )
        each_shard = sfn.Map(
            self,
            "Shards",
            state_name="Answer every shard",
            items_path=SHARDS,
            item_selector={"day": sfn.JsonPath.string_at(DAY), "shard": sfn.JsonPath.string_at("$$.Map.Item.Value")},
            result_path=sfn.JsonPath.DISCARD,
        )
        command = shard_command(archive.url, "$SHARD")
        each_shard.item_processor(self._run("Shard", "Answer one shard", shard, command, fleet.cpu, SHARD="$.shard"))
        command = account_command(hosting.max_bad_share)
        accounting = self._run("Account", "Account for every row", account, command, ACCOUNT_CPU)
        answer = sfn.Chain.start(each_shard).next(accounting)
        chain = name_run.next(self._look_for_input(storage.input)).next(self._unless_missing(storage.input, answer))
        # Other names add to the resource policy of CloudWatch Logs, whose size is limited.
        log = log_group(self, "Log", f"/aws/vendedlogs/states/{Stack.of(self).stack_name}")
        self.machine = sfn.StateMachine(
            self,
            "Machine",
            role=role,
            definition_body=sfn.DefinitionBody.from_chainable(chain),
            timeout=Duration.hours(hosting.deadline_hours),
            tracing_enabled=True,
            logs=sfn.LogOptions(destination=log, level=sfn.LogLevel.ALL, include_execution_data=True),
        )
        reason = "Log delivery, X-Ray, and tasks that have no name before they run are on no resource; CDK's wording."
        acknowledge_resources(role, ["*"], reason)
        acknowledge_policy_to_checkov(role, reason)
        self.rule = events.Rule(
            self, "Schedule", schedule=events.Schedule.expression(hosting.schedule), enabled=scheduled
        )
        due = events.RuleTargetInput.from_object({"time": events.EventField.time})
        self.rule.add_target(targets.SfnStateMachine(self.machine, input=due))

    def _run(self, id: str, name: str, task: EcsTask, command: str, cpu: int, **variables: str) -> sfn.TaskStateBase:
        """Returns the state that runs a command. `variables` are paths of the state's input."""
        fleet, storage = self._fleet, self._storage
        locations = {"INPUT": storage.input.s3_url_for_object(), "OUTPUT": storage.output.s3_url_for_object()}
        container = task.add_container(CONTAINER, ["sh", "-c", command], locations, cpu)
        override = tasks.ContainerOverride(
            container_definition=container,
            environment=[
                tasks.TaskEnvironmentVariable(name=key, value=sfn.JsonPath.string_at(path))
                for key, path in {"DAY": DAY, **variables}.items()
            ],
        )
        capacity = tasks.CapacityProviderOptions.custom(capacity_provider_strategy=[fleet.strategy])
        state = tasks.EcsRunTask(
            self,
            id,
            state_name=name,
            integration_pattern=sfn.IntegrationPattern.RUN_JOB,
            cluster=fleet.cluster,
            task_definition=task.definition,
            launch_target=tasks.EcsEc2LaunchTarget(
                capacity_provider_options=capacity, placement_constraints=fleet.alone
            ),
            subnets=fleet.subnets,
            security_groups=[self._group],
            container_overrides=[override],
            result_path=sfn.JsonPath.DISCARD,
        )
        return with_retries(state)

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


def _acknowledge_any_revision(role: iam.Role, definition: ecs.Ec2TaskDefinition) -> None:
    """Answers the finding on CDK's own grant, which lets the state machine run any revision of a task."""
    arn = Stack.of(definition).split_arn(definition.task_definition_arn, ArnFormat.SLASH_RESOURCE_NAME)
    family = f"arn:{arn.partition}:{arn.service}:{arn.region}:{arn.account}:{arn.resource}/{arn.resource_name}:*"
    acknowledge_resources(role, [family], "A run keeps the task revision that it started with, also after an update.")


def with_retries(state: sfn.TaskStateBase) -> sfn.TaskStateBase:
    state.add_retry(errors=["States.ALL"], interval=RETRY_AFTER, max_attempts=RETRIES, backoff_rate=2)
    return state


def shard_command(model: str, shard: str) -> str:
    """Returns the shell command that answers one shard, with INPUT, OUTPUT and DAY in its environment.

    A shard accepts any share of bad rows: only the account sees the rows of all shards.
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
