"""The measurements of a job, read from the API's responses into numbers with their units. Pure.

Describe gives a recommendation per test, ListSteps the tests that failed, CloudWatch the time series of each test.
Fleet totals are divided by InitialInstanceCount; NaN and absent values are None. MaxInvocations is called
MaximumInvocations in AWS's older samples.

ModelLatency is documented in ms, but the samples of that very documentation are in µs. CloudWatch's figure for the same
test decides, which is in µs for certain; without one, Little's law does: read as ms, a figure in µs would mean a
thousand times the users that there were.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

from inference_recommender.capacity.probe import Capacity
from inference_recommender.capacity.server_times import ServerTimes
from inference_recommender.capacity.statistics import Limit
from inference_recommender.capacity.time_series import Series, SeriesFindings, series_findings
from workloads import ColdStart, LatencyObjective, LatencyPercentiles
from workloads.recommendation import MeasuredConfiguration

SERVERLESS = "serverless"
"""Stands for the instance type of a measurement whose endpoint was serverless."""
LIKELY_USERS = 500
"""Concurrent requests: a closed loop of Inference Recommender's, of 3 users and 3 more a minute, has no more."""
UNLIMITED = Limit(percentile=95.0, latency_ms=None)
OUTSIDE = 3.0
"""A figure of the same test is never beyond CloudWatch's highest or lowest quantile by this factor."""


REFUSALS = ("generator lagged", "machine stalled", "too many errors", "too few samples")
"""The first words of the load generator's reasons for an invalid test. A job of a local account copies its reason into
FailureReason. A reason that begins with one of them ends the run without a verdict; others fail their candidate."""


class Measurement(MeasuredConfiguration):
    """One test of a configuration."""

    endpoint_name: str
    percentile: str | None = None
    """The percentile of `model_latency_ms`, such as P99, where our own records gave it; None for a job's figure, of
    which the service documents none."""
    open_loop: Capacity | None = None
    """None without an open-loop search."""
    server: ServerTimes | None = None
    """Times in the server under the load of closed-loop users; None if it does not report them, as on SageMaker."""
    cold_start: ColdStart | None = None
    """None where no server was started for it that could be watched."""
    model_latency_unit: Literal["ms", "µs"] = "ms"
    """The unit in which the job reported the latency; above it is converted."""
    percentiles_ms: LatencyPercentiles = LatencyPercentiles()
    """Model latency over the whole test."""
    gpu_utilization_percent: float | None = None
    """Mean of a GPU in the test's busiest minute, 0 to 100."""
    price_per_hour_usd: float | None = None
    failure_reason: str | None = None
    series: Series | None = None
    """Its rates are of the whole fleet, `instance_count` instances."""
    instance_count: int = 1

    @property
    def refused(self) -> str | None:
        """The words of `REFUSALS` that `failure_reason` begins with; None for any other failure."""
        return next((words for words in REFUSALS if (self.failure_reason or "").startswith(words)), None)


def local_caution(measured_on: str | None, machine: str | None) -> tuple[str, ...]:
    """Returns the caution about figures that SageMaker did not measure, or none."""
    if measured_on != "local":
        return ()
    return (
        f"Measured on this machine, not on SageMaker. {machine} stood in for every instance type. Size production "
        "from a job on SageMaker.",
    )


def measurements(
    describe: Mapping[str, Any],
    steps: Sequence[Mapping[str, Any]],
    series: Mapping[str, Series],
    existing_endpoint: Mapping[str, Any] | None = None,
    limit: Limit = UNLIMITED,
) -> tuple[Measurement, ...]:
    """Returns every test of the job: an existing endpoint's, the recommendations, then tests that only the steps have.

    `series` is by endpoint name. `existing_endpoint` is the EndpointConfiguration of an endpoint that the job tests
    beside the instance types. The interval of a rate is that of the rate within `limit`.
    """
    by_endpoint: dict[str, Measurement] = {}
    for result in results(describe, steps, existing_endpoint):
        measured = _measurement(result, series.get(result["EndpointConfiguration"]["EndpointName"]), limit)
        by_endpoint.setdefault(measured.endpoint_name, measured)
    return tuple(by_endpoint.values())


def results(
    describe: Mapping[str, Any], steps: Sequence[Mapping[str, Any]], existing_endpoint: Mapping[str, Any] | None = None
) -> Iterator[Mapping[str, Any]]:
    """Yields every result of the job in one shape, each with its EndpointConfiguration; a test may come twice."""
    for performance in describe.get("EndpointPerformances", []):
        name = performance["EndpointInfo"].get("EndpointName")
        is_existing = existing_endpoint is not None and name in (None, existing_endpoint["EndpointName"])
        endpoint = existing_endpoint if is_existing else {"EndpointName": name or "the endpoint"}
        yield {"Metrics": performance["Metrics"], "EndpointConfiguration": endpoint}
    yield from describe.get("InferenceRecommendations", [])
    for number, step in enumerate(steps, start=1):
        if benchmark := step.get("InferenceBenchmark"):
            yield _of_step(step["Status"], benchmark, number, existing_endpoint)


def _of_step(
    status: str, benchmark: Mapping[str, Any], number: int, existing_endpoint: Mapping[str, Any] | None
) -> dict[str, Any]:
    """Completes a step, which names no existing endpoint, and none for a test that failed before it had one."""
    endpoint: Mapping[str, Any] = {"EndpointName": f"test-{number}"}
    if existing_endpoint and "EndpointMetrics" in benchmark:
        endpoint = existing_endpoint
    reason = benchmark.get("FailureReason") or "The test failed without a reason."
    return {
        "EndpointConfiguration": endpoint,
        "Metrics": benchmark.get("EndpointMetrics", {}),
        **benchmark,
        "FailureReason": reason if status == "FAILED" else None,
    }


def limit_of(objective: LatencyObjective) -> Limit:
    return Limit(percentile=objective.percentile_rank, latency_ms=objective.model_latency_ms)


def _measurement(result: Mapping[str, Any], series: Series | None, limit: Limit) -> Measurement:
    metrics, endpoint = result.get("Metrics", {}), result["EndpointConfiguration"]
    instances = endpoint.get("InitialInstanceCount") or 1
    parameters = result.get("ModelConfiguration", {}).get("EnvironmentParameters", [])
    rate = _number(metrics.get("MaxInvocations", metrics.get("MaximumInvocations")))
    quantiles = series.model_latency_quantiles_ms if series else {}
    reported = _number(metrics.get("ModelLatency"))
    unit = latency_unit(reported, rate, quantiles)
    findings = series_findings(series, limit) if series else SeriesFindings(interval=None, warm_up_s=None)
    low, high = findings.interval or (None, None)
    return Measurement(
        instance_type=endpoint.get("InstanceType") or (SERVERLESS if "ServerlessConfig" in endpoint else "unknown"),
        environment={parameter["Key"]: parameter["Value"] for parameter in parameters},
        endpoint_name=endpoint["EndpointName"],
        closed_loop_invocations_per_minute=_per(instances, rate),
        closed_loop_invocations_interval=None if low is None or high is None else (low / instances, high / instances),
        model_latency_ms=reported / 1000 if reported is not None and unit == "µs" else reported,
        model_latency_unit=unit,
        cpu_utilization_percent=_number(metrics.get("CpuUtilization")),
        memory_utilization_percent=_number(metrics.get("MemoryUtilization")),
        price_per_hour_usd=_per(instances, _number(metrics.get("CostPerHour"))),
        warm_up_s=findings.warm_up_s,
        failure_reason=result.get("FailureReason"),
        series=series,
        instance_count=instances,
        percentiles_ms=LatencyPercentiles(**{p: quantiles.get(p) for p in ("p50", "p90", "p95", "p99")}),
    )


def latency_unit(
    reported: float | None, invocations_per_minute: float | None, quantiles_ms: Mapping[str, float]
) -> Literal["ms", "µs"]:
    """Returns the unit of a job's ModelLatency, by CloudWatch's quantiles of the same test or else the fleet's rate."""
    if reported is None:
        return "ms"
    if quantiles_ms:
        lowest, highest = min(quantiles_ms.values()), max(quantiles_ms.values())
        return "µs" if reported > highest * OUTSIDE and reported / 1000 >= lowest / OUTSIDE else "ms"
    users = (invocations_per_minute or 0) / 60 * reported / 1000
    return "µs" if users > LIKELY_USERS else "ms"


def _number(value: float | None) -> float | None:
    return None if value is None or math.isnan(value) else float(value)


def _per(instances: int, total: float | None) -> float | None:
    return None if total is None else total / instances
