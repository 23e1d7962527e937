"""Warm-up is detected, and not where there is none; stalls are none."""

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from benchmarks.searches.simulated_service import COLD, STALLING, SimulatedService
from inference_recommender.capacity.levels import settled_from, warm_up_s


def _warm_up(model_seed: int, seconds: float, rate: float = 6_000, cold: bool = True) -> float | None:
    run = SimulatedService(COLD if cold else STALLING, model_seed).open_loop(rate, seconds)
    return warm_up_s(run.finished_s, run.latencies_ms, seconds)


def test_a_service_that_starts_five_times_slower_is_seen_to_warm_up() -> None:
    """Its time constant is 4 s: at 8 s a batch takes 1.5 times as long as later, at 16 s 1.07 times."""
    warm_ups = [_warm_up(seed, 60) for seed in range(10)]
    assert all(warm_up is not None and 8 <= warm_up <= 20 for warm_up in warm_ups)


def test_a_warm_service_that_stalls_is_not_seen_to_warm_up() -> None:
    assert sum(_warm_up(seed, 60, cold=False) != 0 for seed in range(20)) <= 1


def test_a_run_that_is_too_short_to_settle_is_all_warm_up() -> None:
    """Requests of a service that is five times as fast after ten seconds, and on its way there all the time."""
    finished = np.linspace(0, 10, 1000)
    for seed in range(20):
        noise = np.exp(np.random.default_rng(seed).normal(0, 0.05, 1000))
        assert warm_up_s(finished, np.geomspace(50, 10, 1000) * noise, 10) == 10


def test_too_few_requests_give_no_warm_up() -> None:
    finished = np.linspace(0, 10, 49)
    assert warm_up_s(finished, np.ones(49), 10) is None
    assert warm_up_s(np.linspace(0, 10, 50), np.ones(50), 10.1) == 0


def test_one_slow_first_request_is_a_warm_up_of_its_length() -> None:
    """Loading on the first request: 3 s, then 5 ms each."""
    finished = np.concatenate([[3.0], 3 + 0.005 * np.arange(1, 1400)])
    latencies = np.concatenate([[3000.0], np.full(1399, 5.0)])
    assert warm_up_s(finished, latencies, 10) == pytest.approx(3, abs=0.2)


@settings(max_examples=30)
@given(cold=st.integers(2, 30), factor=st.floats(1.5, 20), seed=st.integers(0, 1000))
@example(cold=25, factor=2.0, seed=195)  # its noise is by chance greater before the half than after
def test_a_step_down_is_cut_where_it_is(cold: int, factor: float, seed: int) -> None:
    random = np.random.default_rng(seed)
    latencies = 10 * np.exp(random.normal(0, 0.05, 100))
    latencies[:cold] *= factor
    assert cold <= settled_from(latencies) < 50


@pytest.mark.parametrize("windows", [30, 100])
def test_a_latency_that_falls_all_along_is_all_warm_up(windows: int) -> None:
    falling = np.geomspace(20, 10, windows)
    assert all(
        settled_from(falling * np.exp(np.random.default_rng(seed).normal(0, 0.01, windows))) == windows
        for seed in range(50)
    )


@given(seed=st.integers(0, 10_000))
@settings(max_examples=50)
def test_a_latency_that_rises_is_no_warm_up(seed: int) -> None:
    random = np.random.default_rng(seed)
    assert settled_from(np.linspace(10, 30, 60) * np.exp(random.normal(0, 0.05, 60))) == 0
