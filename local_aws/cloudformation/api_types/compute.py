"""Types that would run something: endpoints' parts, ECS services and their machines, schedules, builds, pipelines.

moto keeps them and runs none. The endpoint itself waits for a Triton and is in `endpoint_types`.
"""

from local_aws.cloudformation.api_type import ApiType, Properties

_ASG_ONLY_HERE = ("MetricsCollection", "NotificationConfigurations")


def _auto_scaling_group(properties: Properties, _region: str) -> Properties:
    """Joins the subnets, which are one text in the API. Leaves out group metrics and notifications, which are calls of
    their own that moto ignores."""
    kept = {key: value for key, value in properties.items() if key not in _ASG_ONLY_HERE}
    subnets = kept.get("VPCZoneIdentifier")
    return {**kept, "VPCZoneIdentifier": ",".join(subnets)} if isinstance(subnets, list) else kept


def _pipeline(properties: Properties, _region: str) -> Properties:
    """Leaves out the restart on update, which CloudFormation itself would do; nothing runs here to be restarted."""
    return {key: value for key, value in properties.items() if key != "RestartExecutionOnUpdate"}


SERVING = (
    ApiType(
        name="AWS::SageMaker::Model",
        service="sagemaker",
        create="CreateModel",
        delete="DeleteModel",
        ref="answer.ModelArn",
        attributes={"ModelName": "request.ModelName", "ModelArn": "answer.ModelArn"},
        keys={"ModelName": "request.ModelName"},
        named_by="ModelName",
    ),
    ApiType(
        name="AWS::SageMaker::EndpointConfig",
        service="sagemaker",
        create="CreateEndpointConfig",
        delete="DeleteEndpointConfig",
        ref="answer.EndpointConfigArn",
        attributes={
            "EndpointConfigName": "request.EndpointConfigName",
            "EndpointConfigArn": "answer.EndpointConfigArn",
        },
        keys={"EndpointConfigName": "request.EndpointConfigName"},
        named_by="EndpointConfigName",
    ),
)

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
        overwrites=True,
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
        renames={"PlacementStrategies": "placementStrategy"},
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
        prepare=_pipeline,
    ),
)

COMPUTE = (*SERVING, *ECS, *BATCH, *RELEASE)
