"""Metrics of ECS workloads from the programs' logs and from callers. A network load balancer counts no requests."""

from collections.abc import Mapping

from aws_cdk import Aws, Duration
from aws_cdk import aws_cloudwatch as cloudwatch

from stacks.endpoint.metrics import reported
from workloads.objective import CLIENT_LATENCY, metric_dimensions


def client_latency(workload: str, statistic: str) -> cloudwatch.Metric:
    """Milliseconds that callers wait, end to end."""
    return _reported(workload, CLIENT_LATENCY, statistic)


def response_time(workload: str, statistic: str) -> cloudwatch.Metric:
    """Milliseconds in the server."""
    return _reported(workload, "ResponseTime", statistic)


def invocations(workload: str) -> cloudwatch.Metric:
    """Invocations per minute of all tasks together."""
    return _reported(workload, "Invocations", "Sum")


def invocations_per_task(workload: str) -> cloudwatch.Metric:
    """Invocations per minute of one task, on average: each task reports one number."""
    return _reported(workload, "Invocations", "Average")


def server_errors(workload: str) -> cloudwatch.Metric:
    return _reported(workload, "ServerErrors", "Sum")


def server_error_rate(workload: str) -> cloudwatch.MathExpression:
    """Share of the invocations answered with a 5xx, from 0 to 1."""
    return cloudwatch.MathExpression(
        expression="errors / invocations",
        using_metrics={"errors": server_errors(workload), "invocations": invocations(workload)},
        label="Share of 5xx",
        period=Duration.minutes(1),
    )


def rows_per_second(workload: str) -> cloudwatch.Metric:
    """Rows per second of all shards of a batch together; with several runs in a period, the slowest run's."""
    return _reported(workload, "RowsPerSecond", "Minimum")


def rows(workload: str) -> cloudwatch.Metric:
    return _reported(workload, "Rows", "Sum")


def bad_rows(workload: str) -> cloudwatch.Metric:
    return _reported(workload, "BadRows", "Sum")


def reported_dimensions(workload: str) -> Mapping[str, str]:
    """Returns the dimensions that EcsTask hands to the programs. The stack tells two stages of a workload apart."""
    return metric_dimensions(workload, Aws.STACK_NAME)


def _reported(workload: str, name: str, statistic: str) -> cloudwatch.Metric:
    return reported(workload, Aws.STACK_NAME, name, statistic)
