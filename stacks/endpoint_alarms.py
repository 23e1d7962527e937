"""Alarms of an endpoint. Every latency threshold is the workload's objective; whom they wake is not known."""

from dataclasses import dataclass

from aws_cdk import aws_cloudwatch as cloudwatch
from constructs import Construct

from stacks.workload_endpoint import WorkloadEndpoint
from workloads import LatencyObjective

# Three bad minutes of five: one slow minute while an instance joins is no incident, three are.
EVALUATION_PERIODS = 5
DATAPOINTS_TO_ALARM = 3
MICROSECONDS_PER_MILLISECOND = 1000


@dataclass(frozen=True, kw_only=True, slots=True)
class EndpointAlarmsProps:
    endpoint: WorkloadEndpoint
    objective: LatencyObjective


class EndpointAlarms(Construct):
    def __init__(self, scope: Construct, id: str, props: EndpointAlarmsProps) -> None:
        super().__init__(scope, id)
        endpoint, objective = props.endpoint, props.objective
        percentile = objective.percentile.lower()
        self._alarm(
            "ModelLatency",
            endpoint.metric_model_latency(percentile),
            objective.model_latency_ms * MICROSECONDS_PER_MILLISECOND,
            f"{objective.percentile} model latency reached the objective, {objective.model_latency_ms:g} ms.",
        )
        self._alarm(
            "OverheadLatency",
            endpoint.metric_overhead_latency(),
            objective.overhead_latency_ms * MICROSECONDS_PER_MILLISECOND,
            f"SageMaker added {objective.overhead_latency_ms:g} ms or more around the model, on average.",
        )
        self._alarm("ServerErrors", endpoint.metric_server_errors(), 1, "Requests were answered with a 5xx error.")

    def _alarm(self, id: str, metric: cloudwatch.Metric, threshold: float, description: str) -> None:
        cloudwatch.Alarm(
            self,
            id,
            metric=metric,
            threshold=threshold,
            comparison_operator=cloudwatch.ComparisonOperator.GREATER_THAN_OR_EQUAL_TO_THRESHOLD,
            evaluation_periods=EVALUATION_PERIODS,
            datapoints_to_alarm=DATAPOINTS_TO_ALARM,
            # An endpoint without traffic reports nothing, and breaks no objective.
            treat_missing_data=cloudwatch.TreatMissingData.NOT_BREACHING,
            alarm_description=description,
        )
