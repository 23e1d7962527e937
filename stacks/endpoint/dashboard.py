"""One page on an endpoint, to be read in ten seconds: the alarms, five numbers, and the graphs behind them."""

from collections.abc import Sequence

from aws_cdk import Duration
from aws_cdk import aws_cloudwatch as cloudwatch
from constructs import Construct

from stacks.endpoint.alarms import client_latency_limit_ms
from stacks.endpoint.metrics import MICROSECONDS_PER_MILLISECOND, MINUTE, EndpointMetrics
from stacks.widgets import cost_per_day, cost_widget, graph, limit_line
from workloads import Candidate, LatencyObjective
from workloads.instances import hardware

PERCENTILES = ("p50", "p90", "p99")


class EndpointDashboard(Construct):
    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        endpoint: EndpointMetrics,
        objective: LatencyObjective,
        alarms: Sequence[cloudwatch.IAlarm],
        instance_type: str,
        recommended: Candidate | None,
    ) -> None:
        super().__init__(scope, id)
        self._endpoint, self._objective = endpoint, objective
        self._recommended, self._hardware_kind = recommended, hardware(instance_type)
        dashboard = cloudwatch.Dashboard(self, "Dashboard", default_interval=Duration.hours(3))
        dashboard.add_widgets(cloudwatch.AlarmStatusWidget(title="Alarms", alarms=list(alarms), width=24, height=3))
        dashboard.add_widgets(self._now())
        dashboard.add_widgets(self._model_latency(), self._around_the_model())
        dashboard.add_widgets(self._in_the_server(), self._load())
        dashboard.add_widgets(self._errors())
        dashboard.add_widgets(self._cost(), self._hardware())

    def _now(self) -> cloudwatch.SingleValueWidget:
        endpoint, percentile = self._endpoint, self._objective.percentile
        cost = cost_per_day(self._recommended, "instances", endpoint.metric_instances())
        latency = cloudwatch.MathExpression(
            expression=f"latency / {MICROSECONDS_PER_MILLISECOND}",
            using_metrics={"latency": endpoint.metric_model_latency(percentile.lower())},
            label=f"{percentile} model latency, ms (objective {self._objective.model_latency_ms:g})",
            period=MINUTE,
        )
        shown: list[cloudwatch.IMetric] = [
            latency,
            endpoint.metric_invocations().with_(label="Invocations per minute"),
            endpoint.metric_server_error_rate().with_(label="Share of 5xx"),
            endpoint.metric_instances(),
            *([cost[0]] if cost else []),
        ]
        return cloudwatch.SingleValueWidget(title="Now", metrics=shown, width=24, height=4)

    def _model_latency(self) -> cloudwatch.GraphWidget:
        objective = self._objective
        shown = dict.fromkeys((*PERCENTILES, objective.percentile.lower()))
        return graph(
            "Model latency (µs)",
            *(self._endpoint.metric_model_latency(statistic) for statistic in shown),
            limits=[limit_line(f"Objective, {objective.percentile}", _us(objective.model_latency_ms))],
        )

    def _around_the_model(self) -> cloudwatch.GraphWidget:
        objective = self._objective
        client_ms = client_latency_limit_ms(objective)
        return graph(
            "Around the model: overhead (µs, left), what callers waited (ms, right)",
            self._endpoint.metric_overhead_latency(),
            limits=[limit_line("Overhead's limit, average", _us(objective.overhead_latency_ms))],
            right=[self._endpoint.metric_client_latency(objective.percentile.lower())],
            right_annotations=[limit_line(f"Callers' limit, {objective.percentile}", client_ms)],
        )

    def _in_the_server(self) -> cloudwatch.GraphWidget:
        """Shows what of the model latency is the server's: the rest is SageMaker's way to the container and back."""
        objective, endpoint = self._objective, self._endpoint
        if "Inferentia" not in self._hardware_kind:
            waited, computed = endpoint.metric_queue_time(), endpoint.metric_compute_time()
            return graph("In Triton: waiting and computing (ms, mean)", waited, computed)
        return graph(
            "In the server: waiting and computing (ms)",
            *map(endpoint.metric_response_time, dict.fromkeys((*PERCENTILES, objective.percentile.lower()))),
            limits=[limit_line(f"Objective, {objective.percentile}", objective.model_latency_ms)],
        )

    def _load(self) -> cloudwatch.GraphWidget:
        limits = []
        if (recommended := self._recommended) is not None:
            if recommended.max_invocations_per_minute is not None:
                limits.append(limit_line("Measured capacity", recommended.max_invocations_per_minute))
            if recommended.autoscaling is not None:
                limits.append(
                    limit_line("Autoscaling's target", recommended.autoscaling.target_invocations_per_instance)
                )
        load = self._endpoint.metric_invocations_per_instance()
        return graph("Invocations per minute and instance", load, limits=limits)

    def _errors(self) -> cloudwatch.GraphWidget:
        endpoint = self._endpoint
        return graph(
            "Share of requests that failed",
            endpoint.metric_client_error_rate(),
            endpoint.metric_server_error_rate(),
            endpoint.metric_model_error_rate(),
            limits=[limit_line("Limit", self._objective.max_error_rate)],
        )

    def _cost(self) -> cloudwatch.GraphWidget | cloudwatch.TextWidget:
        title = "USD per day at the present size (left), instances (right)"
        instances = self._endpoint.metric_instances()
        return cost_widget(self._recommended, "instances", instances, title, instances)

    def _hardware(self) -> cloudwatch.GraphWidget:
        endpoint, cpu = self._endpoint, self._endpoint.metric_cpu_utilization()
        if self._hardware_kind == "GPU":
            shown = [endpoint.metric_gpu_utilization(), endpoint.metric_gpu_memory_utilization(), cpu]
            return graph("GPU and its memory (100 % each), CPU (100 % per core)", *shown)
        return graph("CPU (100 % per core) and memory (%)", cpu, endpoint.metric_memory_utilization())


def _us(milliseconds: float) -> float:
    return milliseconds * MICROSECONDS_PER_MILLISECOND
