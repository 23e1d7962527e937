"""An endpoint by its name, with its metrics, and the metrics that every workload's programs report.

Metrics need only names: alarms exist before the endpoint that they guard.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from aws_cdk import Duration, Names, Token
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_iam as iam
from constructs import Construct

from stacks.grants import arn_of
from workloads.client_metric import CLIENT_LATENCY, METRIC_NAMESPACE, metric_dimensions

VARIANT = "AllTraffic"
MICROSECONDS_PER_MILLISECOND = 1000
MINUTE = Duration.minutes(1)
LONGEST_NAME = 63
"""Characters of the name of an endpoint or of an inference component."""
NAME = re.compile(rf"[a-zA-Z0-9](-*[a-zA-Z0-9]){{0,{LONGEST_NAME - 1}}}")


class ReportedMetrics:
    """Metrics that callers and containers publish under a workload and its stack."""

    workload: str
    stack: str

    def metric_client_latency(self, statistic: str) -> cloudwatch.Metric:
        """Milliseconds that callers waited, end to end, as they publish it."""
        return self._reported(CLIENT_LATENCY, statistic)

    def metric_response_time(self, statistic: str) -> cloudwatch.Metric:
        """Milliseconds in the Neuron server. Containers of a job that runs this model report under the same name."""
        return self._reported("ResponseTime", statistic)

    @property
    def reporting(self) -> dict[str, str]:
        """Variables of a server that prints its metrics as lines of its log."""
        return {"METRICS_WORKLOAD": self.workload, "METRICS_STACK": self.stack}

    def _reported(self, name: str, statistic: str) -> cloudwatch.Metric:
        return cloudwatch.Metric(
            namespace=METRIC_NAMESPACE,
            metric_name=name,
            statistic=statistic,
            period=MINUTE,
            dimensions_map=dict(metric_dimensions(self.workload, self.stack)),
        )


class EndpointMetrics(ReportedMetrics):
    """`stack` is also the endpoint's name."""

    variant_name = VARIANT
    config_name: str | None = None
    """Selects the fleet of this endpoint configuration. None selects all fleets of the endpoint."""

    def metric_model_latency(self, statistic: str) -> cloudwatch.Metric:
        """Microseconds. `statistic` may be any percentile, such as "p99"."""
        return self._metric("ModelLatency", statistic)

    def metric_overhead_latency(self) -> cloudwatch.Metric:
        """Average microseconds: percentiles of this metric are not documented."""
        return self._metric("OverheadLatency", "Average")

    def metric_queue_time(self) -> cloudwatch.Metric:
        """Mean milliseconds that a request waited in Triton. Each instance reports its own mean every minute."""
        return self._reported("QueueTime", "Average")

    def metric_compute_time(self) -> cloudwatch.Metric:
        """Mean milliseconds that a request computed in Triton."""
        return self._reported("ComputeTime", "Average")

    def metric_invocations(self) -> cloudwatch.Metric:
        return self._metric("Invocations", "Sum")

    def metric_invocations_per_instance(self) -> cloudwatch.Metric:
        return self._metric("InvocationsPerInstance", "Sum")

    def metric_client_error_rate(self) -> cloudwatch.Metric:
        """Share of requests answered with a 4xx, from 0 to 1: each request counts 1 or 0."""
        return self._metric("Invocation4XXErrors", "Average")

    def metric_server_error_rate(self) -> cloudwatch.Metric:
        """Share of requests answered with a 5xx."""
        return self._metric("Invocation5XXErrors", "Average")

    def metric_model_error_rate(self) -> cloudwatch.Metric:
        """Share of requests that the container itself did not answer with a 2xx."""
        return self._metric("InvocationModelErrors", "Average")

    def metric_instances(self) -> cloudwatch.MathExpression:
        # SageMaker reports no instance count; each invocation counts 1/instances in InvocationsPerInstance.
        shares = self.metric_invocations_per_instance()
        return cloudwatch.MathExpression(
            expression="invocations / per_instance",
            using_metrics={"invocations": self.metric_invocations(), "per_instance": shares},
            label="Instances",
            period=MINUTE,
        )

    def metric_cpu_utilization(self) -> cloudwatch.Metric:
        """Per cent of one core: 400 is four busy cores."""
        return self._hardware("CPUUtilization")

    def metric_memory_utilization(self) -> cloudwatch.Metric:
        return self._hardware("MemoryUtilization")

    def metric_gpu_utilization(self) -> cloudwatch.Metric:
        """Per cent of one GPU: 400 is four busy GPUs."""
        return self._hardware("GPUUtilization")

    def metric_gpu_memory_utilization(self) -> cloudwatch.Metric:
        return self._hardware("GPUMemoryUtilization")

    def _hardware(self, name: str) -> cloudwatch.Metric:
        return self._metric(name, "Average", "/aws/sagemaker/Endpoints")

    def _metric(self, name: str, statistic: str, namespace: str = "AWS/SageMaker") -> cloudwatch.Metric:
        fleet = {"EndpointConfigName": self.config_name} if self.config_name else {}
        return cloudwatch.Metric(
            namespace=namespace,
            metric_name=name,
            statistic=statistic,
            period=MINUTE,
            dimensions_map={"EndpointName": self.stack, "VariantName": self.variant_name, **fleet},
        )


@dataclass(kw_only=True)
class FleetMetrics(EndpointMetrics):
    """The metrics of the fleet of one endpoint configuration."""

    workload: str
    stack: str
    config_name: str | None


class NamedEndpoint(EndpointMetrics, Construct):
    """`endpoint_name`, `endpoint_arn`, grants and metrics, as `aws_sagemaker_alpha.IEndpoint` has them."""

    endpoint_name: str
    endpoint_arn: str

    @staticmethod
    def from_endpoint_name(
        scope: Construct, id: str, endpoint_name: str, *, workload: str | None = None, variant_name: str = VARIANT
    ) -> "NamedEndpoint":
        """Imports an endpoint of this account and region, to scale it, to watch it or to let others invoke it.

        `workload` is the name under which callers publish client latency, by default the endpoint's.
        """
        endpoint = NamedEndpoint(scope, id)
        endpoint.endpoint_name = endpoint.stack = endpoint_name
        # SageMaker writes an endpoint's name in lower case into its ARN.
        name = endpoint_name if Token.is_unresolved(endpoint_name) else endpoint_name.lower()
        endpoint.endpoint_arn = arn_of(scope, "sagemaker", "endpoint", name)
        endpoint.workload, endpoint.variant_name = workload or endpoint_name, variant_name
        return endpoint

    def grant_invoke(self, grantee: iam.IGrantable) -> iam.Grant:
        return iam.Grant.add_to_principal(
            grantee=grantee, actions=["sagemaker:InvokeEndpoint"], resource_arns=[self.endpoint_arn]
        )


def unique_name(construct: Construct) -> str:
    """Returns a name that is made of the construct's path."""
    return Names.unique_resource_name(construct, max_length=LONGEST_NAME, separator="-")


def problems_of_name(name: str) -> Iterator[str]:
    if not Token.is_unresolved(name) and not NAME.fullmatch(name):
        yield f"endpoint_name: got '{name}'. Allowed: up to {LONGEST_NAME} letters and digits, with hyphens in between."
