"""The metrics of an endpoint, and those that every workload's programs report.

They need only names: alarms exist before the endpoint that they guard.
"""

from dataclasses import dataclass

from aws_cdk import Duration
from aws_cdk import aws_cloudwatch as cloudwatch

from workloads.client_metric import CLIENT_LATENCY, METRIC_NAMESPACE, metric_dimensions

VARIANT = "AllTraffic"
MICROSECONDS_PER_MILLISECOND = 1000
MINUTE = Duration.minutes(1)


@dataclass(frozen=True, kw_only=True)
class ReportedMetrics:
    """Metrics that callers and containers publish under a workload and its stack."""

    workload: str
    stack: str

    def client_latency(self, statistic: str) -> cloudwatch.Metric:
        """Milliseconds that callers waited, end to end, as they publish it."""
        return self._reported(CLIENT_LATENCY, statistic)

    def response_time(self, statistic: str) -> cloudwatch.Metric:
        """Milliseconds in the Neuron server. Containers of a job that runs this model report under the same name."""
        return self._reported("ResponseTime", statistic)

    def _reported(self, name: str, statistic: str) -> cloudwatch.Metric:
        return cloudwatch.Metric(
            namespace=METRIC_NAMESPACE,
            metric_name=name,
            statistic=statistic,
            period=MINUTE,
            dimensions_map=dict(metric_dimensions(self.workload, self.stack)),
        )


@dataclass(frozen=True, kw_only=True)
class EndpointMetrics(ReportedMetrics):
    """`stack` is also the endpoint's name."""

    config_name: str | None = None
    """Selects the fleet of this endpoint configuration. None selects all fleets of the endpoint."""

    def model_latency(self, statistic: str) -> cloudwatch.Metric:
        """Microseconds. `statistic` may be any percentile, such as "p99"."""
        return self._metric("ModelLatency", statistic)

    def overhead_latency(self) -> cloudwatch.Metric:
        """Average microseconds: percentiles of this metric are not documented."""
        return self._metric("OverheadLatency", "Average")

    def queue_time(self) -> cloudwatch.Metric:
        """Mean milliseconds that a request waited in Triton. Each instance reports its own mean every minute."""
        return self._reported("QueueTime", "Average")

    def compute_time(self) -> cloudwatch.Metric:
        """Mean milliseconds that a request computed in Triton."""
        return self._reported("ComputeTime", "Average")

    def invocations(self) -> cloudwatch.Metric:
        return self._metric("Invocations", "Sum")

    def invocations_per_instance(self) -> cloudwatch.Metric:
        return self._metric("InvocationsPerInstance", "Sum")

    def client_error_rate(self) -> cloudwatch.Metric:
        """Share of requests answered with a 4xx, from 0 to 1: each request counts 1 or 0."""
        return self._metric("Invocation4XXErrors", "Average")

    def server_error_rate(self) -> cloudwatch.Metric:
        """Share of requests answered with a 5xx."""
        return self._metric("Invocation5XXErrors", "Average")

    def model_error_rate(self) -> cloudwatch.Metric:
        """Share of requests that the container itself did not answer with a 2xx."""
        return self._metric("InvocationModelErrors", "Average")

    def instances(self) -> cloudwatch.MathExpression:
        # SageMaker reports no instance count; each invocation counts 1/instances in InvocationsPerInstance.
        return cloudwatch.MathExpression(
            expression="invocations / per_instance",
            using_metrics={"invocations": self.invocations(), "per_instance": self.invocations_per_instance()},
            label="Instances",
            period=MINUTE,
        )

    def cpu_utilization(self) -> cloudwatch.Metric:
        """Per cent of one core: 400 is four busy cores."""
        return self._hardware("CPUUtilization")

    def memory_utilization(self) -> cloudwatch.Metric:
        return self._hardware("MemoryUtilization")

    def gpu_utilization(self) -> cloudwatch.Metric:
        """Per cent of one GPU: 400 is four busy GPUs."""
        return self._hardware("GPUUtilization")

    def gpu_memory_utilization(self) -> cloudwatch.Metric:
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
            dimensions_map={"EndpointName": self.stack, "VariantName": VARIANT, **fleet},
        )
