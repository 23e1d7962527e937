"""The API's responses read into numbers: units, fleets, NaN, absent values, failed steps."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inference_recommender.capacity.time_series import Series
from inference_recommender.measurement import Measurement, latency_unit, measurements
from tests.inference_recommender.api import SERIES, description, endpoint, recommendation, step


def measured(result: dict[str, Any], *steps: dict[str, Any], **series: Series) -> Measurement:
    """Returns the first measurement of a job with this result."""
    described = description(InferenceRecommendations=[result] if result else [])
    return measurements(described, steps, {name.replace("_", "-"): one for name, one in series.items()})[0]


def test_a_recommendation_becomes_a_measurement_per_instance() -> None:
    found = measured(recommendation(EndpointConfiguration=endpoint(count=2)), sm_epc_1=SERIES)
    assert (found.instance_type, found.environment) == ("ml.c5.xlarge", {"THREADS": "2"})
    assert (found.closed_loop_invocations_per_minute, found.price_per_hour_usd) == (6_000, 0.25)
    assert (found.model_latency_ms, found.cpu_utilization_percent) == (21, 95)
    assert (found.percentiles_ms.p50, found.percentiles_ms.p99) == (5.0, 20.0)
    assert found.memory_utilization_percent is None, "not a number"
    assert found.series is SERIES


BARE = {"EndpointName": "e", "VariantName": "v", "InstanceType": "ml.c5.xlarge", "InitialInstanceCount": None}


@pytest.mark.parametrize(
    ("changes", "rate", "latency_ms"),
    [
        ({"Metrics": {}}, None, None),
        ({"Metrics": {"MaximumInvocations": 648, "ModelLatency": 263}}, 648, 263),
        ({"Metrics": {"MaxInvocations": 0, "ModelLatency": 0}}, 0, 0),
        ({"EndpointConfiguration": BARE}, 12_000, 21),
    ],
    ids=["without metrics", "the older spelling", "zero", "without an instance count"],
)
def test_absent_members_are_unknown_and_zero_is_zero(
    changes: dict[str, Any], rate: float | None, latency_ms: float | None
) -> None:
    found = measured(recommendation(**changes))
    assert (found.closed_loop_invocations_per_minute, found.model_latency_ms) == (rate, latency_ms)
    assert found.percentiles_ms.p50 is None


def test_a_failed_step_is_a_measurement_with_its_reason() -> None:
    failed = step("FAILED", EndpointConfiguration=endpoint("sm-epc-2", "ml.g5.xlarge"), FailureReason="No GPU.")
    both = measurements(description(), [step("COMPLETED"), failed], {})
    assert [(test.endpoint_name, test.failure_reason) for test in both] == [("sm-epc-1", None), ("sm-epc-2", "No GPU.")]
    assert measured({}, step("FAILED")).failure_reason == "The test failed without a reason."
    benchmark = {"ModelConfiguration": {}, "FailureReason": "No capacity for ml.g5.xlarge."}
    early = {"StepType": "BENCHMARK", "JobName": "job-1", "Status": "FAILED", "InferenceBenchmark": benchmark}
    found = measured({}, early)
    assert (found.endpoint_name, found.instance_type) == ("test-1", "unknown")
    assert found.failure_reason == "No capacity for ml.g5.xlarge."


def test_the_points_at_either_end_are_left_out_of_the_complete_series() -> None:
    complete = SERIES.complete()
    assert complete.seconds == (5.0, 10.0)
    assert complete.latency_ms["p99"] == (None, 12.0)
    assert complete.complete() is complete
    assert SERIES.invocations_per_minute() == (3_600, 7_200, 10_800, 12_000)


@pytest.mark.parametrize(
    ("metrics", "series", "latency_ms", "unit"),
    [
        ({"MaxInvocations": 12_000, "ModelLatency": 21_000}, {"sm_epc_1": SERIES}, 21, "µs"),
        ({"MaxInvocations": 12_000, "ModelLatency": 21}, {"sm_epc_1": SERIES}, 21, "ms"),
        # AWS's own sample: 648 invocations a minute at 263,596 ms would be 2,847 users; at 263.596 ms they are three.
        ({"MaximumInvocations": 648, "ModelLatency": 263_596}, {}, 263.596, "µs"),
    ],
)
def test_a_latency_in_microseconds_is_recognised_and_converted(
    metrics: dict[str, float], series: dict[str, Series], latency_ms: float, unit: str
) -> None:
    found = measured(recommendation(Metrics=metrics), **series)
    assert (found.model_latency_ms, found.model_latency_unit) == (latency_ms, unit)


@given(st.floats(0.5, 400), st.floats(0.3, 3_000))
def test_without_cloudwatch_the_number_of_users_decides_the_unit(users: float, latency_ms: float) -> None:
    """A closed loop of up to 400 users: rate · latency = users in flight."""
    rate = users / (latency_ms / 1000) * 60
    assert latency_unit(latency_ms, rate, {}) == "ms"
    if users > 0.5:
        assert latency_unit(latency_ms * 1000, rate, {}) == "µs"


@pytest.mark.parametrize(
    ("reported", "unit"), [(1.0, "ms"), (12.0, "ms"), (80.0, "ms"), (2_000.0, "µs"), (12_000.0, "µs"), (80_000.0, "µs")]
)
def test_with_cloudwatch_a_latency_beyond_all_its_quantiles_is_in_the_smaller_unit(reported: float, unit: str) -> None:
    """A heavy tail changes nothing: the latency at the highest load may be many times the median of the whole test."""
    assert latency_unit(reported, 1e9, {"p1": 1.0, "p50": 2.0, "p95": 12.0, "p99.9": 90.0}) == unit


ENDPOINT = endpoint("lives", "ml.m5.large", 4)


@pytest.mark.parametrize(
    ("existing", "instance_type", "rate"), [(ENDPOINT, "ml.m5.large", 1_000), (None, "unknown", 4_000)]
)
def test_an_existing_endpoints_performance_is_a_measurement_per_instance_before_the_others(
    existing: dict[str, Any] | None, instance_type: str, rate: float
) -> None:
    performance = {"EndpointInfo": {"EndpointName": "lives"}, "Metrics": {"MaxInvocations": 4_000, "ModelLatency": 8}}
    lives, other = measurements(description(EndpointPerformances=[performance]), [], {}, existing)
    assert (lives.endpoint_name, lives.instance_type) == ("lives", instance_type)
    assert (lives.closed_loop_invocations_per_minute, lives.model_latency_ms) == (rate, 8)
    assert (other.endpoint_name, other.closed_loop_invocations_per_minute) == ("sm-epc-1", 12_000)


def test_a_step_of_an_existing_endpoint_is_recognised_by_its_metrics() -> None:
    benchmark = {"ModelConfiguration": {}, "EndpointMetrics": {"MaxInvocations": 800, "ModelLatency": 8}}
    running = {"StepType": "BENCHMARK", "JobName": "job-1", "Status": "COMPLETED", "InferenceBenchmark": benchmark}
    (measured,) = measurements(description(InferenceRecommendations=[]), [running], {}, ENDPOINT)
    assert (measured.endpoint_name, measured.closed_loop_invocations_per_minute) == ("lives", 200)
