"""A SageMaker real-time endpoint: role, key, captured data, models, configuration, endpoint.

Resources are L1, because the alpha L2 has neither `RetainAllVariantProperties` nor `InferenceAmiVersion`.
"""

import math
from collections.abc import Sequence
from dataclasses import replace

from aws_cdk import Duration, RemovalPolicy
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_sagemaker as sagemaker
from constructs import Construct

from stacks.buckets_and_logs import log_group, private_bucket
from stacks.endpoint.alarms import RollbackAlarms
from stacks.endpoint.endpoint_plan import EndpointPlan
from stacks.endpoint.metrics import VARIANT, EndpointMetrics
from stacks.endpoint.network import EndpointVpc
from stacks.endpoint.served_model import Served, ServedModel
from stacks.grants import (
    ENDPOINT_LOGS,
    acknowledge,
    acknowledge_actions,
    acknowledge_resources,
    acknowledge_to_checkov,
    allow,
    allow_container_telemetry,
)
from workloads import Canary, DataCapture, EndpointUpdate, LatencyObjective, Linear, Rolling, SageMakerEndpointHosting
from workloads.instances import has_local_storage

SHADOW = "Shadow"
CAPTURED_PREFIX = "captured"
LONGEST_UPDATE_S = 28_800
"""The most that SageMaker allows, 8 hours; a workload's steps and bakes add up to less."""


class WorkloadEndpoint(Construct):
    """Names, ARNs and `role` for others; grants by intent. Its metrics are `EndpointMetrics` of its name.

    `metrics` has the endpoint's name, which is fixed: the alarms of an update exist before the endpoint.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        metrics: EndpointMetrics,
        objective: LatencyObjective,
        hosting: SageMakerEndpointHosting,
        plan: EndpointPlan,
        production: Served,
        shadow: Served | None,
        in_production: bool,
    ) -> None:
        super().__init__(scope, id)
        self._metrics, self._hosting, self._plan = metrics, hosting, plan
        self._served = [production, *([shadow] if shadow else [])]
        self._network = EndpointVpc(self, "Network", network=hosting.network) if hosting.network else None
        self.role = self._execution_role()
        self._key = self._storage_key()
        self._capture = None
        if hosting.data_capture:
            self._capture = CapturedData(self, "Captured", capture=hosting.data_capture, key=self._key)
            self._capture.grant_write(self.role)
        model, *others = (
            ServedModel(self, id, served=served, role=self.role, network=self._network)
            for id, served in zip(("Production", SHADOW), self._served, strict=False)
        )
        endpoint = self._endpoint(self._config(model, others), objective)
        # The log group is made before SageMaker does, which would keep the logs for ever. In production the log of a
        # deleted endpoint is kept. A failed first deployment leaves none behind.
        policy = RemovalPolicy.RETAIN_ON_UPDATE_OR_DELETE if in_production else RemovalPolicy.DESTROY
        log = log_group(self, "Log", f"/aws/sagemaker/Endpoints/{metrics.stack}", removal_policy=policy)
        endpoint.node.add_dependency(log)
        self.model_name = model.model.attr_model_name
        self.model_arn = model.model.ref
        self.endpoint_name = endpoint.attr_endpoint_name
        self.endpoint_arn = endpoint.ref

    def grant_invoke(self, grantee: iam.IGrantable) -> iam.Grant:
        return iam.Grant.add_to_principal(
            grantee=grantee, actions=["sagemaker:InvokeEndpoint"], resource_arns=[self.endpoint_arn]
        )

    def _execution_role(self) -> iam.Role:
        role = iam.Role(
            self,
            "Role",
            assumed_by=iam.ServicePrincipal("sagemaker.amazonaws.com"),
            description="Reads the model archive, pulls the image, writes the endpoint's logs and metrics.",
        )
        for served in self._served:
            served.archive.grant_read(role)
            served.image.grant_pull(role)
        allow_container_telemetry(role, ENDPOINT_LOGS)
        if self._network is not None:
            self._network.grant_join(role)
        return role

    def _config(self, production: ServedModel, shadows: Sequence[ServedModel]) -> sagemaker.CfnEndpointConfig:
        # The ratio of the shadow's weight to the production variant's is the share of requests copied to it.
        share = self._hosting.shadow.percent / 100 if self._hosting.shadow else 0
        config = sagemaker.CfnEndpointConfig(
            self,
            "Config",
            production_variants=[production.variant(VARIANT, 1)],
            shadow_production_variants=[shadow.variant(SHADOW, share) for shadow in shadows] or None,
            data_capture_config=self._capture.config if self._capture else None,
            kms_key_id=self._key.key_arn if self._key and self._has_volumes() else None,
            # On by default, it requests /metrics from the container every minute. No image of this project serves that
            # path on SageMaker's port: the servers print their metrics in CloudWatch's embedded metric format.
            metrics_config=sagemaker.CfnEndpointConfig.MetricsConfigProperty(enable_detailed_observability=False),
        )
        if config.kms_key_id is None:
            acknowledge_to_checkov(config, "CKV_AWS_98", "SageMaker encrypts volumes with a key of its own.")
        return config

    def _endpoint(self, config: sagemaker.CfnEndpointConfig, objective: LatencyObjective) -> sagemaker.CfnEndpoint:
        metrics = replace(self._metrics, config_name=config.attr_endpoint_config_name)
        update, least = self._plan.update, self._plan.deployment.least_instances
        alarms = RollbackAlarms(self, "Rollback", metrics=metrics, objective=objective).all if update else []
        endpoint = sagemaker.CfnEndpoint(
            self,
            "Endpoint",
            endpoint_name=metrics.stack,
            endpoint_config_name=config.attr_endpoint_config_name,
            # Without it every update resets an autoscaled fleet to its initial count.
            retain_all_variant_properties=True,
            # The fleet has at least the minimum of autoscaling. An update keeps its count, which may be larger.
            deployment_config=_deployment_config(update, least, alarms) if update else None,
        )
        if alarms:
            # The model needs the role's own policy and the alarms need the model's configuration: hence another policy.
            policy = iam.Policy(self, "RollbackPolicy", roles=[self.role])
            arns = [alarm.alarm_arn for alarm in alarms]
            policy.add_statements(iam.PolicyStatement(actions=["cloudwatch:DescribeAlarms"], resources=arns))
            endpoint.node.add_dependency(policy)
        return endpoint

    def _storage_key(self) -> kms.IKey | None:
        """Returns the key of volumes and captured data; None where there is neither, and where they have AWS's own."""
        given = self._hosting.kms_key_arn
        if given is None or not (self._has_volumes() or self._hosting.data_capture):
            return None
        key = kms.Key.from_key_arn(self, "StorageKey", given)
        key.grant(self.role, "kms:Decrypt", "kms:DescribeKey", "kms:GenerateDataKeyWithoutPlaintext")
        # For the volumes of the instances only.
        condition = {"Bool": {"kms:GrantIsForAWSResource": "true"}}
        allow(self.role, ["kms:CreateGrant"], [key.key_arn], conditions=condition)
        return key

    def _has_volumes(self) -> bool:
        # NVMe of the host's own is encrypted in hardware. A key for it is refused according to older API documents, and
        # has no effect according to newer ones.
        return not any(has_local_storage(name) for served in self._served for name in served.instance_types)


class CapturedData(Construct):
    """`config` for the endpoint configuration, and the encrypted `bucket` with an expiry. It outlives the stack."""

    def __init__(self, scope: Construct, id: str, *, capture: DataCapture, key: kms.IKey | None) -> None:
        super().__init__(scope, id)
        rule = s3.LifecycleRule(expiration=Duration.days(capture.keep_days))
        self.bucket = private_bucket(self, "Bucket", key, lifecycle_rules=[rule])
        reason = "Only the endpoint writes here; a log of that would need a second bucket."
        acknowledge(self.bucket, "AwsSolutions-S1", reason)
        acknowledge_to_checkov(self.bucket, "CKV_AWS_21", "Captured files have unique names and are written once.")
        self.config = sagemaker.CfnEndpointConfig.DataCaptureConfigProperty(
            enable_capture=True,
            initial_sampling_percentage=capture.percent,
            destination_s3_uri=self.bucket.s3_url_for_object(CAPTURED_PREFIX),
            kms_key_id=key.key_arn if key else None,
            capture_options=[
                sagemaker.CfnEndpointConfig.CaptureOptionProperty(capture_mode=mode) for mode in ("Input", "Output")
            ],
            # Without it a JSON body is stored as base64.
            capture_content_type_header=sagemaker.CfnEndpointConfig.CaptureContentTypeHeaderProperty(
                json_content_types=["application/json"]
            ),
        )

    def grant_write(self, role: iam.Role) -> None:
        self.bucket.grant_put(role, f"{CAPTURED_PREFIX}/*")
        objects = [self.bucket.arn_for_objects(f"{CAPTURED_PREFIX}/*")]
        acknowledge_resources(role, objects, "SageMaker names each object by its time.")
        actions = ["s3:Abort*", "kms:GenerateDataKey*", "kms:ReEncrypt*"]
        acknowledge_actions(role, actions, "CDK's wording of write access to an encrypted bucket.")


def _deployment_config(
    update: EndpointUpdate, least: int, alarms: Sequence[cloudwatch.IAlarm]
) -> sagemaker.CfnEndpoint.DeploymentConfigProperty:
    """Returns SageMaker's deployment guardrails for an update of a fleet. SageMaker excludes Inf1 from them."""
    rollback = sagemaker.CfnEndpoint.AutoRollbackConfigProperty(
        alarms=[sagemaker.CfnEndpoint.AlarmProperty(alarm_name=alarm.alarm_name) for alarm in alarms]
    )
    if isinstance(update, Rolling):
        return sagemaker.CfnEndpoint.DeploymentConfigProperty(
            auto_rollback_configuration=rollback,
            rolling_update_policy=sagemaker.CfnEndpoint.RollingUpdatePolicyProperty(
                maximum_batch_size=_step(update.percent, least),
                wait_interval_in_seconds=update.bake_s,
                maximum_execution_timeout_in_seconds=LONGEST_UPDATE_S,
                rollback_maximum_batch_size=_percent(100),  # Roll back in one step.
            ),
        )
    return sagemaker.CfnEndpoint.DeploymentConfigProperty(
        auto_rollback_configuration=rollback,
        blue_green_update_policy=sagemaker.CfnEndpoint.BlueGreenUpdatePolicyProperty(
            traffic_routing_configuration=_traffic(update, least),
            termination_wait_in_seconds=update.bake_s,
            maximum_execution_timeout_in_seconds=LONGEST_UPDATE_S,
        ),
    )


def _traffic(update: EndpointUpdate, least: int) -> sagemaker.CfnEndpoint.TrafficRoutingConfigProperty:
    match update:
        case Canary():
            return sagemaker.CfnEndpoint.TrafficRoutingConfigProperty(
                type="CANARY", canary_size=_canary(update.percent, least), wait_interval_in_seconds=update.bake_s
            )
        case Linear():
            return sagemaker.CfnEndpoint.TrafficRoutingConfigProperty(
                type="LINEAR", linear_step_size=_step(update.percent, least), wait_interval_in_seconds=update.bake_s
            )
        case _:
            return sagemaker.CfnEndpoint.TrafficRoutingConfigProperty(type="ALL_AT_ONCE", wait_interval_in_seconds=0)


def _canary(percent: int, least: int) -> sagemaker.CfnEndpoint.CapacitySizeProperty:
    """Returns `percent` of the fleet, or one instance if that is less than one of `least` instances."""
    if percent * least < 100:
        return sagemaker.CfnEndpoint.CapacitySizeProperty(type="INSTANCE_COUNT", value=1)
    return _percent(percent)


def _step(percent: int, least: int) -> sagemaker.CfnEndpoint.CapacitySizeProperty:
    """Returns at least one of `least` instances, as a share: SageMaker limits the share of a fleet of any size.

    A linear step is 10 to 50 % of the fleet and a rolling batch 5 to 50 % (API reference of TrafficRoutingConfig and
    RollingUpdatePolicy).
    """
    return _percent(min(max(percent, math.ceil(100 / least)), 50))


def _percent(value: int) -> sagemaker.CfnEndpoint.CapacitySizeProperty:
    return sagemaker.CfnEndpoint.CapacitySizeProperty(type="CAPACITY_PERCENT", value=value)
