"""The API's responses read into numbers: units, fleets, NaN, absent values, failed steps."""

from inference_recommender.measurement import measurements
from tests.inference_recommender.api import SERIES, description, endpoint, recommendation, step


def test_a_recommendation_becomes_a_measurement_per_instance() -> None:
    fleet = recommendation(EndpointConfiguration=endpoint(count=2))
    (found,) = measurements(description(InferenceRecommendations=[fleet]), [], {"sm-epc-1": SERIES})
    assert found.instance_type == "ml.c5.xlarge"
    assert found.environment == {"THREADS": "2"}
    assert found.max_invocations_per_minute == 6_000
    assert found.price_per_hour_usd == 0.25
    assert found.model_latency_ms == 21
    assert found.cpu_utilization_percent == 95
    assert found.series is SERIES


def test_not_a_number_is_unknown() -> None:
    (found,) = measurements(description(), [], {})
    assert found.memory_utilization_percent is None


def test_a_result_without_metrics_is_unknown_and_not_zero() -> None:
    bare = recommendation()
    del bare["Metrics"]
    (found,) = measurements(description(InferenceRecommendations=[bare]), [], {})
    assert (found.max_invocations_per_minute, found.model_latency_ms, found.price_per_hour_usd) == (None, None, None)


def test_percentiles_come_from_the_series_over_the_whole_test() -> None:
    (found,) = measurements(description(), [], {"sm-epc-1": SERIES})
    assert (found.percentiles_ms.p50, found.percentiles_ms.p99) == (5.0, 20.0)
    (bare,) = measurements(description(), [], {})
    assert bare.percentiles_ms.p50 is None


def test_a_failed_step_is_a_measurement_with_its_reason() -> None:
    failed = step("FAILED", EndpointConfiguration=endpoint("sm-epc-2", "ml.g5.xlarge"), FailureReason="No GPU.")
    found = measurements(description(), [failed], {})
    assert [(one.endpoint_name, one.failure_reason) for one in found] == [("sm-epc-1", None), ("sm-epc-2", "No GPU.")]


def test_a_step_of_a_recommended_endpoint_is_not_counted_twice() -> None:
    assert len(measurements(description(), [step("COMPLETED")], {})) == 1


def test_a_step_that_failed_silently_says_so() -> None:
    (found,) = measurements(description(InferenceRecommendations=[]), [step("FAILED")], {})
    assert found.failure_reason == "The test failed without a reason."


def test_the_points_at_either_end_are_left_out_of_the_complete_course() -> None:
    complete = SERIES.complete()
    assert complete.seconds == (5.0, 10.0)
    assert complete.latency_ms["p99"] == (None, 12.0)
    assert complete.complete() is complete


def test_invocations_per_minute_follow_from_the_period() -> None:
    assert SERIES.invocations_per_minute() == (3_600, 7_200, 10_800, 12_000)
