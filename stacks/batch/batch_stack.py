"""A workload as a scheduled batch: buckets, tasks on ECS, the steps of a run, alarms."""

from functools import partial

from aws_cdk import Annotations, CfnOutput, Stack
from aws_cdk import aws_iam as iam
from constructs import Construct

from stacks.batch.steps import BatchSteps
from stacks.batch.storage import BatchStorage
from stacks.batch.watch import BatchWatch
from stacks.budget import cost_tags
from stacks.deployment import plan_shards, problems_of_hardware
from stacks.ecs.fleet import EcsFleet, machine
from stacks.ecs.shared_network import PrivateNetwork, Shared
from stacks.ecs.task import EcsTask
from stacks.own_image import OwnImage
from stacks.workload_stack import WorkloadStackProps, add_legacy_note, add_warnings, named_key, refuse, region_of
from workloads import ScheduledBatchHosting, ThroughputObjective, UsageError


class ScheduledBatchStack(Stack):
    """Has the outputs InputBucket, OutputBucket, StateMachineArn and AlarmTopicArn."""

    def __init__(
        self, scope: Construct, id: str, hosting: ScheduledBatchHosting, props: WorkloadStackProps, shared: Shared
    ) -> None:
        workload = props.folder.workload
        tags = dict(cost_tags(props.options.stage, workload.name))
        super().__init__(scope, id, env=props.environment, description=workload.description, tags=tags)
        objective = workload.objective
        if not isinstance(objective, ThroughputObjective):
            raise UsageError(
                f"{props.folder.file}: objective: is a latency, but a scheduled batch is held to its throughput. "
                "Set objective.rows_per_second and nothing else, or choose another hosting.kind."
            )
        add_legacy_note(self, props.folder)
        shards = plan_shards(props, hosting)
        add_warnings(self, shards.warnings)
        if not props.options.in_production:
            text = (
                "The schedule is off outside of -c stage=production: start a run yourself, as docs/deploying.md says."
            )
            Annotations.of(self).add_info_v2("batch:schedule-off", text)
        key = named_key(self, hosting.kms_key_arn)
        storage = BatchStorage(self, "Storage", key=key, output_days=hosting.output_days)
        archive = props.built.archive(self, "Archive")
        role = iam.Role(
            self,
            "StepsRole",
            assumed_by=iam.ServicePrincipal("states.amazonaws.com"),
            description=f"Lets the steps of {workload.name} start what answers and accounts for its rows.",
        )
        refuse(problems_of_hardware(props, shards.choice, region_of(self)))
        runs_on = machine(shards.choice.file, shards.choice.instance_type)
        network = PrivateNetwork(self, "Network", workload=workload, shared=shared)
        fleet = EcsFleet(
            self, "Fleet", vpc=network.vpc, subnets=network.subnets, machine=runs_on, max_instances=shards.count
        )
        image = OwnImage(self, "Image", uri=hosting.image_uri, kind=runs_on.kind, workload=props).image
        task = partial(EcsTask, self, workload=workload.name, image=image, key=key)
        steps = BatchSteps(
            self,
            "Steps",
            hosting=hosting,
            scheduled=props.options.in_production,
            shards=shards.count,
            fleet=fleet,
            shard=task("Shard", devices=runs_on.devices, purpose="reads its archive and rows, writes answers"),
            account=task("Account", devices=(), purpose="reads rows and answers, writes the manifest"),
            archive=archive,
            storage=storage,
            role=role,
        )
        watch = BatchWatch(
            self,
            "Watch",
            workload=workload.name,
            steps=steps,
            objective=objective,
            deadline_hours=hosting.deadline_hours,
            options=props.options,
            daily=hosting.daily and props.options.in_production,
            own_key=key is not None,
        )
        CfnOutput(self, "InputBucket", value=storage.input.bucket_name)
        CfnOutput(self, "OutputBucket", value=storage.output.bucket_name)
        CfnOutput(self, "StateMachineArn", value=steps.machine.state_machine_arn)
        CfnOutput(self, "AlarmTopicArn", value=watch.paging.topic.topic_arn)
