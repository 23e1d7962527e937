"""SageMaker's other kinds of endpoints: asynchronous, serverless, and several models on the same instances."""

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from aws_cdk import Duration
from aws_cdk import aws_applicationautoscaling as scaling
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_iam as iam
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_sagemaker as sagemaker
from constructs import Construct

from stacks.buckets_and_logs import log_group, private_bucket
from stacks.deployment import problems_of_size
from stacks.endpoint.metrics import MINUTE, VARIANT, NamedEndpoint, problems_of_name, unique_name
from stacks.endpoint.scaling import customized, predefined, scalable_target, track
from stacks.endpoint.served_model import Served, ServedModel, execution_role, policies_of, startup_timeouts
from stacks.grants import acknowledge, acknowledge_to_checkov
from stacks.model_archive import ModelArchive
from stacks.own_image import EcrImage
from stacks.workload_stack import refuse_arguments
from workloads import LatencyObjective, Recommendation

MOST_CONCURRENT = 200
"""The largest MaxConcurrency of a serverless endpoint."""
SERVERLESS_MB = range(1024, 6145, 1024)
Config = sagemaker.CfnEndpointConfig
Component = sagemaker.CfnInferenceComponent


class _NewEndpoint(NamedEndpoint):
    def __init__(
        self, scope: Construct, id: str, name: str | None, problems: Iterable[str], workload: str | None = None
    ) -> None:
        super().__init__(scope, id)
        self.stack = name or unique_name(self)
        self.workload = workload or self.stack
        refuse_arguments(self, [*problems_of_name(self.stack), *problems])

    def _create(self, variant: Config.ProductionVariantProperty, *, autoscaled: bool = False, **config: Any) -> None:
        created = Config(self, "Config", production_variants=[variant], **config)
        endpoint = sagemaker.CfnEndpoint(
            self,
            "Endpoint",
            endpoint_name=self.stack,
            endpoint_config_name=created.attr_endpoint_config_name,
            # An update keeps the count that autoscaling chose.
            retain_all_variant_properties=autoscaled or None,
        )
        endpoint.node.add_dependency(log_group(self, "Log", f"/aws/sagemaker/Endpoints/{self.stack}"))
        self.endpoint_name, self.endpoint_arn = endpoint.attr_endpoint_name, endpoint.ref


class AsynchronousEndpoint(_NewEndpoint):
    """An endpoint whose requests wait in a queue. It has no instance while the queue is empty.

    Callers write requests below requests/ in `bucket`, and SageMaker writes answers below answers/. Both expire after a
    week. The recommendation decides the instance type, the server's variables and the largest fleet: peak over
    capacity. The fleet grows when requests would wait longer than `longest_wait_s`. The objective's latency does not
    apply to the wait. Source: https://docs.aws.amazon.com/sagemaker/latest/dg/async-inference-autoscale.html
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        archive: ModelArchive,
        image: EcrImage,
        recommendation: Recommendation,
        longest_wait_s: float = 600.0,
        environment: Mapping[str, str] | None = None,
        endpoint_name: str | None = None,
    ) -> None:
        problems = _problems_of_queue(recommendation, archive, longest_wait_s)
        super().__init__(scope, id, endpoint_name, problems, recommendation.workload)
        chosen, objective = recommendation.recommended, recommendation.objective
        assert chosen is not None
        capacity = chosen.max_invocations_per_minute
        assert capacity is not None
        variables, types = {**(environment or {}), **chosen.environment, **self.reporting}, (chosen.instance_type,)
        served = Served(archive=archive, image=image, environment=variables, instance_types=types, instance_count=1)
        self.bucket = private_bucket(self, "Bucket", lifecycle_rules=[s3.LifecycleRule(expiration=Duration.days(7))])
        acknowledge(self.bucket, "AwsSolutions-S1", "Only callers and the endpoint use it. A log needs another bucket.")
        acknowledge_to_checkov(self.bucket, "CKV_AWS_21", "Requests and answers are written once.")
        self.role = execution_role(self, [served])
        self.bucket.grant_read(self.role, "requests/*")
        self.bucket.grant_put(self.role, "answers/*")
        output = Config.AsyncInferenceOutputConfigProperty(
            s3_output_path=self.bucket.s3_url_for_object("answers"),
            s3_failure_path=self.bucket.s3_url_for_object("answers/failed"),
        )
        queue = Config.AsyncInferenceConfigProperty(output_config=output)
        variant = ServedModel(self, "Model", served=served, role=self.role).variant(VARIANT, 1)
        self._create(variant, autoscaled=True, async_inference_config=queue)
        most = math.ceil(objective.peak_invocations_per_minute / capacity)
        resource_id = f"endpoint/{self.endpoint_name}/variant/{VARIANT}"
        target = scalable_target(self, "sagemaker:variant:DesiredInstanceCount", resource_id, 0, most)
        track(
            self,
            "Backlog",
            target,
            "BacklogPerInstance",
            customized_metric_specification=customized(self._of_queue("ApproximateBacklogSizePerInstance")),
            target_value=capacity / 60 * longest_wait_s,
        )
        # Without an instance there is no backlog per instance.
        scaling.StepScalingPolicy(
            self,
            "First",
            scaling_target=scaling.ScalableTarget.from_scalable_target_attributes(
                self,
                "Scaled",
                scalable_target_id=target.ref,
                scalable_dimension=target.scalable_dimension,
                service_namespace=target.service_namespace,
            ),
            metric=self._of_queue("HasBacklogWithoutCapacity"),
            scaling_steps=[scaling.ScalingInterval(upper=0, change=0), scaling.ScalingInterval(lower=1, change=1)],
            evaluation_periods=2,
            cooldown=Duration.minutes(5),
        )

    def grant_invoke(self, grantee: iam.IGrantable) -> iam.Grant:
        """Lets callers send requests, with `InvokeEndpointAsync`, and read the answers."""
        self.bucket.grant_put(grantee, "requests/*")
        self.bucket.grant_read(grantee, "answers/*")
        return iam.Grant.add_to_principal(
            grantee=grantee, actions=["sagemaker:InvokeEndpointAsync"], resource_arns=[self.endpoint_arn]
        )

    def _of_queue(self, name: str) -> cloudwatch.Metric:
        of_endpoint = {"EndpointName": self.endpoint_name}
        return cloudwatch.Metric(
            namespace="AWS/SageMaker", metric_name=name, dimensions_map=of_endpoint, statistic="Average", period=MINUTE
        )


class ServerlessEndpoint(_NewEndpoint):
    """An endpoint without instances, on CPUs. It costs nothing without requests, and the first ones wait for a start.

    A recommendation does not size it: that counts instances, and a container with `memory_mb` has another CPU. The
    objective decides its concurrency: at the peak, with Poisson arrivals that take as long as the latency limit,
    SageMaker throttles at most `max_error_rate` of the requests (Erlang's loss formula).
    Source: https://docs.aws.amazon.com/sagemaker/latest/dg/serverless-endpoints.html
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        archive: ModelArchive,
        image: EcrImage,
        objective: LatencyObjective,
        memory_mb: int = SERVERLESS_MB[-1],
        environment: Mapping[str, str] | None = None,
        endpoint_name: str | None = None,
    ) -> None:
        load = objective.peak_invocations_per_minute / 60_000 * objective.model_latency_ms
        concurrency = fewest_servers(load, objective.max_error_rate)
        problems = _problems_of_serverless(objective, concurrency, memory_mb, image)
        super().__init__(scope, id, endpoint_name, problems)
        variables = {**(environment or {}), **self.reporting}
        served = Served(archive=archive, image=image, environment=variables, instance_types=(), instance_count=0)
        self.role = execution_role(self, [served])
        model = ServedModel(self, "Model", served=served, role=self.role)
        acknowledge_to_checkov(model.model, "CKV_AWS_370", "SageMaker does not isolate serverless endpoints.")
        memory = Config.ServerlessConfigProperty(max_concurrency=concurrency, memory_size_in_mb=memory_mb)
        name = model.model.attr_model_name
        self._create(
            Config.ProductionVariantProperty(
                variant_name=VARIANT, model_name=name, initial_variant_weight=1, serverless_config=memory
            )
        )


class SharedEndpoint(_NewEndpoint):
    """Instances on which SageMaker places copies of several models (inference components).

    A recommendation does not size a copy, because it shares its instance with other models: measure it beside them.
    Source: https://docs.aws.amazon.com/sagemaker/latest/dg/realtime-endpoints-deploy-models.html
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        instance_type: str,
        max_instances: int,
        min_instances: int = 2,
        endpoint_name: str | None = None,
    ) -> None:
        super().__init__(scope, id, endpoint_name, _problems_of_bounds("instances", min_instances, max_instances))
        self.role = execution_role(self, [])
        variant = Config.ProductionVariantProperty(
            variant_name=VARIANT,
            instance_type=instance_type,
            initial_instance_count=min_instances,
            managed_instance_scaling=Config.ManagedInstanceScalingProperty(
                status="ENABLED", min_instance_count=min_instances, max_instance_count=max_instances
            ),
            routing_config=Config.RoutingConfigProperty(routing_strategy="LEAST_OUTSTANDING_REQUESTS"),
        )
        self._create(variant, execution_role_arn=self.role.role_arn, enable_network_isolation=True)
        self._models: list[str] = []

    def grant_invoke(self, grantee: iam.IGrantable) -> iam.Grant:
        """Lets callers invoke the models that were added so far."""
        arns = [self.endpoint_arn, *self._models]
        return iam.Grant.add_to_principal(grantee=grantee, actions=["sagemaker:InvokeEndpoint"], resource_arns=arns)

    def add_model(
        self,
        id: str,
        *,
        archive: ModelArchive,
        image: EcrImage,
        memory_mb: int,
        accelerators: int | None = None,
        cpu_cores: float | None = None,
        min_copies: int = 1,
        max_copies: int = 1,
        invocations_per_copy: float | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> str:
        """Adds a model, and returns the name by which callers choose it (`InferenceComponentName`).

        Each copy has `accelerators`, `cpu_cores` and `memory_mb` of an instance for itself. SageMaker adds copies above
        `invocations_per_copy` in a minute. Without that number the model keeps `min_copies`.
        """
        scope = Construct(self, id)
        refuse_arguments(scope, _problems_of_bounds("copies", min_copies, max_copies))
        archive.grant_read(self.role)
        image.grant_pull(self.role)
        download_s, start_s = startup_timeouts(archive.size_bytes)
        name = unique_name(scope)
        specification = Component.InferenceComponentSpecificationProperty(
            container=Component.InferenceComponentContainerSpecificationProperty(
                image=image.uri, artifact_url=archive.url, environment=dict(environment or {})
            ),
            compute_resource_requirements=Component.InferenceComponentComputeResourceRequirementsProperty(
                min_memory_required_in_mb=memory_mb,
                number_of_accelerator_devices_required=accelerators,
                number_of_cpu_cores_required=cpu_cores,
            ),
            startup_parameters=Component.InferenceComponentStartupParametersProperty(
                container_startup_health_check_timeout_in_seconds=start_s,
                model_data_download_timeout_in_seconds=download_s,
            ),
        )
        component = Component(
            scope,
            "Component",
            endpoint_name=self.endpoint_name,
            inference_component_name=name,
            variant_name=VARIANT,
            specification=specification,
            runtime_config=Component.InferenceComponentRuntimeConfigProperty(copy_count=min_copies),
        )
        component.node.add_dependency(*policies_of(self.role))
        self._models.append(component.ref)
        if invocations_per_copy is not None:
            resource_id = f"inference-component/{name}"
            dimension = "sagemaker:inference-component:DesiredCopyCount"
            target = scalable_target(scope, dimension, resource_id, min_copies, max_copies)
            target.add_dependency(component)
            track(
                scope,
                "Policy",
                target,
                "InvocationsPerCopy",
                predefined_metric_specification=predefined("SageMakerInferenceComponentInvocationsPerCopy"),
                target_value=invocations_per_copy,
            )
        return name


def fewest_servers(load: float, loss: float) -> int:
    """Returns how many servers keep the share of requests that find all of them busy at or below `loss`.

    `load` is arrivals per time × time of a request. Erlang's loss formula in its recursion, for Poisson arrivals:
    B(0) = 1, B(n) = load · B(n - 1) / (n + load · B(n - 1)).
    """
    servers, blocked = 0, 1.0
    while blocked > loss:
        servers += 1
        blocked = load * blocked / (servers + load * blocked)
    return servers


def _problems_of_queue(recommendation: Recommendation, archive: ModelArchive, wait_s: float) -> Iterator[str]:
    yield from problems_of_size(recommendation, None, archive.sha256, autoscaled=False)
    if recommendation.recommended and recommendation.recommended.max_invocations_per_minute is None:
        yield "recommendation: recommended.max_invocations_per_minute: null. Measure again."
    if not 0 < wait_s < math.inf:
        yield f"longest_wait_s: got {wait_s:g}. Allowed: a positive number of seconds."


def _problems_of_serverless(
    objective: LatencyObjective, concurrency: int, memory_mb: int, image: EcrImage
) -> Iterator[str]:
    if concurrency > MOST_CONCURRENT:
        yield (
            f"objective: {objective.peak} of {objective.model_latency_ms:g} ms need {concurrency:,} concurrent "
            f"requests. A serverless endpoint serves at most {MOST_CONCURRENT}. Use RecommendedEndpoint."
        )
    if memory_mb not in SERVERLESS_MB:
        yield f"memory_mb: got {memory_mb}. Allowed: {', '.join(map(str, SERVERLESS_MB))}."
    if image.host_ami is not None:
        yield "image: is for GPUs, which serverless endpoints do not have. Use the image of a CPU target."


def _problems_of_bounds(name: str, low: int, high: int) -> Iterator[str]:
    if not 1 <= low <= high:
        yield f"min_{name}, max_{name}: got {low} and {high}. Allowed: 1 or more, and the maximum at least the minimum."
