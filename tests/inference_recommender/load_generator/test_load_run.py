"""The three stopping conditions of the API, on intervals of a run."""

import numpy as np
import pytest

from inference_recommender.load_generator.plan import StoppingConditions
from inference_recommender.load_generator.stopping import Interval, reason_to_stop


def _interval(users: float = 1, rate: float = 6000, latency_ms: float = 10, samples: int = 1000) -> Interval:
    return Interval(users=users, invocations_per_minute=rate, latencies_ms=np.full(samples, latency_ms))


def _conditions(**members: object) -> StoppingConditions:
    defaults = {
        "MaxInvocations": 30_000,
        "ModelLatencyThresholds": [{"Percentile": "P99", "ValueInMilliseconds": 50}],
        "FlatInvocations": "Stop",
    }
    return StoppingConditions.model_validate({**defaults, **members}, strict=False)


def test_nothing_stops_a_run_that_grows_within_its_limits() -> None:
    intervals = [_interval(users, rate=1000.0 * users) for users in (1, 2, 3, 4)]
    assert reason_to_stop(_conditions(), intervals) is None
    assert reason_to_stop(_conditions(), []) is None


def test_reaching_max_invocations_stops() -> None:
    assert reason_to_stop(_conditions(), [_interval(rate=30_000)]) == "max invocations"


def test_a_percentile_above_the_threshold_stops() -> None:
    slow = np.concatenate([np.full(980, 10.0), np.full(20, 60.0)])
    interval = Interval(users=1, invocations_per_minute=6000, latencies_ms=slow)
    assert reason_to_stop(_conditions(), [interval]) == "model latency threshold"
    median = _conditions(ModelLatencyThresholds=[{"Percentile": "P50", "ValueInMilliseconds": 50}])
    assert reason_to_stop(median, [interval]) is None


def test_too_few_samples_do_not_stop_on_latency() -> None:
    assert reason_to_stop(_conditions(), [_interval(latency_ms=60, samples=100)]) is None


@pytest.mark.parametrize(
    ("rates", "users", "flat"),
    [
        ((6000, 6050, 6000), (1, 2, 3), True),
        ((6000, 6050, 7000), (1, 2, 3), False),
        ((6000, 6050), (1, 2), False),
        ((6000, 6000, 6000), (2, 2, 2), False),
    ],
)
def test_more_users_without_more_invocations_is_flat(
    rates: tuple[float, ...], users: tuple[float, ...], flat: bool
) -> None:
    intervals = [_interval(count, rate) for count, rate in zip(users, rates, strict=True)]
    assert reason_to_stop(_conditions(), intervals) == ("flat invocations" if flat else None)
    assert reason_to_stop(_conditions(FlatInvocations="Continue"), intervals) is None
