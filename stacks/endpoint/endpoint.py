"""A SageMaker real-time endpoint of the size that a recommendation names, with what scales and watches it.

Resources are L1, because the alpha L2 has neither `RetainAllVariantProperties` nor `InferenceAmiVersion`.
"""

import math
from collections.abc import Iterator, Mapping, Sequence

from aws_cdk import Duration, RemovalPolicy
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_sagemaker as sagemaker
from constructs import Construct

from stacks.buckets_and_logs import log_group, private_bucket
from stacks.context import Options
from stacks.deployment import problems_of_size, sized
from stacks.endpoint.alarms import EndpointAlarms, rollback_alarms
from stacks.endpoint.dashboard import EndpointDashboard
from stacks.endpoint.metrics import VARIANT, FleetMetrics, NamedEndpoint, problems_of_name, unique_name
from stacks.endpoint.network import EndpointVpc
from stacks.endpoint.scaling import DEFAULT_RULES, RecommendedScaling
from stacks.endpoint.served_model import Served, ServedModel, execution_role
from stacks.grants import (
    acknowledge,
    acknowledge_actions,
    acknowledge_resources,
    acknowledge_to_checkov,
    allow,
)
from stacks.model_archive import ModelArchive
from stacks.own_image import EcrImage
from stacks.paging import Paging
from stacks.workload_stack import refuse_arguments
from workloads import (
    Canary,
    DataCapture,
    EndpointNetwork,
    EndpointScalingRules,
    EndpointUpdate,
    LatencyObjective,
    Linear,
    Recommendation,
    Rolling,
)
from workloads.instances import hardware, has_local_storage

SHADOW = "Shadow"
CAPTURED_PREFIX = "captured"
LONGEST_UPDATE_S = 28_800
"""The most that SageMaker allows, 8 hours; a workload's steps and bakes add up to less."""


class RecommendedEndpoint(NamedEndpoint):
    """A SageMaker real-time endpoint with autoscaling, alarms, a topic for them and a dashboard.

    The recommendation decides instance types, count, autoscaling and variables of the server. The objective decides the
    limits of `alarms`. `paging.topic` publishes their states. `role` is the execution role.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        archive: ModelArchive,
        image: EcrImage,
        recommendation: Recommendation | None,
        objective: LatencyObjective,
        instance_type: str | None = None,
        min_instances: int = 2,
        scaling: EndpointScalingRules | None = DEFAULT_RULES,
        environment: Mapping[str, str] | None = None,
        endpoint_name: str | None = None,
        workload: str | None = None,
        fallback_instance_types: Sequence[str] = (),
        update: EndpointUpdate | None = None,
        shadow: Served | None = None,
        network: EndpointNetwork | None = None,
        kms_key: kms.IKey | None = None,
        data_capture: DataCapture | None = None,
        alarm_topic: str | None = None,
        alarm_email: str | None = None,
        log_removal_policy: RemovalPolicy = RemovalPolicy.RETAIN_ON_UPDATE_OR_DELETE,
    ) -> None:
        """Raises `UsageError` with a line for each problem.

        Without a recommendation the endpoint has one `instance_type`, to be measured. Without `scaling` the fleet keeps
        its size. Without `update` all traffic moves at once and no alarm rolls it back. `endpoint_name` is by default
        made of the construct's path. Callers and the server report metrics under `workload`, by default the
        recommendation's. `alarm_topic` is an ARN; without it the construct has its own topic.
        """
        super().__init__(scope, id)
        # The name is fixed, because the alarms of an update exist before the endpoint.
        self.stack = endpoint_name or unique_name(self)
        self.workload = workload or (recommendation.workload if recommendation else self.stack)
        autoscaled = scaling is not None
        refuse_arguments(self, problems_of_size(recommendation, instance_type, archive.sha256, autoscaled=autoscaled))
        fleet = sized(recommendation, instance_type, min_instances, autoscaled=autoscaled)
        least = fleet.autoscaling.min_capacity if fleet.autoscaling else fleet.instance_count or 1
        types = (fleet.instance_type, *fallback_instance_types)
        refuse_arguments(self, _problems(self.stack, types, update, shadow, least))
        production = Served(
            archive=archive,
            image=image,
            environment={**(environment or {}), **fleet.environment, **self.reporting},
            instance_types=types,
            instance_count=fleet.instance_count or 1,
        )
        self._served = [production, *([shadow] if shadow else [])]
        self._serving = Construct(self, "Serving")
        self._network = EndpointVpc(self._serving, "Network", network=network) if network else None
        self.role = execution_role(self._serving, self._served)
        if self._network is not None:
            self._network.grant_join(self.role)
        self._key = self._storage_key(kms_key, data_capture)
        self._capture = None
        if data_capture:
            self._capture = CapturedData(self._serving, "Captured", capture=data_capture, key=self._key)
            self._capture.grant_write(self.role)
        model, *others = (
            ServedModel(self._serving, id, served=served, role=self.role, network=self._network)
            for id, served in zip(("Production", SHADOW), self._served, strict=False)
        )
        endpoint = self._endpoint(self._config(model, others), objective, update, least)
        # The log group is made before SageMaker does, which would keep the logs for ever.
        name = f"/aws/sagemaker/Endpoints/{self.stack}"
        endpoint.node.add_dependency(log_group(self._serving, "Log", name, removal_policy=log_removal_policy))
        self.model_name, self.model_arn = model.model.attr_model_name, model.model.ref
        self.endpoint_name, self.endpoint_arn = endpoint.attr_endpoint_name, endpoint.ref
        if recommendation is not None and scaling is not None:
            RecommendedScaling(
                self,
                "Scaling",
                endpoint=self,
                recommendation=recommendation,
                rules=scaling,
                min_instances=min_instances,
            )
        self.alarms = EndpointAlarms(self, "Alarms", endpoint=self, objective=objective, recommendation=recommendation)
        EndpointDashboard(
            self,
            "Watch",
            alarms=self.alarms.all,
            instance_type=fleet.instance_type,
            recommended=recommendation.recommended if recommendation else None,
            endpoint=self,
            objective=objective,
        )
        self.paging = Paging(
            self,
            "Paging",
            workload=self.workload,
            alarms=self.alarms.paging,
            options=Options(alarm_topic=alarm_topic, alarm_email=alarm_email),
            own_key=kms_key is not None,
        )

    def _config(self, production: ServedModel, shadows: Sequence[ServedModel]) -> sagemaker.CfnEndpointConfig:
        # The ratio of the shadow's weight to the production variant's is the share of requests copied to it.
        share = self._served[-1].percent / 100
        config = sagemaker.CfnEndpointConfig(
            self._serving,
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

    def _endpoint(
        self,
        config: sagemaker.CfnEndpointConfig,
        objective: LatencyObjective,
        update: EndpointUpdate | None,
        least_instances: int,
    ) -> sagemaker.CfnEndpoint:
        name = config.attr_endpoint_config_name
        alarms: Sequence[cloudwatch.Alarm] = []
        if update:
            fleet = FleetMetrics(workload=self.workload, stack=self.stack, config_name=name)
            alarms = rollback_alarms(Construct(self._serving, "Rollback"), fleet, objective)
        endpoint = sagemaker.CfnEndpoint(
            self._serving,
            "Endpoint",
            endpoint_name=self.stack,
            endpoint_config_name=name,
            # Without it every update resets an autoscaled fleet to its initial count.
            retain_all_variant_properties=True,
            # The fleet has at least the minimum of autoscaling. An update keeps its count, which may be larger.
            deployment_config=_deployment_config(update, least_instances, alarms) if update else None,
        )
        if alarms:
            # The model needs the role's own policy and the alarms need the model's configuration: hence another policy.
            policy = iam.Policy(self._serving, "RollbackPolicy", roles=[self.role])
            arns = [alarm.alarm_arn for alarm in alarms]
            policy.add_statements(iam.PolicyStatement(actions=["cloudwatch:DescribeAlarms"], resources=arns))
            endpoint.node.add_dependency(policy)
        return endpoint

    def _storage_key(self, key: kms.IKey | None, capture: DataCapture | None) -> kms.IKey | None:
        """Returns the key of volumes and captured data; None where there is neither, and where they have AWS's own."""
        if key is None or not (self._has_volumes() or capture):
            return None
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


def _problems(
    name: str, types: Sequence[str], update: EndpointUpdate | None, shadow: Served | None, least_instances: int
) -> Iterator[str]:
    yield from problems_of_name(name)
    for instance_type in types:
        if not instance_type.startswith("ml."):
            yield f"instance type: got '{instance_type}', but SageMaker's begin with 'ml.'. Measure on one of these."
    if update is not None and update.strategy != "all-at-once" and least_instances < 2:
        yield (
            f"update: {update.strategy} moves at most half of the fleet at a time, and the fleet may have 1 instance. "
            "Raise min_instances to 2 or more, or choose all-at-once."
        )
    if hardware(types[0]) == "Inferentia 1" and (update is not None or shadow is not None):
        yield (
            f"update, shadow: SageMaker excludes endpoints on Inf1 ({types[0]}) from deployment guardrails and shadow "
            "tests. Leave both out, or use Inf2."
        )
