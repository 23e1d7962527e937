"""`python -m scripts.rehearsal.inventory --write FILE | --compare FILE`: lists what an account has.

Asks each service that our stacks use for all that it has. `--compare` prints what is there now and was not then: what
the templates retain on purpose (buckets with data, log groups), and exits with 1 for anything else.
"""

import argparse
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import boto3
import jmespath

from workloads.program import exit_code

# Service, operation, parameters, and the JMESPath to the names in the answer.
LISTS: tuple[tuple[str, str, Mapping[str, Any], str], ...] = (
    ("application-autoscaling", "describe_scalable_targets", {"ServiceNamespace": "sagemaker"}, "*[].ResourceId"),
    ("application-autoscaling", "describe_scalable_targets", {"ServiceNamespace": "ecs"}, "*[].ResourceId"),
    ("application-autoscaling", "describe_scaling_policies", {"ServiceNamespace": "sagemaker"}, "*[].PolicyName"),
    ("application-autoscaling", "describe_scaling_policies", {"ServiceNamespace": "ecs"}, "*[].PolicyName"),
    ("application-autoscaling", "describe_scheduled_actions", {"ServiceNamespace": "sagemaker"}, "*[].ResourceId"),
    ("application-autoscaling", "describe_scheduled_actions", {"ServiceNamespace": "ecs"}, "*[].ResourceId"),
    ("autoscaling", "describe_auto_scaling_groups", {}, "*[].AutoScalingGroupName"),
    ("cloudformation", "describe_stacks", {}, "Stacks[].StackName"),
    ("cloudwatch", "describe_alarms", {"AlarmTypes": ["MetricAlarm"]}, "MetricAlarms[].AlarmName"),
    ("cloudwatch", "describe_alarms", {"AlarmTypes": ["CompositeAlarm"]}, "CompositeAlarms[].AlarmName"),
    ("cloudwatch", "list_dashboards", {}, "DashboardEntries[].DashboardName"),
    ("codebuild", "list_projects", {}, "projects"),
    ("codepipeline", "list_pipelines", {}, "pipelines[].name"),
    ("ec2", "describe_flow_logs", {}, "FlowLogs[].FlowLogId"),
    ("ec2", "describe_instances", {}, "Reservations[].Instances[?State.Name!='terminated'][].InstanceId"),
    ("ec2", "describe_launch_templates", {}, "LaunchTemplates[].LaunchTemplateId"),
    ("ec2", "describe_nat_gateways", {}, "NatGateways[?State!='deleted'].NatGatewayId"),
    ("ec2", "describe_route_tables", {}, "RouteTables[].RouteTableId"),
    ("ec2", "describe_security_groups", {}, "SecurityGroups[].GroupId"),
    ("ec2", "describe_subnets", {}, "Subnets[].SubnetId"),
    ("ec2", "describe_vpc_endpoints", {}, "VpcEndpoints[?State!='deleted'].VpcEndpointId"),
    ("ec2", "describe_vpcs", {}, "Vpcs[].VpcId"),
    ("ecs", "list_clusters", {}, "clusterArns"),
    ("ecs", "list_task_definitions", {"status": "ACTIVE"}, "taskDefinitionArns"),
    ("ecs", "describe_capacity_providers", {}, "capacityProviders[?status=='ACTIVE'].name"),
    ("elbv2", "describe_load_balancers", {}, "LoadBalancers[].LoadBalancerArn"),
    ("elbv2", "describe_target_groups", {}, "TargetGroups[].TargetGroupArn"),
    ("events", "list_rules", {}, "Rules[].Name"),
    ("iam", "list_instance_profiles", {}, "InstanceProfiles[].InstanceProfileName"),
    ("iam", "list_policies", {"Scope": "Local"}, "Policies[].PolicyName"),
    ("iam", "list_roles", {}, "Roles[].RoleName"),
    ("logs", "describe_log_groups", {}, "logGroups[].logGroupName"),
    ("s3", "list_buckets", {}, "Buckets[].Name"),
    ("sagemaker", "list_endpoint_configs", {}, "EndpointConfigs[].EndpointConfigName"),
    ("sagemaker", "list_endpoints", {}, "Endpoints[].EndpointName"),
    ("sagemaker", "list_models", {}, "Models[].ModelName"),
    ("scheduler", "list_schedules", {}, "Schedules[].Name"),
    ("sns", "list_topics", {}, "Topics[].TopicArn"),
    ("stepfunctions", "list_state_machines", {}, "stateMachines[].name"),
)


def main() -> int:
    options = _options()
    listed = inventory()
    if options.write:
        options.write.write_text(json.dumps(listed), "utf-8")
        services = {row[0] for row in LISTS}
        print(f"{sum(map(len, listed.values()))} things in {len(listed)} lists of {len(services)} services")
        return 0
    before = json.loads(options.compare.read_text("utf-8"))
    left = {name: sorted(set(things) - set(before[name])) for name, things in listed.items()}
    left = {name: things for name, things in left.items() if things}
    for name, things in left.items():
        print(f"{name}: {', '.join(things)}")
    print(f"{sum(map(len, left.values()))} left of all that was deployed, in {len(listed)} lists")
    return int(bool(left))


def inventory() -> dict[str, list[str]]:
    make: Any = boto3.client
    listed = {}
    for service, operation, parameters, path in LISTS:
        client = make(service)
        pages = client.get_paginator(operation).paginate if client.can_paginate(operation) else None
        answers = pages(**parameters) if pages else [getattr(client, operation)(**parameters)]
        names = [str(name) for answer in answers for name in _names(path, answer)]
        listed[" ".join((service, operation, *map(str, parameters.values())))] = names
    return listed


def _names(path: str, answer: Mapping[str, Any]) -> list[Any]:
    content = {key: value for key, value in answer.items() if isinstance(value, list)}
    return jmespath.search(path, content) or []


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    choice = parser.add_mutually_exclusive_group(required=True)
    choice.add_argument("--write", type=Path, metavar="FILE")
    choice.add_argument("--compare", type=Path, metavar="FILE")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(exit_code(main))
