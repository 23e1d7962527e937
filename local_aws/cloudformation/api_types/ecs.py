"""Clusters, services and the machines that they would run on. moto starts neither a task nor an instance."""

from local_aws.cloudformation.api_type import ApiType, Properties

_ASG_ONLY_HERE = ("MetricsCollection", "NotificationConfigurations")


def _auto_scaling_group(properties: Properties, _region: str) -> Properties:
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
