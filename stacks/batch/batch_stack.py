"""A workload as a scheduled batch: buckets, tasks on ECS, the steps of a run, alarms."""

from aws_cdk import Annotations, CfnOutput, Stack
from constructs import Construct

from stacks.batch.scheduled_batch import ScheduledBatch
from stacks.budget import cost_tags
from stacks.deployment import plan_shards, problems_of_hardware
from stacks.ecs.fleet import machine
from stacks.ecs.shared_network import PrivateNetwork, Shared
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
        refuse(problems_of_hardware(props, shards.choice, region_of(self)))
        kind = machine(shards.choice.file, shards.choice.instance_type).kind
        network = PrivateNetwork(self, "Network", workload=workload, shared=shared)
        batch = ScheduledBatch(
            self,
            "Default",  # Leaves no trace in the logical ids of its resources.
            archive=props.built.archive(self, "Archive"),
            image=OwnImage(self, "Image", uri=hosting.image_uri, kind=kind, workload=props).image,
            objective=objective,
            schedule=hosting.schedule,
            vpc=network.vpc,
            vpc_subnets=network.subnets,
            instance_type=shards.choice.instance_type,
            shards=shards.count,
            enabled=props.options.in_production,
            deadline_hours=hosting.deadline_hours,
            max_bad_share=hosting.max_bad_share,
            output_days=hosting.output_days,
            workload=workload.name,
            kms_key=named_key(self, hosting.kms_key_arn),
            alarm_topic=props.options.alarm_topic,
            alarm_email=props.options.alarm_email,
        )
        CfnOutput(self, "InputBucket", value=batch.input.bucket_name)
        CfnOutput(self, "OutputBucket", value=batch.output.bucket_name)
        CfnOutput(self, "StateMachineArn", value=batch.machine.state_machine_arn)
        CfnOutput(self, "AlarmTopicArn", value=batch.paging.topic.topic_arn)
