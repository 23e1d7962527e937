"""The alarms of an endpoint: which of them page, and which roll an update back."""

from aws_cdk import aws_cloudwatch as cloudwatch
from constructs import Construct

from stacks.endpoint.metrics import MICROSECONDS_PER_MILLISECOND, EndpointMetrics
from stacks.paging import sustained_alarm
from workloads import LatencyObjective


class EndpointAlarms(Construct):
    """The alarms in `paging` page, those in `rollback` end an update, and `all` are on the dashboard."""

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
        latency, errors = self._latency(), self._errors()
        client_errors = self._client_errors()
        saturation = self._saturation()
        # Malformed requests do not page, but a release that rejects every request is rolled back.
        self.paging = [*latency, self._client_latency(), *errors, *saturation]
        self.rollback = [*latency, *errors, client_errors]
        self.all = [*self.paging, client_errors]

    def _latency(self) -> list[cloudwatch.Alarm]:
        metrics, objective = self._metrics, self._objective
        model = sustained_alarm(
            self,
            "ModelLatency",
            metrics.model_latency(objective.percentile.lower()),
            objective.model_latency_ms * MICROSECONDS_PER_MILLISECOND,
            f"{objective.percentile} model latency reached the objective, {objective.model_latency_ms:g} ms.",
        )
        overhead = sustained_alarm(
            self,
            "OverheadLatency",
            metrics.overhead_latency(),
            objective.overhead_latency_ms * MICROSECONDS_PER_MILLISECOND,
            f"Average overhead latency reached its limit, {objective.overhead_latency_ms:g} ms.",
        )
        return [model, overhead]

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

    def _errors(self) -> list[cloudwatch.Alarm]:
        metrics, limit = self._metrics, self._objective.max_error_rate
        return [
            sustained_alarm(
                self,
                "ServerErrors",
                metrics.server_error_rate(),
                limit,
                f"{limit:.2%} of requests failed with a 5xx status.",
            ),
            sustained_alarm(
                self,
                "ModelErrors",
                metrics.model_error_rate(),
                limit,
                f"{limit:.2%} of requests failed in the container.",
            ),
        ]

    def _client_errors(self) -> cloudwatch.Alarm:
        limit = self._objective.max_error_rate
        return sustained_alarm(
            self,
            "ClientErrors",
            self._metrics.client_error_rate(),
            limit,
            f"{limit:.2%} of requests failed with a 4xx status.",
        )

    def _saturation(self) -> list[cloudwatch.Alarm]:
        if (capacity := self._capacity_per_instance) is None:
            return []
        text = f"Invocations per minute and instance reached the measured capacity, {capacity:,.0f}."
        return [sustained_alarm(self, "Saturation", self._metrics.invocations_per_instance(), capacity, text)]


def client_latency_limit_ms(objective: LatencyObjective) -> float:
    """Returns how long a caller may wait: the model latency's limit plus the overhead's."""
    return objective.model_latency_ms + objective.overhead_latency_ms
