"""How a production fleet is replaced, as SageMaker's deployment guardrails write it.

Bounds are SageMaker's: canary at most 50 % of the fleet, linear steps 10 to 50 %, rolling batches 5 to 50 %, one to ten
alarms. Endpoints on Inf1 are excluded, and updated all at once without alarms whatever is asked for.
"""

from collections.abc import Sequence

from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_sagemaker as sagemaker

from workloads import Canary, EndpointUpdate, Linear, Rolling

# The most that SageMaker allows, 8 hours: the workload's steps and bakes add up to less.
LONGEST_S = 28_800


def deployment_config(
    update: EndpointUpdate, alarms: Sequence[cloudwatch.IAlarm]
) -> sagemaker.CfnEndpoint.DeploymentConfigProperty:
    rollback = sagemaker.CfnEndpoint.AutoRollbackConfigProperty(
        alarms=[sagemaker.CfnEndpoint.AlarmProperty(alarm_name=alarm.alarm_name) for alarm in alarms]
    )
    if isinstance(update, Rolling):
        return sagemaker.CfnEndpoint.DeploymentConfigProperty(
            auto_rollback_configuration=rollback, rolling_update_policy=_rolling(update)
        )
    return sagemaker.CfnEndpoint.DeploymentConfigProperty(
        auto_rollback_configuration=rollback,
        blue_green_update_policy=sagemaker.CfnEndpoint.BlueGreenUpdatePolicyProperty(
            traffic_routing_configuration=_traffic(update),
            termination_wait_in_seconds=update.bake_s,
            maximum_execution_timeout_in_seconds=LONGEST_S,
        ),
    )


def _traffic(update: EndpointUpdate) -> sagemaker.CfnEndpoint.TrafficRoutingConfigProperty:
    match update:
        case Canary():
            return sagemaker.CfnEndpoint.TrafficRoutingConfigProperty(
                type="CANARY", canary_size=_share(update.percent), wait_interval_in_seconds=update.bake_s
            )
        case Linear():
            return sagemaker.CfnEndpoint.TrafficRoutingConfigProperty(
                type="LINEAR", linear_step_size=_share(update.percent), wait_interval_in_seconds=update.bake_s
            )
        case _:
            return sagemaker.CfnEndpoint.TrafficRoutingConfigProperty(type="ALL_AT_ONCE", wait_interval_in_seconds=0)


def _rolling(update: Rolling) -> sagemaker.CfnEndpoint.RollingUpdatePolicyProperty:
    return sagemaker.CfnEndpoint.RollingUpdatePolicyProperty(
        maximum_batch_size=_share(update.percent),
        wait_interval_in_seconds=update.bake_s,
        maximum_execution_timeout_in_seconds=LONGEST_S,
        # Back in one step: a release that is undone has done harm enough.
        rollback_maximum_batch_size=_share(100),
    )


def _share(percent: int) -> sagemaker.CfnEndpoint.CapacitySizeProperty:
    return sagemaker.CfnEndpoint.CapacitySizeProperty(type="CAPACITY_PERCENT", value=percent)
