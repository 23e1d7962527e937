"""The API's responses read into numbers: units, fleets, NaN, absent values, failed steps."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inference_recommender.measurement import latency_unit, measurements
from tests.inference_recommender.api import SERIES, description, endpoint, recommendation, step


def test_a_recommendation_becomes_a_measurement_per_instance() -> None:
    fleet = recommendation(EndpointConfiguration=endpoint(count=2))
    (measured,) = measurements(description(InferenceRecommendations=[fleet]), [], {"sm-epc-1": SERIES})
    assert measured.instance_type == "ml.c5.xlarge"
    assert measured.environment == {"THREADS": "2"}
    assert measured.max_invocations_per_minute == 6_000
    assert measured.price_per_hour_usd == 0.25
    assert measured.model_latency_ms == 21
    assert measured.cpu_utilization_percent == 95
    assert measured.series is SERIES


def test_not_a_number_is_unknown() -> None:
    (measured,) = measurements(description(), [], {})
    assert measured.memory_utilization_percent is None


def test_a_result_without_metrics_is_unknown_and_not_zero() -> None:
    bare = recommendation()
    del bare["Metrics"]
    (measured,) = measurements(description(InferenceRecommendations=[bare]), [], {})
    assert (measured.max_invocations_per_minute, measured.model_latency_ms, measured.price_per_hour_usd) == (
        None,
        None,
        None,
    )


def test_percentiles_come_from_the_series_over_the_whole_test() -> None:
    (measured,) = measurements(description(), [], {"sm-epc-1": SERIES})
    assert (measured.percentiles_ms.p50, measured.percentiles_ms.p99) == (5.0, 20.0)
    (bare,) = measurements(description(), [], {})
    assert bare.percentiles_ms.p50 is None


def test_a_failed_step_is_a_measurement_with_its_reason() -> None:
    failed = step("FAILED", EndpointConfiguration=endpoint("sm-epc-2", "ml.g5.xlarge"), FailureReason="No GPU.")
    measured = measurements(description(), [failed], {})
    assert [(test.endpoint_name, test.failure_reason) for test in measured] == [
        ("sm-epc-1", None),
        ("sm-epc-2", "No GPU."),
    ]


def test_a_step_of_a_recommended_endpoint_is_not_counted_twice() -> None:
    assert len(measurements(description(), [step("COMPLETED")], {})) == 1


def test_a_step_that_failed_without_a_reason_says_so() -> None:
    (measured,) = measurements(description(InferenceRecommendations=[]), [step("FAILED")], {})
    assert measured.failure_reason == "The test failed without a reason."


def test_the_points_at_either_end_are_left_out_of_the_complete_series() -> None:
    complete = SERIES.complete()
    assert complete.seconds == (5.0, 10.0)
    assert complete.latency_ms["p99"] == (None, 12.0)
    assert complete.model_latency_ms["p99"] == (7.0, 12.0)
    assert complete.complete() is complete


def test_invocations_per_minute_follow_from_the_period() -> None:
    assert SERIES.invocations_per_minute() == (3_600, 7_200, 10_800, 12_000)


def test_the_older_spelling_of_max_invocations_is_read_too() -> None:
    older = recommendation(Metrics={"MaximumInvocations": 648, "ModelLatency": 263})
    (measured,) = measurements(description(InferenceRecommendations=[older]), [], {})
    assert measured.max_invocations_per_minute == 648


def test_zero_invocations_are_zero_and_not_unknown() -> None:
    none = recommendation(Metrics={"MaxInvocations": 0, "ModelLatency": 0})
    (measured,) = measurements(description(InferenceRecommendations=[none]), [], {})
    assert (measured.max_invocations_per_minute, measured.model_latency_ms) == (0, 0)


def test_an_instance_count_that_is_absent_or_empty_is_one() -> None:
    bare = {"EndpointName": "e", "VariantName": "v", "InstanceType": "ml.c5.xlarge", "InitialInstanceCount": None}
    (measured,) = measurements(
        description(InferenceRecommendations=[recommendation(EndpointConfiguration=bare)]), [], {}
    )
    assert measured.max_invocations_per_minute == 12_000


def test_a_latency_in_microseconds_is_told_by_cloudwatch_and_converted() -> None:
    micro = recommendation(Metrics={"MaxInvocations": 12_000, "ModelLatency": 21_000})
    (measured,) = measurements(description(InferenceRecommendations=[micro]), [], {"sm-epc-1": SERIES})
    assert (measured.model_latency_ms, measured.model_latency_unit) == (21, "µs")
    (plain,) = measurements(description(), [], {"sm-epc-1": SERIES})
    assert (plain.model_latency_ms, plain.model_latency_unit) == (21, "ms")


def test_the_rate_of_awss_own_sample_shows_that_it_is_in_microseconds() -> None:
    """648 invocations a minute at 263,596 ms would be 2,847 users; at 263.596 ms they are three."""
    sample = recommendation(Metrics={"MaximumInvocations": 648, "ModelLatency": 263_596})
    (measured,) = measurements(description(InferenceRecommendations=[sample]), [], {})
    assert (measured.model_latency_ms, measured.model_latency_unit) == (263.596, "µs")


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


def test_a_latency_that_fits_cloudwatch_in_no_unit_is_left_as_documented() -> None:
    assert latency_unit(500.0, 1e9, {"p50": 20.0, "p99": 30.0}) == "ms"


ENDPOINT = endpoint("lives", "ml.m5.large", 4)


def test_an_existing_endpoints_performance_is_a_measurement_per_instance_before_the_others() -> None:
    performance = {"EndpointInfo": {"EndpointName": "lives"}, "Metrics": {"MaxInvocations": 4_000, "ModelLatency": 8}}
    existing, other = measurements(description(EndpointPerformances=[performance]), [], {}, ENDPOINT)
    assert (existing.endpoint_name, existing.instance_type) == ("lives", "ml.m5.large")
    assert (existing.max_invocations_per_minute, existing.model_latency_ms) == (1_000, 8)
    assert other.endpoint_name == "sm-epc-1"
    assert other.max_invocations_per_minute == 12_000


def test_an_unknown_existing_endpoint_keeps_its_name_and_has_an_unknown_type() -> None:
    performance = {"EndpointInfo": {"EndpointName": "lives"}, "Metrics": {"MaxInvocations": 4_000, "ModelLatency": 8}}
    existing, _ = measurements(description(EndpointPerformances=[performance]), [], {})
    assert (existing.endpoint_name, existing.instance_type) == ("lives", "unknown")
    assert existing.max_invocations_per_minute == 4_000


def test_a_step_of_an_existing_endpoint_is_recognised_by_its_metrics() -> None:
    benchmark = {"ModelConfiguration": {}, "EndpointMetrics": {"MaxInvocations": 800, "ModelLatency": 8}}
    running = {"StepType": "BENCHMARK", "JobName": "job-1", "Status": "COMPLETED", "InferenceBenchmark": benchmark}
    (measured,) = measurements(description(InferenceRecommendations=[]), [running], {}, ENDPOINT)
    assert (measured.endpoint_name, measured.max_invocations_per_minute) == ("lives", 200)


def test_a_test_that_failed_before_it_had_an_endpoint_is_not_lost() -> None:
    benchmark = {"ModelConfiguration": {}, "FailureReason": "No capacity for ml.g5.xlarge."}
    failed = {"StepType": "BENCHMARK", "JobName": "job-1", "Status": "FAILED", "InferenceBenchmark": benchmark}
    (measured,) = measurements(description(InferenceRecommendations=[]), [failed], {})
    assert (measured.endpoint_name, measured.instance_type) == ("test-1", "unknown")
    assert measured.failure_reason == "No capacity for ml.g5.xlarge."
