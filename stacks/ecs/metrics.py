"""The metrics of a workload on ECS: what CloudWatch has of the service and its load balancer, what its programs report.

A network load balancer counts connections, not requests, and has no latency. So requests and response times are what
the Neuron server prints (containers/neuron/telemetry.py), and what callers wait is the client's own metric
(workloads/client_metric.py).
"""

from collections.abc import Mapping

from aws_cdk import Aws, Duration
from aws_cdk import aws_cloudwatch as cloudwatch

from workloads import client_metric


def client_latency(workload: str, statistic: str) -> cloudwatch.Metric:
    """In ms, end to end."""
    dimensions = {client_metric.DIMENSION: workload}
    return _metric(client_metric.NAMESPACE, client_metric.METRIC_NAME, dimensions, statistic)


def response_time(workload: str, statistic: str) -> cloudwatch.Metric:
    """In ms, in the server."""
    return _reported(workload, "ResponseTime", statistic)


def invocations(workload: str) -> cloudwatch.Metric:
    """Per minute, of all tasks."""
    return _reported(workload, "Invocations", "Sum")


def invocations_per_task(workload: str) -> cloudwatch.Metric:
    """Per minute: each task reports one number."""
    return _reported(workload, "Invocations", "Average")


def server_errors(workload: str) -> cloudwatch.Metric:
    return _reported(workload, "ServerErrors", "Sum")


def server_error_rate(workload: str) -> cloudwatch.MathExpression:
    """Share of the invocations that were answered with a 5xx."""
    return cloudwatch.MathExpression(
        expression="errors / invocations",
        using_metrics={"errors": server_errors(workload), "invocations": invocations(workload)},
        label="Share of 5xx",
        period=Duration.minutes(1),
    )


def rows_per_second(workload: str) -> cloudwatch.Metric:
    """Of a batch: of all its shards together, one number for each run; the slowest run of the period."""
    return _reported(workload, "RowsPerSecond", "Minimum")


def rows(workload: str) -> cloudwatch.Metric:
    return _reported(workload, "Rows", "Sum")


def bad_rows(workload: str) -> cloudwatch.Metric:
    return _reported(workload, "BadRows", "Sum")


def reported_dimensions(workload: str) -> Mapping[str, str]:
    """As EcsTask tells the programs: two stages of one workload are two stacks."""
    return {"Workload": workload, "Stack": Aws.STACK_NAME}


def _reported(workload: str, name: str, statistic: str) -> cloudwatch.Metric:
    return _metric(client_metric.NAMESPACE, name, reported_dimensions(workload), statistic)


def _metric(namespace: str, name: str, dimensions: Mapping[str, str], statistic: str) -> cloudwatch.Metric:
    return cloudwatch.Metric(
        namespace=namespace,
        metric_name=name,
        dimensions_map=dict(dimensions),
        statistic=statistic,
        period=Duration.minutes(1),
    )
