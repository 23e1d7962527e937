"""The highest sustained rate within a limit, and the warm-up, on constructed runs and on a simulated service."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from benchmarks.searches.simulated_service import COLD, STALLING, SimulatedService
from inference_recommender.capacity.closed_loop import SustainedLoad, capacity
from inference_recommender.capacity.levels import settled_from, warm_up_s
from inference_recommender.capacity.statistics import Floats, Limit
from tests.builders import known

P99 = Limit(percentile=99, latency_ms=50)


def _closed_loop(users: Sequence[int], rates: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
    """One second of each number of users at each rate, evenly spaced, with the latency that makes it so."""
    finished = np.concatenate([second + np.arange(rate) / rate for second, rate in enumerate(rates)])
    return finished, np.repeat(np.array(users) / np.array(rates) * 1000, rates)


def _capacity(
    finished: Floats, latencies: Floats, end_s: float, failed: int = 0, limit: Limit = P99, one_load: bool = False
) -> SustainedLoad | None:
    succeeded = np.arange(len(finished)) >= failed
    return capacity(finished, latencies, succeeded, limit, end_s, one_load=one_load)


def test_the_highest_load_within_the_limit_is_the_capacity() -> None:
    finished, latencies = _closed_loop([1] * 10 + [4] * 10 + [24] * 10, [100] * 10 + [200] * 10 + [300] * 10)
    estimate = _capacity(finished, latencies, 30)
    assert estimate == SustainedLoad(
        start_s=10,
        end_s=20,
        invocations_per_minute=200 * 60,
        latency_ms=20,
        within_limit=True,
        interval=(12_000, 12_000),
        warm_up_s=0,
    )


def test_where_no_load_keeps_the_limit_the_one_of_lowest_latency_is_returned() -> None:
    finished, latencies = _closed_loop([7] * 10 + [18] * 10, [100] * 10 + [200] * 10)
    estimate = known(_capacity(finished, latencies, 20))
    assert (estimate.within_limit, estimate.latency_ms, estimate.interval) == (False, 70, None)


def test_a_lower_load_wins_only_where_it_clearly_carried_more() -> None:
    """A service that thrashes: ten users get less out of it than five."""
    finished, latencies = _closed_loop([5] * 20 + [10] * 20, [500] * 20 + [400] * 20)
    estimate = known(_capacity(finished, latencies, 40))
    assert (estimate.start_s, estimate.end_s, estimate.invocations_per_minute) == (0, 20, 30_000)
    assert estimate.interval == (30_000, 30_000)


def test_a_load_held_for_a_moment_is_not_sustained() -> None:
    finished, latencies = _closed_loop([2] * 20 + [8] * 4, [200] * 20 + [400] * 4)
    estimate = known(_capacity(finished, latencies, 24))
    assert estimate.invocations_per_minute < 17_000


def test_too_few_requests_are_no_evidence() -> None:
    finished, latencies = _closed_loop([1] * 10, [29] * 10)
    assert _capacity(finished, latencies, 10) is None
    assert _capacity(*_closed_loop([1] * 10, [30] * 10), end_s=10) is not None


def test_a_load_with_failures_is_no_evidence() -> None:
    finished, latencies = _closed_loop([1] * 10, [100] * 10)
    assert _capacity(finished, latencies, 10, failed=10) is not None
    assert _capacity(finished, latencies, 10, failed=11) is None


def test_one_bad_moment_does_not_decide() -> None:
    """1.5 % late at 4 users do not keep P99; that 8 users were never late says that it was chance."""
    finished, latencies = _closed_loop([4] * 10 + [8] * 20, [100] * 10 + [200] * 20)
    latencies[400:415] = 60
    alone = _capacity(finished[:1000], latencies[:1000], 10)
    assert alone is None or not alone.within_limit
    estimate = known(_capacity(finished, latencies, 30))
    assert (estimate.within_limit, estimate.invocations_per_minute) == (True, 12_000)


def test_one_lucky_moment_does_not_decide() -> None:
    """2 % late at 4 users miss P99; that 8 users were just within it for 10 s does not show that they keep it."""
    finished, latencies = _closed_loop([4] * 30 + [8] * 10, [100] * 30 + [200] * 10)
    latencies[:3000:50] = 60
    latencies[3000::112] = 60
    estimate = _capacity(finished, latencies, 40)
    assert estimate is None or not estimate.within_limit


def test_dependent_late_requests_count_for_less() -> None:
    """0.8 % late in scattered requests keep P99; 0.8 % in two bursts of four hundred might as well be 2 %."""
    finished, latencies = _closed_loop([10] * 100, [1000] * 100)
    scattered, bursts = latencies.copy(), latencies.copy()
    scattered[::125] = 60
    bursts[20_000:20_400] = bursts[70_000:70_400] = 60
    estimate = known(_capacity(finished, scattered, 100, one_load=True))
    assert estimate.within_limit
    assert _capacity(finished, bursts, 100, one_load=True) is None


def _stairs(users_per_step: int, steps: int, step_s: float) -> list[float]:
    return [step * step_s for step in range(steps) for _ in range(users_per_step)]


TRUE_SATURATION = 45_970
"""Invocations per minute from 8 users on, in the same runs."""


P99_45 = Limit(percentile=99, latency_ms=45)


@pytest.mark.parametrize(("seeds", "covered"), [(5, 4), pytest.param(20, 17, marks=pytest.mark.slow)])
def test_stairs_find_the_rate_and_the_load_of_a_known_service(seeds: int, covered: int) -> None:
    """From 4 to 40 users of a service that starts cold and stalls; P99 ≤ 45 ms holds up to 24 users."""
    stairs = _stairs(4, 10, 20.0)
    runs = [SimulatedService(COLD, seed).closed_loop(stairs, 200) for seed in range(seeds)]
    estimates = [_capacity(run.finished_s, run.latencies_ms, 200, limit=P99_45) for run in runs]
    within = [estimate for estimate in estimates if estimate is not None and estimate.within_limit]
    assert len(within) == seeds
    assert all(abs(estimate.invocations_per_minute / TRUE_SATURATION - 1) < 0.02 for estimate in within)
    assert all(estimate.latency_ms <= 45 for estimate in within)
    intervals = [estimate.interval for estimate in within if estimate.interval]
    assert sum(low <= TRUE_SATURATION <= high for low, high in intervals) >= covered


def test_one_load_is_judged_as_a_whole() -> None:
    """Arrivals at a fixed rate: no quiet stretch of them is picked."""
    run = SimulatedService(STALLING, 5).open_loop(40_000, 120)
    limit = Limit(percentile=99, latency_ms=80)
    estimate = known(_capacity(run.finished_s, run.latencies_ms, 120, limit=limit, one_load=True))
    assert (estimate.start_s, estimate.end_s) == (estimate.warm_up_s, 120)
    assert estimate.invocations_per_minute == pytest.approx(40_000, rel=0.02)
    assert estimate.interval is not None
    assert estimate.interval[0] < 40_000 < estimate.interval[1]


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
