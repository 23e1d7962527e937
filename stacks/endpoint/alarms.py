"""The alarms of an endpoint: those that page, and those of a new fleet, which roll an update back."""

from aws_cdk import aws_cloudwatch as cloudwatch
from constructs import Construct

from stacks.deployment import NOT_RECOMMENDED
from stacks.endpoint.metrics import MICROSECONDS_PER_MILLISECOND, EndpointMetrics, FleetMetrics
from stacks.paging import sustained_alarm
from stacks.workload_stack import refuse_arguments
from workloads import LatencyObjective, Recommendation

ROLLBACK_CLIENT_ERROR_RATE = 0.05
"""Callers send malformed requests at any time. A release that rejects valid requests exceeds this share."""


class EndpointAlarms(Construct):
    """Alarms of an endpoint at the limits of an objective and, with a recommendation, at the measured capacity.

    Those in `paging` page. `all` watch every fleet. `RecommendedEndpoint.from_endpoint_name` imports an endpoint.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        endpoint: EndpointMetrics,
        objective: LatencyObjective,
        recommendation: Recommendation | None = None,
    ) -> None:
        super().__init__(scope, id)
        recommended = recommendation.recommended if recommendation else None
        refuse_arguments(self, [NOT_RECOMMENDED] if recommendation and not recommended else [])
        latency, errors, client_errors = _of_fleet(self, endpoint, objective, objective.max_error_rate)
        percentile, limit_ms = objective.percentile, client_latency_limit_ms(objective)
        waited = endpoint.metric_client_latency(percentile.lower())
        text = f"{percentile} client latency reached {limit_ms:g} ms, the objective plus the overhead limit."
        self.paging = [*latency, sustained_alarm(self, "ClientLatency", waited, limit_ms, text), *errors]
        if recommended and (capacity := recommended.max_invocations_per_minute) is not None:
            text = f"Invocations per minute and instance reached the measured capacity, {capacity:,.0f}."
            load = endpoint.metric_invocations_per_instance()
            self.paging.append(sustained_alarm(self, "Saturation", load, capacity, text))
        self.all = [*self.paging, client_errors]


def rollback_alarms(scope: Construct, metrics: FleetMetrics, objective: LatencyObjective) -> list[cloudwatch.Alarm]:
    """Returns alarms that end an update. They watch only one fleet, so a fix of a bad fleet can be deployed.

    Source: https://docs.aws.amazon.com/sagemaker/latest/dg/deployment-guardrails-configuration.html
    """
    # PutMetricAlarm keeps the state of an alarm that exists. A new name starts a new alarm.
    prefix = f"{metrics.stack}-{metrics.config_name}-"
    limit = max(ROLLBACK_CLIENT_ERROR_RATE, objective.max_error_rate)
    latency, errors, client_errors = _of_fleet(scope, metrics, objective, limit, prefix)
    return [*latency, *errors, client_errors]


def _of_fleet(
    scope: Construct,
    endpoint: EndpointMetrics,
    objective: LatencyObjective,
    client_error_rate: float,
    prefix: str | None = None,
) -> tuple[list[cloudwatch.Alarm], list[cloudwatch.Alarm], cloudwatch.Alarm]:
    """Returns the alarms of latency, of errors, and of callers' errors. CloudFormation names them without `prefix`."""

    def alarm(id: str, metric: cloudwatch.Metric, threshold: float, text: str) -> cloudwatch.Alarm:
        return sustained_alarm(scope, id, metric, threshold, text, name=None if prefix is None else f"{prefix}{id}")

    model_ms, overhead_ms, limit = objective.model_latency_ms, objective.overhead_latency_ms, objective.max_error_rate
    latency = [
        alarm(
            "ModelLatency",
            endpoint.metric_model_latency(objective.percentile.lower()),
            model_ms * MICROSECONDS_PER_MILLISECOND,
            f"{objective.percentile} model latency reached the objective, {model_ms:g} ms.",
        ),
        alarm(
            "OverheadLatency",
            endpoint.metric_overhead_latency(),
            overhead_ms * MICROSECONDS_PER_MILLISECOND,
            f"Average overhead latency reached its limit, {overhead_ms:g} ms.",
        ),
    ]
    requests = f"{limit:.2%} of requests"
    errors = [
        alarm("ServerErrors", endpoint.metric_server_error_rate(), limit, f"{requests} failed with a 5xx status."),
        alarm("ModelErrors", endpoint.metric_model_error_rate(), limit, f"{requests} failed in the container."),
    ]
    text = f"{client_error_rate:.2%} of requests failed with a 4xx status."
    return latency, errors, alarm("ClientErrors", endpoint.metric_client_error_rate(), client_error_rate, text)


def client_latency_limit_ms(objective: LatencyObjective) -> float:
    """Returns how long a caller may wait: the model latency's limit plus the overhead's."""
    return objective.model_latency_ms + objective.overhead_latency_ms
