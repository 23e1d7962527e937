"""A generator near its own limits reports it, so that a run allows no verdict."""

import numpy as np
import pytest

from inference_recommender.load_generator.self_watch import SelfWatch


@pytest.mark.parametrize(
    ("cpu_share", "lag_ms", "complaint"),
    [
        (0.9, 50.0, None),
        (0.91, 1.0, "generator lagged: it used 91% of its core, so it was the bottleneck"),
        (0.5, 51.0, "generator lagged: its own clock was 51 ms late"),
    ],
)
def test_a_generator_near_its_limits_complains(cpu_share: float, lag_ms: float, complaint: str | None) -> None:
    assert SelfWatch(cpu_share=cpu_share, lag_ms=lag_ms, peak_per_second=800).complaint() == complaint


def test_the_peak_is_the_busiest_second_and_the_lag_the_90th_percentile() -> None:
    lags_s = np.array([0.001] * 80 + [0.02] * 20)
    watch = SelfWatch.of(1.0, 4.0, lags_s, np.array([0.1, 0.2, 1.1, 1.2, 1.9, 2.5]))
    assert (watch.cpu_share, watch.peak_per_second) == (0.25, 3)
    assert watch.lag_ms == pytest.approx(20)
    other = SelfWatch(cpu_share=0.5, lag_ms=1.0, peak_per_second=9)
    assert watch.worst_with(other) == SelfWatch(cpu_share=0.5, lag_ms=watch.lag_ms, peak_per_second=9)
