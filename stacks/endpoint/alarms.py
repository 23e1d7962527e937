"""The alarms of an endpoint: those that page, and those of a new fleet, which roll an update back."""

from aws_cdk import aws_cloudwatch as cloudwatch
from constructs import Construct

from stacks.endpoint.metrics import MICROSECONDS_PER_MILLISECOND, EndpointMetrics
from stacks.paging import sustained_alarm
from workloads import LatencyObjective

ROLLBACK_CLIENT_ERROR_RATE = 0.05
"""Callers send malformed requests at any time. A release that rejects valid requests exceeds this share."""


class EndpointAlarms(Construct):
    """The alarms in `paging` page, and `all` are on the dashboard. They watch every fleet of the endpoint."""

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        metrics: EndpointMetrics,
        objective: LatencyObjective,
        capacity_per_instance: float | None,
    ) -> None:
        super().__init__(scope, id)
        self._metrics, self._objective, self._capacity_per_instance = metrics, objective, capacity_per_instance
        alarms = _FleetAlarms(self, metrics, objective)
        self.paging = [*alarms.latency(), self._client_latency(), *alarms.errors(), *self._saturation()]
        self.all = [*self.paging, alarms.client_errors(objective.max_error_rate)]

    def _client_latency(self) -> cloudwatch.Alarm:
        objective = self._objective
        limit_ms = client_latency_limit_ms(objective)
        return sustained_alarm(
            self,
            "ClientLatency",
            self._metrics.client_latency(objective.percentile.lower()),
            limit_ms,
            f"{objective.percentile} client latency reached {limit_ms:g} ms, the objective plus the overhead limit.",
        )

    def _saturation(self) -> list[cloudwatch.Alarm]:
        if (capacity := self._capacity_per_instance) is None:
            return []
        text = f"Invocations per minute and instance reached the measured capacity, {capacity:,.0f}."
        return [sustained_alarm(self, "Saturation", self._metrics.invocations_per_instance(), capacity, text)]


class RollbackAlarms(Construct):
    """`all` end an update. They watch only the fleet of `metrics.config_name`, so a fix of a bad fleet can be deployed.

    Source: https://docs.aws.amazon.com/sagemaker/latest/dg/deployment-guardrails-configuration.html
    """

    def __init__(self, scope: Construct, id: str, *, metrics: EndpointMetrics, objective: LatencyObjective) -> None:
        super().__init__(scope, id)
        # PutMetricAlarm keeps the state of an alarm that exists. A new name starts a new alarm.
        alarms = _FleetAlarms(self, metrics, objective, prefix=f"{metrics.endpoint_name}-{metrics.config_name}-")
        limit = max(ROLLBACK_CLIENT_ERROR_RATE, objective.max_error_rate)
        self.all = [*alarms.latency(), *alarms.errors(), alarms.client_errors(limit)]


class _FleetAlarms:
    """Adds alarms to `scope`. `prefix` gives them names; without it CloudFormation generates the names."""

    def __init__(
        self, scope: Construct, metrics: EndpointMetrics, objective: LatencyObjective, prefix: str | None = None
    ) -> None:
        self._scope, self._metrics, self._objective, self._prefix = scope, metrics, objective, prefix

    def latency(self) -> list[cloudwatch.Alarm]:
        metrics, objective = self._metrics, self._objective
        model = self._alarm(
            "ModelLatency",
            metrics.model_latency(objective.percentile.lower()),
            objective.model_latency_ms * MICROSECONDS_PER_MILLISECOND,
            f"{objective.percentile} model latency reached the objective, {objective.model_latency_ms:g} ms.",
        )
        overhead = self._alarm(
            "OverheadLatency",
            metrics.overhead_latency(),
            objective.overhead_latency_ms * MICROSECONDS_PER_MILLISECOND,
            f"Average overhead latency reached its limit, {objective.overhead_latency_ms:g} ms.",
        )
        return [model, overhead]

    def errors(self) -> list[cloudwatch.Alarm]:
        metrics, limit = self._metrics, self._objective.max_error_rate
        server = f"{limit:.2%} of requests failed with a 5xx status."
        model = f"{limit:.2%} of requests failed in the container."
        return [
            self._alarm("ServerErrors", metrics.server_error_rate(), limit, server),
            self._alarm("ModelErrors", metrics.model_error_rate(), limit, model),
        ]

    def client_errors(self, limit: float) -> cloudwatch.Alarm:
        text = f"{limit:.2%} of requests failed with a 4xx status."
        return self._alarm("ClientErrors", self._metrics.client_error_rate(), limit, text)

    def _alarm(self, id: str, metric: cloudwatch.Metric, threshold: float, description: str) -> cloudwatch.Alarm:
        name = None if self._prefix is None else f"{self._prefix}{id}"
        return sustained_alarm(self._scope, id, metric, threshold, description, name=name)


def client_latency_limit_ms(objective: LatencyObjective) -> float:
    """Returns how long a caller may wait: the model latency's limit plus the overhead's."""
    return objective.model_latency_ms + objective.overhead_latency_ms
