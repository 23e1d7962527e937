"""Which call of which service tells about a resource of a CloudFormation type, and which lists all there are.

One row for each type that our stacks have; the calls are boto3's, so they would ask an AWS account just the same.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import jmespath
from botocore.exceptions import ClientError

Client = Callable[[str], Any]

# Part of a resource that was never set, or is not kept: local_aws leaves out policies under a condition.
NO_SUCH = (
    "NoSuchBucketPolicy",
    "NoSuchLifecycleConfiguration",
    "NoSuchPublicAccessBlockConfiguration",
    "NoSuchTagSet",
    "OwnershipControlsNotFoundError",
)


@dataclass(frozen=True, kw_only=True)
class Answer:
    service: str
    operation: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    """{id} is what Ref gives, {last} its part after the last / or :."""
    path: str
    """JMESPath in the answer; {id} and {last} too."""
    renames: Mapping[str, str] = field(default_factory=dict)
    """Property → what the answer calls it, at the top."""

    def ask(self, client: Client, physical_id: str, asked: Mapping[str, Any]) -> Any:
        """The answer's part about the resource; None if there is none."""
        parts = {"id": physical_id, "last": physical_id.replace(":", "/").split("/")[-1]}
        parts |= {f"part{number}": part for number, part in enumerate(physical_id.split("|"))}
        if ":service/" in physical_id:
            parts["cluster"] = physical_id.split("/")[-2]
        if ":resource/" in physical_id:
            parts["namespace"] = physical_id.partition(":resource/")[2].split("/")[0]
        if "Roles" in asked:
            parts |= {"role": asked["Roles"][0], "policy": asked.get("PolicyName", "")}
        parameters = _filled(self.parameters, parts)
        try:
            answer = getattr(client(self.service), self.operation)(**parameters)
        except ClientError as error:
            if error.response["Error"]["Code"] in NO_SUCH:
                return {}
            raise
        return jmespath.search(self.path.format(**parts), answer)

    def renamed(self, properties: Mapping[str, Any]) -> dict[str, Any]:
        return {self.renames.get(key, key): value for key, value in properties.items()}


def _filled(value: Any, parts: Mapping[str, str]) -> Any:
    match value:
        case str():
            return value.format(**parts)
        case list():
            return [_filled(each, parts) for each in value]
        case Mapping():
            return {key: _filled(each, parts) for key, each in value.items()}
    return value


_ANSWERS: dict[str, Answer | tuple[Answer, ...]] = {
    "AWS::SageMaker::Model": Answer(
        service="sagemaker", operation="describe_model", parameters={"ModelName": "{last}"}, path="@"
    ),
    "AWS::SageMaker::EndpointConfig": Answer(
        service="sagemaker",
        operation="describe_endpoint_config",
        parameters={"EndpointConfigName": "{last}"},
        path="@",
    ),
    "AWS::SageMaker::Endpoint": Answer(
        service="sagemaker",
        operation="describe_endpoint",
        parameters={"EndpointName": "{last}"},
        path="@",
        renames={"DeploymentConfig": "LastDeploymentConfig"},
    ),
    "AWS::ApplicationAutoScaling::ScalableTarget": (
        Answer(
            service="application-autoscaling",
            operation="describe_scalable_targets",
            parameters={"ServiceNamespace": "{part2}", "ResourceIds": ["{part0}"], "ScalableDimension": "{part1}"},
            path="ScalableTargets[0]",
        ),
        Answer(
            service="application-autoscaling",
            operation="describe_scheduled_actions",
            parameters={"ServiceNamespace": "{part2}", "ResourceId": "{part0}"},
            path="{{ScheduledActions: ScheduledActions}}",
        ),
    ),
    "AWS::ApplicationAutoScaling::ScalingPolicy": Answer(
        service="application-autoscaling",
        operation="describe_scaling_policies",
        parameters={"ServiceNamespace": "{namespace}"},
        path="ScalingPolicies[?PolicyARN=='{id}'] | [0]",
    ),
    "AWS::CloudWatch::Alarm": Answer(
        service="cloudwatch", operation="describe_alarms", parameters={"AlarmNames": ["{id}"]}, path="MetricAlarms[0]"
    ),
    "AWS::CloudWatch::CompositeAlarm": Answer(
        service="cloudwatch",
        operation="describe_alarms",
        parameters={"AlarmNames": ["{id}"], "AlarmTypes": ["CompositeAlarm"]},
        path="CompositeAlarms[0]",
    ),
    "AWS::CloudWatch::Dashboard": Answer(
        service="cloudwatch", operation="get_dashboard", parameters={"DashboardName": "{id}"}, path="@"
    ),
    "AWS::SNS::Topic": Answer(
        service="sns", operation="get_topic_attributes", parameters={"TopicArn": "{id}"}, path="Attributes"
    ),
    "AWS::SNS::TopicPolicy": Answer(
        service="sns",
        operation="get_topic_attributes",
        parameters={"TopicArn": "{id}"},
        path="{{PolicyDocument: Attributes.Policy, Topics: [Attributes.TopicArn]}}",
    ),
    "AWS::KMS::Key": (
        Answer(service="kms", operation="describe_key", parameters={"KeyId": "{id}"}, path="KeyMetadata"),
        Answer(
            service="kms",
            operation="get_key_policy",
            parameters={"KeyId": "{id}", "PolicyName": "default"},
            path="{{KeyPolicy: Policy}}",
        ),
        Answer(
            service="kms",
            operation="get_key_rotation_status",
            parameters={"KeyId": "{id}"},
            path="{{EnableKeyRotation: KeyRotationEnabled}}",
        ),
    ),
    "AWS::KMS::Alias": Answer(service="kms", operation="list_aliases", path="Aliases[?AliasName=='{id}'] | [0]"),
    "AWS::IAM::Role": Answer(service="iam", operation="get_role", parameters={"RoleName": "{id}"}, path="Role"),
    "AWS::IAM::Policy": Answer(
        service="iam",
        operation="get_role_policy",
        parameters={"RoleName": "{role}", "PolicyName": "{policy}"},
        path="{{PolicyDocument: PolicyDocument, PolicyName: PolicyName, Roles: [RoleName]}}",
    ),
    "AWS::IAM::InstanceProfile": Answer(
        service="iam",
        operation="get_instance_profile",
        parameters={"InstanceProfileName": "{id}"},
        path="InstanceProfile.{{Roles: Roles[].RoleName}}",
    ),
    "AWS::S3::Bucket": (
        Answer(
            service="s3",
            operation="get_bucket_encryption",
            parameters={"Bucket": "{id}"},
            path="{{BucketEncryption: {{ServerSideEncryptionConfiguration: ServerSideEncryptionConfiguration.Rules[]."
            "{{ServerSideEncryptionByDefault: ApplyServerSideEncryptionByDefault, BucketKeyEnabled: BucketKeyEnabled}}"
            "}}}}",
        ),
        Answer(service="s3", operation="get_public_access_block", parameters={"Bucket": "{id}"}, path="@"),
        Answer(
            service="s3",
            operation="get_bucket_versioning",
            parameters={"Bucket": "{id}"},
            path="{{VersioningConfiguration: @}}",
        ),
        Answer(service="s3", operation="get_bucket_ownership_controls", parameters={"Bucket": "{id}"}, path="@"),
        Answer(service="s3", operation="get_bucket_tagging", parameters={"Bucket": "{id}"}, path="{{Tags: TagSet}}"),
        Answer(
            service="s3",
            operation="get_bucket_lifecycle_configuration",
            parameters={"Bucket": "{id}"},
            path="{{LifecycleConfiguration: {{Rules: Rules[].{{Id: ID, Status: Status, Prefix: Filter.Prefix, "
            "ExpirationInDays: Expiration.Days, NoncurrentVersionExpiration: NoncurrentVersionExpiration, "
            "AbortIncompleteMultipartUpload: AbortIncompleteMultipartUpload}}}}}}",
        ),
        Answer(
            service="s3",
            operation="get_bucket_logging",
            parameters={"Bucket": "{id}"},
            path="{{LoggingConfiguration: LoggingEnabled.{{DestinationBucketName: TargetBucket, "
            "LogFilePrefix: TargetPrefix}}}}",
        ),
    ),
    "AWS::S3::BucketPolicy": Answer(
        service="s3",
        operation="get_bucket_policy",
        parameters={"Bucket": "{id}"},
        path="{{PolicyDocument: Policy, Bucket: '{id}'}}",
    ),
    "AWS::Logs::LogGroup": (
        Answer(
            service="logs",
            operation="describe_log_groups",
            parameters={"logGroupNamePrefix": "{id}"},
            path="logGroups[0]",
        ),
        Answer(
            service="logs", operation="list_tags_log_group", parameters={"logGroupName": "{id}"}, path="{{Tags: tags}}"
        ),
    ),
    "AWS::ECS::Cluster": Answer(
        service="ecs",
        operation="describe_clusters",
        parameters={"clusters": ["{id}"], "include": ["SETTINGS", "CONFIGURATIONS", "TAGS"]},
        path="clusters[0]",
        renames={"ClusterSettings": "settings"},
    ),
    "AWS::ECS::CapacityProvider": Answer(
        service="ecs",
        operation="describe_capacity_providers",
        parameters={"capacityProviders": ["{id}"]},
        path="capacityProviders[0]",
    ),
    "AWS::ECS::ClusterCapacityProviderAssociations": Answer(
        service="ecs",
        operation="describe_clusters",
        parameters={"clusters": ["{id}"]},
        path="clusters[0]",
        renames={"Cluster": "clusterName"},
    ),
    "AWS::ECS::TaskDefinition": Answer(
        service="ecs",
        operation="describe_task_definition",
        parameters={"taskDefinition": "{id}"},
        path="taskDefinition",
    ),
    "AWS::ECS::Service": Answer(
        service="ecs",
        operation="describe_services",
        parameters={"cluster": "{cluster}", "services": ["{id}"]},
        path="services[0]",
        renames={"Cluster": "clusterArn", "PlacementStrategies": "placementStrategy"},
    ),
    "AWS::AutoScaling::AutoScalingGroup": Answer(
        service="autoscaling",
        operation="describe_auto_scaling_groups",
        parameters={"AutoScalingGroupNames": ["{id}"]},
        path="AutoScalingGroups[0]",
    ),
    "AWS::EC2::LaunchTemplate": Answer(
        service="ec2",
        operation="describe_launch_template_versions",
        parameters={"LaunchTemplateId": "{id}", "Versions": ["$Latest"]},
        path="LaunchTemplateVersions[0]",
    ),
    "AWS::EC2::VPC": (
        Answer(service="ec2", operation="describe_vpcs", parameters={"VpcIds": ["{id}"]}, path="Vpcs[0]"),
        *(
            Answer(
                service="ec2",
                operation="describe_vpc_attribute",
                parameters={"VpcId": "{id}", "Attribute": name[0].lower() + name[1:]},
                path=f"{{{{{name}: {name}.Value}}}}",
            )
            for name in ("EnableDnsHostnames", "EnableDnsSupport")
        ),
    ),
    "AWS::EC2::Subnet": Answer(
        service="ec2", operation="describe_subnets", parameters={"SubnetIds": ["{id}"]}, path="Subnets[0]"
    ),
    "AWS::EC2::RouteTable": Answer(
        service="ec2", operation="describe_route_tables", parameters={"RouteTableIds": ["{id}"]}, path="RouteTables[0]"
    ),
    "AWS::EC2::SubnetRouteTableAssociation": Answer(
        service="ec2",
        operation="describe_route_tables",
        parameters={"Filters": [{"Name": "association.route-table-association-id", "Values": ["{id}"]}]},
        path="RouteTables[].Associations[] | [?RouteTableAssociationId=='{id}'] | [0]",
    ),
    "AWS::EC2::SecurityGroup": (
        Answer(
            service="ec2",
            operation="describe_security_groups",
            parameters={"GroupIds": ["{id}"]},
            path="SecurityGroups[0].{{GroupDescription: Description, VpcId: VpcId, Tags: Tags, GroupName: GroupName}}",
        ),
        *(
            Answer(
                service="ec2",
                operation="describe_security_group_rules",
                parameters={"Filters": [{"Name": "group-id", "Values": ["{id}"]}]},
                path=f"{{{{SecurityGroup{way}: SecurityGroupRules[?IsEgress==`{egress}`].{{{{CidrIp: CidrIpv4, "
                "IpProtocol: IpProtocol, FromPort: FromPort, ToPort: ToPort, Description: Description, "
                "SourceSecurityGroupId: ReferencedGroupInfo.GroupId, DestinationSecurityGroupId: "
                "ReferencedGroupInfo.GroupId, DestinationPrefixListId: PrefixListId}}}}",
            )
            for way, egress in (("Ingress", "false"), ("Egress", "true"))
        ),
    ),
    **{
        f"AWS::EC2::SecurityGroup{way}": Answer(
            service="ec2",
            operation="describe_security_group_rules",
            parameters={"SecurityGroupRuleIds": ["{id}"]},
            path="SecurityGroupRules[0].{{GroupId: GroupId, CidrIp: CidrIpv4, IpProtocol: IpProtocol, "
            "FromPort: FromPort, ToPort: ToPort, Description: Description, "
            "SourceSecurityGroupId: ReferencedGroupInfo.GroupId, "
            "DestinationSecurityGroupId: ReferencedGroupInfo.GroupId, DestinationPrefixListId: PrefixListId}}",
        )
        for way in ("Ingress", "Egress")
    },
    "AWS::EC2::VPCEndpoint": (
        Answer(
            service="ec2",
            operation="describe_vpc_endpoints",
            parameters={"VpcEndpointIds": ["{id}"]},
            path="VpcEndpoints[0]",
        ),
        Answer(
            service="ec2",
            operation="describe_vpc_endpoints",
            parameters={"VpcEndpointIds": ["{id}"]},
            path="VpcEndpoints[0].{{SecurityGroupIds: Groups[].GroupId}}",
        ),
    ),
    "AWS::EC2::FlowLog": Answer(
        service="ec2", operation="describe_flow_logs", parameters={"FlowLogIds": ["{id}"]}, path="FlowLogs[0]"
    ),
    "AWS::ElasticLoadBalancingV2::LoadBalancer": (
        Answer(
            service="elbv2",
            operation="describe_load_balancers",
            parameters={"LoadBalancerArns": ["{id}"]},
            path="LoadBalancers[0]",
            renames={"Name": "LoadBalancerName"},
        ),
        Answer(
            service="elbv2",
            operation="describe_load_balancers",
            parameters={"LoadBalancerArns": ["{id}"]},
            path="LoadBalancers[0].{{Subnets: AvailabilityZones[].SubnetId}}",
        ),
        Answer(
            service="elbv2",
            operation="describe_load_balancer_attributes",
            parameters={"LoadBalancerArn": "{id}"},
            path="{{LoadBalancerAttributes: Attributes}}",
        ),
    ),
    "AWS::ElasticLoadBalancingV2::TargetGroup": (
        Answer(
            service="elbv2",
            operation="describe_target_groups",
            parameters={"TargetGroupArns": ["{id}"]},
            path="TargetGroups[0]",
            renames={"Name": "TargetGroupName"},
        ),
        Answer(
            service="elbv2",
            operation="describe_target_group_attributes",
            parameters={"TargetGroupArn": "{id}"},
            path="{{TargetGroupAttributes: Attributes}}",
        ),
    ),
    "AWS::ElasticLoadBalancingV2::Listener": Answer(
        service="elbv2", operation="describe_listeners", parameters={"ListenerArns": ["{id}"]}, path="Listeners[0]"
    ),
    "AWS::Scheduler::ScheduleGroup": Answer(
        service="scheduler", operation="get_schedule_group", parameters={"Name": "{id}"}, path="@"
    ),
    "AWS::Scheduler::Schedule": Answer(
        service="scheduler", operation="get_schedule", parameters={"Name": "{id}"}, path="@"
    ),
    "AWS::StepFunctions::StateMachine": Answer(
        service="stepfunctions",
        operation="describe_state_machine",
        parameters={"stateMachineArn": "{id}"},
        path="@",
        renames={"StateMachineName": "name", "DefinitionString": "definition", "StateMachineType": "type"},
    ),
    "AWS::CodeBuild::Project": Answer(
        service="codebuild", operation="batch_get_projects", parameters={"names": ["{id}"]}, path="projects[0]"
    ),
    "AWS::CodePipeline::Pipeline": Answer(
        service="codepipeline", operation="get_pipeline", parameters={"name": "{id}"}, path="pipeline"
    ),
    "AWS::Events::Rule": (
        Answer(service="events", operation="describe_rule", parameters={"Name": "{last}"}, path="@"),
        Answer(service="events", operation="list_targets_by_rule", parameters={"Rule": "{last}"}, path="@"),
    ),
}

ANSWERS = {kind: found if isinstance(found, tuple) else (found,) for kind, found in _ANSWERS.items()}


def ask(kind: str, client: Client, physical_id: str, asked: Mapping[str, Any]) -> dict[str, Any] | None:
    """All that the calls for a type tell, as one; None if the first knows no such resource."""
    told: dict[str, Any] = {}
    for number, answer in enumerate(ANSWERS[kind]):
        found = answer.ask(client, physical_id, asked)
        if number == 0 and not found and found != {}:
            return None
        told |= found or {}
    return told
