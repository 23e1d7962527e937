"""moto's tests of Application Auto Scaling: tests/test_applicationautoscaling."""

import re
from collections.abc import Iterator
from datetime import datetime
from typing import Any

from tests.local_aws.moto_cases import ABSENT, Call


def call(operation: str, *parameters: dict[str, Any], answer: Any = None, error: str = "") -> Call:
    merged = {name: value for each in parameters for name, value in each.items()}
    return Call("application-autoscaling", operation, merged, answer or {}, error)


def target(namespace: str, resource: str, dimension: str) -> dict[str, Any]:
    return {"ServiceNamespace": namespace, "ResourceId": resource, "ScalableDimension": dimension}


def service(name: str) -> dict[str, Any]:
    return target("ecs", f"service/default/{name}", "ecs:service:DesiredCount")


def services(*names: str, cluster: str = "default") -> Iterator[Call]:
    container = {"name": "web", "image": "web:1", "cpu": 256, "memory": 512}
    task = {"family": "web", "containerDefinitions": [container]}
    yield Call("ecs", "create_cluster", {"clusterName": cluster}, {})
    yield Call("ecs", "register_task_definition", task, {})
    for name in names:
        made = {"cluster": cluster, "serviceName": name, "taskDefinition": "web", "desiredCount": 2}
        yield Call("ecs", "create_service", made, {})


def tracking(metric: str, value: float) -> dict[str, Any]:
    specification = {"PredefinedMetricSpecification": {"PredefinedMetricType": metric}}
    return {"TargetTrackingScalingPolicyConfiguration": {"TargetValue": value, **specification}}


def action(number: int, namespace: str = "ecs") -> dict[str, Any]:
    scaled = service(str(number)) if namespace == "ecs" else {**TABLE, "ResourceId": f"table/{number}"}
    return {**scaled, "ScheduledActionName": f"{namespace}-{number}", "Schedule": HOURLY}


def unscheduled(number: int) -> dict[str, Any]:
    return {name: value for name, value in action(number).items() if name != "Schedule"}


def actions(*found: dict[str, Any], **about: Any) -> Call:
    return call("describe_scheduled_actions", about, answer={"ScheduledActions": list(found)})


HOURLY = "rate(1 hour)"
"""DescribeScheduledActions always has a schedule, so these actions have one; some of moto's do not."""
SUSPENSIONS = ("DynamicScalingInSuspended", "DynamicScalingOutSuspended", "ScheduledScalingSuspended")
SUSPENDED, RESUMED = ({"SuspendedState": dict.fromkeys(SUSPENSIONS, each)} for each in (True, False))
ONE, MANY = {"MinCapacity": 1, "MaxCapacity": 1}, {"MinCapacity": 1, "MaxCapacity": 8}
FULL = {**ONE, "RoleARN": "test:arn", **SUSPENDED}
POLICY = {"PolicyName": "MyPolicy"}
PER_INSTANCE = tracking("SageMakerVariantInvocationsPerInstance", 70.0)
READS = tracking("DynamoDBReadCapacityUtilization", 70.0)
TYPE = {"PolicyType": "TargetTrackingScaling"}
STEPS = {"AdjustmentType": "ChangeInCapacity", "StepAdjustments": [{"ScalingAdjustment": 10}]}
TARGETS = [
    target(*line.split())
    for line in """\
ecs service/default/web ecs:service:DesiredCount
ec2 spot-fleet-request/sfr-73fbd2ce-aa30-494c-8788-1ceeb0a7b8b4 ec2:spot-fleet-request:TargetCapacity
elasticmapreduce instancegroup/j-2EEZ/ig-1791Y elasticmapreduce:instancegroup:InstanceCount
appstream fleet/desks appstream:fleet:DesiredCapacity
dynamodb table/orders dynamodb:table:ReadCapacityUnits
dynamodb table/orders/index/by-day dynamodb:index:ReadCapacityUnits
rds cluster:books rds:cluster:ReadReplicaCount
sagemaker endpoint/MyEndPoint/variant/MyVariant sagemaker:variant:DesiredInstanceCount
comprehend arn:aws:comprehend:us-east-1:123456789012:document-classifier-endpoint/topics\
 comprehend:document-classifier-endpoint:DesiredInferenceUnits
lambda function:resize:prod lambda:function:ProvisionedConcurrency
cassandra keyspace/shop/table/orders cassandra:table:ReadCapacityUnits
custom-resource https://example.com/dimension/resource custom-resource:ResourceType:Property
""".splitlines()
]
WEB, TABLE, VARIANT = TARGETS[0], TARGETS[4], TARGETS[7]
ARN = re.compile("arn:aws:application-autoscaling:us-east-1:123456789012:scalable-target/.+")
POLICY_ARN = re.compile("arn:aws:autoscaling:us-east-1:123456789012:scalingPolicy:.+:resource/sagemaker/.+/MyPolicy")
ENUM = "failed to satisfy constraint: Member must satisfy enum value set: ["
TABLE_ALARMS = {"AlarmNamePrefix": "TargetTracking-table/orders-"}
ANY: dict[str, Any] = {}
"""Fits every member."""


def targets(namespace: str, *found: dict[str, Any], **rest: Any) -> Call:
    about = {"ServiceNamespace": namespace, **({"NextToken": rest.pop("token")} if "token" in rest else {})}
    return call("describe_scalable_targets", about, answer={"ScalableTargets": list(found), **rest})


def register(*about: dict[str, Any]) -> Call:
    return call("register_scalable_target", *about)


def policies(scaled: dict[str, Any], *found: dict[str, Any]) -> Call:
    about = {"PolicyNames": ["MyPolicy"], **scaled}
    return call("describe_scaling_policies", about, answer={"ScalingPolicies": list(found)})


def invalid(namespace: str, dimension: str, count: str) -> list[Call]:
    about = {"ServiceNamespace": namespace, "ScalableDimension": dimension}
    return [call("describe_scalable_targets", about, error=f"ValidationException: {count} detected")]


def unknown_type(body: dict[str, Any]) -> Call:
    values = "PredictiveScaling, StepScaling, TargetTrackingScaling]"
    error = f"ValidationException: 1 validation error detected: Value 'ABC' at 'policyType' {ENUM}{values}"
    return call("put_scaling_policy", POLICY, TABLE, {"PolicyType": "ABC"}, body, error=error)


ONCE, TWICE = (
    {**TABLE, "ScheduledActionName": name, "Schedule": expression, "ScalableTargetAction": MANY}
    for name, expression in (("once", "rate(2 minutes)"), ("twice", HOURLY))
)
SCHEDULED = {
    "CreationTime": datetime,
    "ScheduledActionARN": re.compile(".*dynamodb/table/orders:scheduledActionName/.*"),
}


CASES = {
    "test_describe_scalable_targets_one_basic_ecs_success": [
        *services("web"),
        call("register_scalable_target", WEB, error="ValidationException: You must specify"),
    ],
    "test_describe_scalable_targets_one_full_ecs_success": [
        *services("web"),
        register(WEB, FULL),
        targets("ecs", {**WEB, **FULL, "CreationTime": datetime}),
    ],
    "test_describe_scalable_targets_only_return_ecs_targets": [
        *services("test1", "test2"),
        *(register(each, FULL) for each in (service("test1"), service("test2"), TARGETS[2])),
        targets("ecs", service("test1"), service("test2")),
    ],
    "test_describe_scalable_targets_next_token_success": [
        *services(*map(str, range(100))),
        *(register(service(str(number)), FULL) for number in range(100)),
        targets("ecs", *(service(str(number)) for number in range(50)), NextToken="49"),
        targets("ecs", *(service(str(number)) for number in range(50, 100)), token="49", NextToken=ABSENT),
    ],
    "test_register_scalable_target_resource_id_variations": [
        *services("web"),
        *(register(each, MANY) for each in TARGETS),
        *(targets(each["ServiceNamespace"], each) for each in TARGETS if each["ServiceNamespace"] != "dynamodb"),
        targets("dynamodb", TARGETS[4], TARGETS[5]),
    ],
    "test_register_scalable_target_updates_existing_target": [
        *services("web"),
        register(WEB, FULL),
        call("register_scalable_target", WEB, MANY, RESUMED, answer={"ScalableTargetARN": ARN}),
        targets("ecs", {**MANY, **RESUMED, "ScalableTargetARN": ARN}),
    ],
    "test_describe_scaling_policies": [
        register(VARIANT, MANY),
        call("put_scaling_policy", POLICY, VARIANT, TYPE, PER_INSTANCE),
        policies(
            VARIANT, {**POLICY, **VARIANT, **TYPE, **PER_INSTANCE, "PolicyARN": POLICY_ARN, "CreationTime": datetime}
        ),
    ],
    "test_delete_scaling_policies": [
        register(VARIANT, MANY),
        call("delete_scaling_policy", POLICY, VARIANT, error="ValidationException: No scaling policy found"),
        call("put_scaling_policy", POLICY, VARIANT, TYPE, PER_INSTANCE),
        call("delete_scaling_policy", POLICY, VARIANT),
        policies(VARIANT),
    ],
    "test_deregister_scalable_target": [
        register(VARIANT, MANY),
        targets("sagemaker", VARIANT),
        call("deregister_scalable_target", VARIANT),
        targets("sagemaker"),
        call("deregister_scalable_target", VARIANT, error="ValidationException: No scalable target found"),
    ],
    "test_delete_scheduled_action": [
        actions(ServiceNamespace="ecs"),
        *(call("put_scheduled_action", action(number)) for number in range(3)),
        actions(action(0), action(1), action(2), ServiceNamespace="ecs"),
        call("delete_scheduled_action", unscheduled(0)),
        actions(action(1), action(2), ServiceNamespace="ecs"),
    ],
    "test_describe_scheduled_actions": [
        *(call("put_scheduled_action", action(number)) for number in range(3)),
        *(call("put_scheduled_action", action(number, "dynamodb")) for number in range(3)),
        actions(action(0), action(1), action(2), ServiceNamespace="ecs"),
        actions(ServiceNamespace="ec2"),
        actions(action(0, "dynamodb"), ServiceNamespace="dynamodb", ScheduledActionNames=["dynamodb-0"]),
        actions(action(0, "dynamodb"), **{**TABLE, "ResourceId": "table/0"}),
        actions(**target("dynamodb", "table/0", "dynamodb:table:WriteCapacityUnits")),
    ],
    "test_put_scheduled_action": [
        register(TABLE, MANY),
        call("put_scheduled_action", ONCE),
        call("put_scheduled_action", TWICE),
        actions(ONCE | SCHEDULED, TWICE | SCHEDULED, ServiceNamespace="dynamodb"),
    ],
    "test_put_scheduled_action__use_update": [
        call("put_scheduled_action", action(1)),
        call("put_scheduled_action", unscheduled(1), {"ScalableTargetAction": MANY}),
        actions({**action(1), "ScalableTargetAction": MANY, "CreationTime": datetime}, ServiceNamespace="ecs"),
    ],
    "test_put_scaling_policy_with_unknown_policytype": [
        register(TABLE, MANY),
        unknown_type(READS),
        unknown_type({"StepScalingPolicyConfiguration": STEPS}),
    ],
    "test_describe_scaling_policy_alarms": [
        register(TABLE, MANY),
        call("put_scaling_policy", POLICY, TABLE, TYPE, READS, answer={"Alarms": [ANY] * 4}),
        policies(TABLE, {"Alarms": [{"AlarmName": str, "AlarmARN": str}] * 4}),
        Call("cloudwatch", "describe_alarms", TABLE_ALARMS, {"MetricAlarms": [ANY] * 4}),
        call("delete_scaling_policy", POLICY, TABLE),
        Call("cloudwatch", "describe_alarms", TABLE_ALARMS, {"MetricAlarms": []}),
    ],
    "test_describe_scaling_policy_with_ecs_alarms": [
        *services("web"),
        register(WEB, MANY),
        call("put_scaling_policy", POLICY, WEB, TYPE, tracking("ECSServiceAverageMemoryUtilization", 6)),
        policies(WEB, {"Alarms": [{"AlarmName": re.compile("TargetTracking-service/default/web.*")}] * 2}),
        Call(
            "cloudwatch",
            "describe_alarms",
            {"AlarmNamePrefix": "TargetTracking-service/default/web"},
            {"MetricAlarms": [{"Dimensions": [{"Name": "ClusterName", "Value": "default"}, ANY]}] * 2},
        ),
    ],
    "test_describe_scalable_targets_with_invalid_scalable_dimension_should_return_validation_exception": invalid(
        "ecs", "foo", "1 validation error"
    ),
    "test_describe_scalable_targets_with_invalid_service_namespace_should_return_validation_exception": invalid(
        "foo", "ecs:service:DesiredCount", "1 validation error"
    ),
    "test_describe_scalable_targets_with_multiple_invalid_parameters_should_return_validation_exception": invalid(
        "foo", "bar", "2 validation errors"
    ),
    "test_register_scalable_target_ecs_with_non_existent_service_should_return_clusternotfound_exception": [
        call(
            "register_scalable_target",
            {**WEB, "ResourceId": "service/none/web"},
            FULL,
            error="ClusterNotFoundException: Cluster not found.",
        )
    ],
    "test_target_params_are_valid_success": [
        *services("web"),
        register(WEB, ONE),
        *(
            call("register_scalable_target", WEB, wrong, ONE, error="ValidationException: ")
            for wrong in ({"ResourceId": "banana/default/web"}, {"ServiceNamespace": "rds"})
        ),
    ],
}
