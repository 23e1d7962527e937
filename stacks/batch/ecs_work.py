"""A batch's steps as ECS tasks, one for each shard, each alone on an instance of a fleet that scales from zero."""

from dataclasses import dataclass

from aws_cdk import ArnFormat, Stack
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_ecs as ecs
from aws_cdk import aws_iam as iam
from aws_cdk import aws_stepfunctions as sfn
from aws_cdk import aws_stepfunctions_tasks as tasks
from constructs import Construct

from stacks.batch.steps import DAY, SHARDS, account_command, shard_command, with_retries
from stacks.batch.storage import BatchStorage
from stacks.ecs.fleet import EcsFleet
from stacks.ecs.private_network import PrivateNetwork
from stacks.ecs.task import EcsTask
from stacks.grants import acknowledge_resources
from stacks.model_archive import ModelArchive

CONTAINER = "batch"
ACCOUNT_CPU = 1024


@dataclass(frozen=True, kw_only=True, slots=True)
class EcsBatchWorkProps:
    network: PrivateNetwork
    fleet: EcsFleet
    shard: EcsTask
    account: EcsTask
    archive: ModelArchive
    storage: BatchStorage
    max_bad_share: float
    role: iam.Role
    """The state machine's role."""


class EcsBatchWork(Construct):
    """A `BatchWork` whose states run ECS tasks."""

    def __init__(self, scope: Construct, id: str, props: EcsBatchWorkProps) -> None:
        super().__init__(scope, id)
        self._props = props
        self._group = ec2.SecurityGroup(
            self, "TaskGroup", vpc=props.network.vpc, description="Tasks of the batch: nobody calls them."
        )
        self._shard = self._container(props.shard, shard_command(props.archive.url, "$SHARD"), props.fleet.cpu)
        self._account = self._container(props.account, account_command(props.max_bad_share), ACCOUNT_CPU)
        props.archive.grant_read(props.shard.role)
        for task in (props.shard, props.account):
            props.storage.grant_run(task.role)
            _acknowledge_any_revision(props.role, task.definition)
        _pass_roles_to_ecs_alone(props.role)

    def shards(self, scope: Construct) -> sfn.IChainable:
        each_shard = sfn.Map(
            scope,
            "Shards",
            state_name="Answer every shard",
            items_path=SHARDS,
            item_selector={"day": sfn.JsonPath.string_at(DAY), "shard": sfn.JsonPath.string_at("$$.Map.Item.Value")},
            result_path=sfn.JsonPath.DISCARD,
        )
        run = self._run(scope, "Shard", "Answer one shard", self._props.shard, self._shard, {"SHARD": "$.shard"})
        return each_shard.item_processor(run)

    def account(self, scope: Construct) -> sfn.IChainable:
        return self._run(scope, "Account", "Account for every row", self._props.account, self._account, {})

    def _container(self, task: EcsTask, command: str, cpu: int) -> ecs.ContainerDefinition:
        locations = {
            "INPUT": self._props.storage.input.s3_url_for_object(),
            "OUTPUT": self._props.storage.output.s3_url_for_object(),
        }
        return task.add_container(CONTAINER, ["sh", "-c", command], task.environment(locations), cpu)

    def _run(
        self,
        scope: Construct,
        id: str,
        name: str,
        task: EcsTask,
        container: ecs.ContainerDefinition,
        variables: dict[str, str],
    ) -> sfn.TaskStateBase:
        fleet = self._props.fleet
        capacity = tasks.CapacityProviderOptions.custom(capacity_provider_strategy=[fleet.strategy])
        override = tasks.ContainerOverride(
            container_definition=container,
            environment=[
                tasks.TaskEnvironmentVariable(name=key, value=sfn.JsonPath.string_at(path))
                for key, path in {"DAY": DAY, **variables}.items()
            ],
        )
        state = tasks.EcsRunTask(
            scope,
            id,
            state_name=name,
            integration_pattern=sfn.IntegrationPattern.RUN_JOB,
            cluster=fleet.cluster,
            task_definition=task.definition,
            launch_target=tasks.EcsEc2LaunchTarget(
                capacity_provider_options=capacity, placement_constraints=fleet.alone
            ),
            subnets=self._props.network.subnets,
            security_groups=[self._group],
            container_overrides=[override],
            result_path=sfn.JsonPath.DISCARD,
        )
        return with_retries(state)


def _pass_roles_to_ecs_alone(role: iam.Role) -> None:
    """CDK's own grant lets the state machine hand the tasks' roles to any service; a denial wins over it."""
    role.add_to_policy(
        iam.PolicyStatement(
            effect=iam.Effect.DENY,
            actions=["iam:PassRole"],
            resources=["*"],
            conditions={"StringNotEquals": {"iam:PassedToService": "ecs-tasks.amazonaws.com"}},
        )
    )


def _acknowledge_any_revision(role: iam.Role, definition: ecs.Ec2TaskDefinition) -> None:
    """Answers the finding on CDK's own grant, which lets the state machine run any revision of a task."""
    arn = Stack.of(definition).split_arn(definition.task_definition_arn, ArnFormat.SLASH_RESOURCE_NAME)
    family = f"arn:{arn.partition}:{arn.service}:{arn.region}:{arn.account}:{arn.resource}/{arn.resource_name}:*"
    acknowledge_resources(role, [family], "A run that has begun goes on with the task it began with after an update.")
