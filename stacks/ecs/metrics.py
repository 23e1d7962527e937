"""Metrics of ECS workloads from the programs' logs and from callers. A network load balancer counts no requests."""

from dataclasses import dataclass

from aws_cdk import Aws
from aws_cdk import aws_cloudwatch as cloudwatch

from stacks.endpoint.metrics import MINUTE, ReportedMetrics


@dataclass(frozen=True, kw_only=True)
class EcsMetrics(ReportedMetrics):
    """Two stages of a workload report under different stacks."""

    stack: str = Aws.STACK_NAME

    def invocations(self) -> cloudwatch.Metric:
        """Invocations per minute of all tasks together."""
        return self._reported("Invocations", "Sum")

    def invocations_per_task(self) -> cloudwatch.Metric:
        """Invocations per minute of one task, on average: each task reports one number."""
        return self._reported("Invocations", "Average")

    def server_errors(self) -> cloudwatch.Metric:
        return self._reported("ServerErrors", "Sum")

    def server_error_rate(self) -> cloudwatch.MathExpression:
        """Share of the invocations answered with a 5xx, from 0 to 1."""
        return cloudwatch.MathExpression(
            expression="errors / invocations",
            using_metrics={"errors": self.server_errors(), "invocations": self.invocations()},
            label="Share of 5xx",
            period=MINUTE,
        )

    def rows_per_second(self) -> cloudwatch.Metric:
        """Rows per second of all shards of a batch together; with several runs in a period, the slowest run's."""
        return self._reported("RowsPerSecond", "Minimum")

    def rows(self) -> cloudwatch.Metric:
        return self._reported("Rows", "Sum")

    def bad_rows(self) -> cloudwatch.Metric:
        return self._reported("BadRows", "Sum")
