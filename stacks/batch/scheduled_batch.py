"""A scheduled batch. A run is a state machine: look for the day's input, answer all shards, account for every row.

A restarted shard, or a run started again with {"time": "2026-11-21T02:00:00Z"}, answers the missing rows.
"""

from functools import partial
from pathlib import Path

from aws_cdk import ArnFormat, Duration, Names, Stack
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_ecs as ecs
from aws_cdk import aws_events as events
from aws_cdk import aws_events_targets as targets
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_stepfunctions as sfn
from aws_cdk import aws_stepfunctions_tasks as tasks
from constructs import Construct

from stacks.batch.storage import BatchStorage
from stacks.batch.watch import BatchWatch
from stacks.buckets_and_logs import log_group
from stacks.context import Options
from stacks.ecs.fleet import EcsFleet, machine
from stacks.ecs.metrics import BatchMetrics
from stacks.ecs.task import EcsTask
from stacks.grants import acknowledge_policy_to_checkov, acknowledge_resources
from stacks.model_archive import ModelArchive
from stacks.own_image import EcrImage
from workloads import ScheduledBatchHosting, ThroughputObjective

DEFAULTS = ScheduledBatchHosting(kind="scheduled-batch", target="model", schedule="rate(1 day)")
LONGEST_LOG_NAME = 400
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


class ScheduledBatch(BatchMetrics, Construct):
    """A state machine that answers the rows of a day, with a schedule, buckets, alarms, a topic and a dashboard.

    Rows are objects below `input`/<day>/ and answers below `output`/<day>/. Each of `shards` ECS tasks has an instance
    to itself. `paging.topic` publishes alarms.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        archive: ModelArchive,
        image: EcrImage,
        objective: ThroughputObjective,
        schedule: str,
        vpc: ec2.IVpc,
        instance_type: str,
        shards: int = 1,
        vpc_subnets: ec2.SubnetSelection | None = None,
        enabled: bool = True,
        deadline_hours: int = DEFAULTS.deadline_hours,
        max_bad_share: float = DEFAULTS.max_bad_share,
        output_days: int = DEFAULTS.output_days,
        workload: str | None = None,
        kms_key: kms.IKey | None = None,
        alarm_topic: str | None = None,
        alarm_email: str | None = None,
    ) -> None:
        """Raises `InvalidDocument` or `UsageError`.

        `schedule` is an expression of EventBridge, at most daily; without `enabled` it starts no run. A run fails after
        `deadline_hours`, or with a larger share of bad rows than `max_bad_share`. Answers expire after `output_days`.
        Runs report metrics under `workload`, by default the construct's id.
        """
        super().__init__(scope, id)
        self.workload = workload or id
        arguments = {"schedule": schedule, "shards": shards, "deadline_hours": deadline_hours}
        arguments |= {"max_bad_share": max_bad_share, "output_days": output_days}
        hosting = ScheduledBatchHosting.from_table(Path(self.node.path), DEFAULTS.model_dump() | arguments)
        runs_on = machine(self.node.path, instance_type)
        self._storage = BatchStorage(self, "Storage", key=kms_key, output_days=output_days)
        self.input, self.output = self._storage.input, self._storage.output
        role = iam.Role(
            self,
            "StepsRole",
            assumed_by=iam.ServicePrincipal("states.amazonaws.com"),
            description=f"Lets the steps of {self.workload} start what answers and accounts for its rows.",
        )
        self._fleet = EcsFleet(self, "Fleet", vpc=vpc, subnets=vpc_subnets, machine=runs_on, max_instances=shards)
        make = partial(EcsTask, self, workload=self.workload, image=image, key=kms_key)
        shard = make("Shard", devices=runs_on.devices, purpose="reads its archive and rows, writes answers")
        account = make("Account", devices=(), purpose="reads rows and answers, writes the manifest")
        self._steps = Construct(self, "Steps")
        self._group = ec2.SecurityGroup(
            self._steps, "TaskGroup", vpc=vpc, description="Tasks of the batch. They accept no connections."
        )
        archive.grant_read(shard.role)
        for task in (shard, account):
            self._storage.grant_run(task.role)
            _acknowledge_any_revision(role, task.definition)
        # CDK's own grant lets the state machine hand the tasks' roles to any service; a denial wins over it.
        condition = {"StringNotEquals": {"iam:PassedToService": "ecs-tasks.amazonaws.com"}}
        deny = iam.PolicyStatement(
            effect=iam.Effect.DENY, actions=["iam:PassRole"], resources=["*"], conditions=condition
        )
        role.add_to_policy(deny)
        chain = self._chain(hosting, shard, account, archive.url)
        name = Names.unique_resource_name(
            self, max_length=LONGEST_LOG_NAME, separator="-", allowed_special_characters="-"
        )
        # Other names add to the resource policy of CloudWatch Logs, whose size is limited.
        log = log_group(self._steps, "Log", f"/aws/vendedlogs/states/{name}")
        self.machine = sfn.StateMachine(
            self._steps,
            "Machine",
            role=role,
            definition_body=sfn.DefinitionBody.from_chainable(chain),
            timeout=Duration.hours(deadline_hours),
            tracing_enabled=True,
            logs=sfn.LogOptions(destination=log, level=sfn.LogLevel.ALL, include_execution_data=True),
        )
        reason = "Log delivery, X-Ray, and tasks that have no name before they run are on no resource; CDK's wording."
        acknowledge_resources(role, ["*"], reason)
        acknowledge_policy_to_checkov(role, reason)
        rule = events.Rule(self._steps, "Schedule", schedule=events.Schedule.expression(schedule), enabled=enabled)
        due = events.RuleTargetInput.from_object({"time": events.EventField.time})
        rule.add_target(targets.SfnStateMachine(self.machine, input=due))
        self.paging = BatchWatch(
            self,
            "Watch",
            batch=self,
            objective=objective,
            deadline_hours=deadline_hours,
            options=Options(alarm_topic=alarm_topic, alarm_email=alarm_email),
            daily=hosting.daily and enabled,
            own_key=kms_key is not None,
        ).paging

    def grant_start(self, grantee: iam.IGrantable) -> iam.Grant:
        """Lets `grantee` start a run, with {"time": "2026-11-21T02:00:00Z"} as its input."""
        return self.machine.grant_start_execution(grantee)

    def _chain(self, hosting: ScheduledBatchHosting, shard: EcsTask, account: EcsTask, archive: str) -> sfn.Chain:
        name_run = sfn.Pass(
            self._steps,
            "NameRun",
            state_name="Name the run after its day",
            parameters={
                "day": sfn.JsonPath.array_get_item(sfn.JsonPath.string_split(sfn.JsonPath.string_at(TIME), "T"), 0),
                "shards": [f"{number}/{hosting.shards}" for number in range(1, hosting.shards + 1)],
            },
        )
        each_shard = sfn.Map(
            self._steps,
            "Shards",
            state_name="Answer every shard",
            items_path=SHARDS,
            item_selector={"day": sfn.JsonPath.string_at(DAY), "shard": sfn.JsonPath.string_at("$$.Map.Item.Value")},
            result_path=sfn.JsonPath.DISCARD,
        )
        command, cpu = shard_command(archive, "$SHARD"), self._fleet.cpu
        each_shard.item_processor(self._run("Shard", "Answer one shard", shard, command, cpu, SHARD="$.shard"))
        command = account_command(hosting.max_bad_share)
        accounting = self._run("Account", "Account for every row", account, command, ACCOUNT_CPU)
        answer = sfn.Chain.start(each_shard).next(accounting)
        return name_run.next(self._look_for_input(self.input)).next(self._unless_missing(self.input, answer))

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
            self._steps,
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
            self._steps,
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
            self._steps,
            "Missing",
            state_name="There is no input",
            error=MISSING_INPUT,
            cause_path=sfn.JsonPath.format(cause, sfn.JsonPath.string_at(DAY)),
        )
        choice = sfn.Choice(self._steps, "IsThereInput", state_name="Is there input?")
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
