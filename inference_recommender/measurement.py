"""What a job measured, read from the API's responses into numbers with their units. Pure.

Describe gives a recommendation per test, ListSteps the tests that failed, CloudWatch the course of each test. Fleet
totals are divided by InitialInstanceCount; NaN and absent values are None.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from workloads import LatencyPercentiles
from workloads.document import Document


class Series(Document):
    """One test's course: a point every `period_s`, and the quantiles of model latency over the whole test."""

    period_s: int
    seconds: tuple[float, ...] = ()
    """Of each point's beginning, since the test's first."""
    users: tuple[float | None, ...] = ()
    invocations: tuple[float | None, ...] = ()
    """In the period, as the service's client counted them."""
    errors: tuple[float | None, ...] = ()
    latency_ms: dict[str, tuple[float | None, ...]] = {}
    """Client latency of each point by percentile: p50, p90, p95, p99."""
    model_latency_quantiles_ms: dict[str, float] = {}
    """Over the whole test by percentile: p1 to p99.9."""

    def invocations_per_minute(self) -> tuple[float | None, ...]:
        return tuple(None if count is None else count * 60 / self.period_s for count in self.invocations)

    def complete(self) -> "Series":
        """Without its first and last points, which cover only a part of their period; itself where none is left."""
        if len(self.seconds) < 3:
            return self
        columns = {name: getattr(self, name)[1:-1] for name in ("seconds", "users", "invocations", "errors")}
        latency_ms = {name: values[1:-1] for name, values in self.latency_ms.items()}
        return self.model_copy(update={**columns, "latency_ms": latency_ms})


class Measurement(Document):
    """One tested configuration, per instance."""

    instance_type: str
    environment: dict[str, str] = {}
    endpoint_name: str
    variant: str | None = None
    """The deployable of the workload that was tested; None is the one it hosts."""
    max_invocations_per_minute: float | None
    max_invocations_interval: tuple[float, float] | None = None
    """95 % confidence interval of the rate, where the records allow one."""
    model_latency_ms: float | None
    percentiles_ms: LatencyPercentiles = LatencyPercentiles()
    """Of model latency over the whole test."""
    cpu_utilization_percent: float | None = None
    memory_utilization_percent: float | None = None
    price_per_hour_usd: float | None = None
    warm_up_s: float | None = None
    """How long the test warmed up; excluded from capacity."""
    client_latency_ms: dict[str, float] = {}
    """By percentile, from actual send."""
    client_latency_from_intended_ms: dict[str, float] = {}
    """By percentile, from intended send: what the difference shows, the generator or a full connection held back."""
    failure_reason: str | None = None
    series: Series | None = None


def measurements(
    describe: Mapping[str, Any], steps: Sequence[Mapping[str, Any]], series: Mapping[str, Series]
) -> tuple[Measurement, ...]:
    """Every test of the job: those recommended, then those only the steps know. `series` is by endpoint name."""
    found = {m.endpoint_name: m for m in map(_measurement, describe.get("InferenceRecommendations", []))}
    for benchmark in _benchmarks(steps):
        measured = _measurement(benchmark)
        found.setdefault(measured.endpoint_name, measured)
    return tuple(_with_series(measured, series.get(name)) for name, measured in found.items())


def _benchmarks(steps: Sequence[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    for step in steps:
        benchmark = step.get("InferenceBenchmark", {})
        if "EndpointConfiguration" in benchmark:
            reason = benchmark.get("FailureReason")
            failed = step["Status"] == "FAILED"
            yield {**benchmark, "FailureReason": reason or "The test failed without a reason." if failed else None}


def _measurement(result: Mapping[str, Any]) -> Measurement:
    metrics = result.get("Metrics", {})
    endpoint = result["EndpointConfiguration"]
    instances = endpoint.get("InitialInstanceCount", 1)
    parameters = result.get("ModelConfiguration", {}).get("EnvironmentParameters", [])
    return Measurement(
        instance_type=endpoint.get("InstanceType", "serverless"),
        environment={parameter["Key"]: parameter["Value"] for parameter in parameters},
        endpoint_name=endpoint["EndpointName"],
        max_invocations_per_minute=_per(instances, metrics.get("MaxInvocations")),
        model_latency_ms=_number(metrics.get("ModelLatency")),
        cpu_utilization_percent=_number(metrics.get("CpuUtilization")),
        memory_utilization_percent=_number(metrics.get("MemoryUtilization")),
        price_per_hour_usd=_per(instances, metrics.get("CostPerHour")),
        failure_reason=result.get("FailureReason"),
    )


def _with_series(measured: Measurement, series: Series | None) -> Measurement:
    if series is None:
        return measured
    quantiles = series.model_latency_quantiles_ms
    return measured.model_copy(
        update={
            "series": series,
            "percentiles_ms": LatencyPercentiles(**{p: quantiles.get(p) for p in ("p50", "p90", "p95", "p99")}),
        }
    )


def _number(value: float | None) -> float | None:
    return None if value is None or math.isnan(value) else float(value)


def _per(instances: int, total: float | None) -> float | None:
    number = _number(total)
    return None if number is None else number / instances
