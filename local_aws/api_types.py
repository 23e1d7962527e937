"""The types that a service's own API makes: one row each, moto behind the call.

moto's CloudFormation has some of these too, but passes on only a few of their properties. What moto's own API does not
keep of a request is not here to be known; `docs/rehearsal.md` shows it.
"""

from local_aws.api_type import ApiType, Properties

_ASG_ONLY_HERE = ("MetricsCollection", "NotificationConfigurations")


def _auto_scaling_group(properties: Properties) -> Properties:
    """Subnets are one text in the API; group metrics and notifications are calls of their own, which moto ignores."""
    kept = {key: value for key, value in properties.items() if key not in _ASG_ONLY_HERE}
    subnets = kept.get("VPCZoneIdentifier")
    return {**kept, "VPCZoneIdentifier": ",".join(subnets)} if isinstance(subnets, list) else kept


ECS = (
    ApiType(
        name="AWS::ECS::Cluster",
        service="ecs",
        create="CreateCluster",
        update="UpdateCluster",
        delete="DeleteCluster",
        ref="answer.cluster.clusterName",
        attributes={"Arn": "answer.cluster.clusterArn"},
        keys={"cluster": "answer.cluster.clusterName"},
        named_by="ClusterName",
        renames={"ClusterSettings": "settings"},
    ),
    ApiType(
        name="AWS::ECS::CapacityProvider",
        service="ecs",
        create="CreateCapacityProvider",
        update="UpdateCapacityProvider",
        delete="DeleteCapacityProvider",
        ref="request.name",
        keys={"name": "request.name", "capacityProvider": "request.name"},
        named_by="Name",
    ),
    ApiType(
        name="AWS::ECS::ClusterCapacityProviderAssociations",
        service="ecs",
        create="PutClusterCapacityProviders",
        delete="PutClusterCapacityProviders",
        delete_with={"capacityProviders": [], "defaultCapacityProviderStrategy": []},
        ref="request.cluster",
        keys={"cluster": "request.cluster"},
    ),
    ApiType(
        name="AWS::ECS::TaskDefinition",
        service="ecs",
        create="RegisterTaskDefinition",
        delete="DeregisterTaskDefinition",
        ref="answer.taskDefinition.taskDefinitionArn",
        attributes={"TaskDefinitionArn": "answer.taskDefinition.taskDefinitionArn"},
        keys={"taskDefinition": "answer.taskDefinition.taskDefinitionArn"},
        named_by="Family",
    ),
    ApiType(
        name="AWS::ECS::Service",
        service="ecs",
        create="CreateService",
        update="UpdateService",
        delete="DeleteService",
        delete_with={"force": True},
        ref="answer.service.serviceArn",
        attributes={"Name": "answer.service.serviceName", "ServiceArn": "answer.service.serviceArn"},
        keys={"cluster": "request.cluster", "service": "answer.service.serviceArn"},
        named_by="ServiceName",
    ),
    ApiType(
        name="AWS::AutoScaling::AutoScalingGroup",
        service="autoscaling",
        create="CreateAutoScalingGroup",
        update="UpdateAutoScalingGroup",
        delete="DeleteAutoScalingGroup",
        delete_with={"ForceDelete": True},
        ref="request.AutoScalingGroupName",
        keys={"AutoScalingGroupName": "request.AutoScalingGroupName"},
        named_by="AutoScalingGroupName",
        prepare=_auto_scaling_group,
    ),
)

WATCH = (
    ApiType(
        name="AWS::CloudWatch::CompositeAlarm",
        service="cloudwatch",
        create="PutCompositeAlarm",
        delete="DeleteAlarms",
        ref="request.AlarmName",
        keys={"AlarmNames": "[request.AlarmName]"},
        named_by="AlarmName",
    ),
    ApiType(
        name="AWS::SNS::Subscription",
        service="sns",
        create="Subscribe",
        delete="Unsubscribe",
        ref="answer.SubscriptionArn",
        keys={"SubscriptionArn": "answer.SubscriptionArn"},
    ),
)

BATCH = (
    ApiType(
        name="AWS::Scheduler::ScheduleGroup",
        service="scheduler",
        create="CreateScheduleGroup",
        delete="DeleteScheduleGroup",
        ref="request.Name",
        attributes={"Arn": "answer.ScheduleGroupArn"},
        keys={"Name": "request.Name"},
        named_by="Name",
    ),
    ApiType(
        name="AWS::Scheduler::Schedule",
        service="scheduler",
        create="CreateSchedule",
        update="UpdateSchedule",
        delete="DeleteSchedule",
        ref="request.Name",
        attributes={"Arn": "answer.ScheduleArn"},
        keys={"Name": "request.Name", "GroupName": "request.GroupName"},
        named_by="Name",
    ),
    ApiType(
        name="AWS::StepFunctions::StateMachine",
        service="stepfunctions",
        create="CreateStateMachine",
        update="UpdateStateMachine",
        delete="DeleteStateMachine",
        ref="answer.stateMachineArn",
        attributes={"Arn": "answer.stateMachineArn", "Name": "request.name"},
        keys={"stateMachineArn": "answer.stateMachineArn"},
        named_by="StateMachineName",
        renames={"StateMachineName": "name", "DefinitionString": "definition", "StateMachineType": "type"},
    ),
)

RELEASE = (
    ApiType(
        name="AWS::CodeBuild::Project",
        service="codebuild",
        create="CreateProject",
        update="UpdateProject",
        delete="DeleteProject",
        ref="request.name",
        attributes={"Arn": "answer.project.arn"},
        keys={"name": "request.name"},
        named_by="Name",
    ),
    ApiType(
        name="AWS::CodePipeline::Pipeline",
        service="codepipeline",
        create="CreatePipeline",
        update="UpdatePipeline",
        delete="DeletePipeline",
        ref="request.pipeline.name",
        attributes={"Version": "to_string(answer.pipeline.version)"},
        keys={"name": "request.pipeline.name"},
        named_by="Name",
        within="pipeline",
    ),
)

API_TYPES = (*ECS, *WATCH, *BATCH, *RELEASE)
