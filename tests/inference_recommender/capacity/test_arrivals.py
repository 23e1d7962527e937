"""Arrival processes: their rate and dispersion, the queue that they meet, and the process that fits a recording."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.searches.simulated_service import BATCHING, MM1, SimulatedService, true_capacity_per_minute
from inference_recommender.capacity.arrivals import arrival_times, fit, markov_arrivals, memory_s
from inference_recommender.measure.sequential import SequentialTest, looks_s
from tests.inference_recommender.capacity.test_flow_equivalent import P99, exponential_server, settled
from workloads import POISSON, ArrivalProcess, UsageError

GAMMA = ArrivalProcess(process="gamma", cv=2.0)
CLUMPED = ArrivalProcess(process="gamma", cv=4.0)
BURSTS = ArrivalProcess(process="markov-modulated", dispersion=10.0, burst_s=1.0)
ON_OFF = ArrivalProcess(process="on-off", burst_s=0.5, pause_s=1.0)
PROCESSES = [
    POISSON,
    GAMMA,
    ArrivalProcess(process="gamma", cv=0.5),
    ArrivalProcess(process="weibull", cv=1.5),
    BURSTS,
    ON_OFF,
]


@pytest.mark.parametrize("process", PROCESSES, ids=lambda process: process.text)
def test_arrivals_have_the_rate_and_the_dispersion_of_their_chain(process: ArrivalProcess) -> None:
    times = arrival_times(process, 100.0, 20_000.0, np.random.default_rng(0))
    chain = markov_arrivals(process, 100.0)
    assert bool((np.diff(times) >= 0).all())
    assert len(times) / 20_000 == pytest.approx(100, rel=0.04)
    assert float((chain.in_phases() @ chain.arriving).sum()) == pytest.approx(100)
    for window_s in (0.1, 1.0):
        counts = np.bincount((times / window_s).astype(int))[:-1]
        assert chain.dispersion(window_s) == pytest.approx(counts.var() / counts.mean(), rel=0.08)


@pytest.mark.parametrize(("cv", "share"), [(1.0, 1.0), (1.2, 0.95), (1.4, 0.90), (2.0, 0.72), (3.0, 0.39)])
def test_an_exponential_server_sustains_the_share_of_g_m_1(cv: float, share: float) -> None:
    """G/M/1 with gamma gaps, a mean of 2 ms and P99 of 50 ms; the shares are those of the root of its equation."""
    server = exponential_server(users=4, mean_ms=2.0)
    bursty = replace(server, arrivals=ArrivalProcess(process="gamma", cv=cv))
    assert bursty.highest_rate(P99) / server.highest_rate(P99) == pytest.approx(share, abs=0.006)


@given(cv=st.floats(0.2, 8.0), load=st.floats(0.05, 0.95))
def test_a_gamma_queue_decays_by_the_root_of_g_m_1(cv: float, load: float) -> None:
    """The ratio is the root of x = A*(mu (1 - x)), with the Laplace transform A* of the gaps (Kendall 1953)."""
    queue = markov_arrivals(ArrivalProcess(process="gamma", cv=cv), load).queue(np.ones(3))
    (root,) = queue.decays
    assert queue.steps == pytest.approx([root] * 3, rel=1e-6)
    transform = (1 + (1 - root) * cv**2 / load) ** (-1 / cv**2)
    assert root == pytest.approx(transform, abs=0.02 if cv > 1 else 0.05)


@pytest.mark.parametrize("process", [GAMMA, CLUMPED, ON_OFF], ids=lambda process: process.text)
def test_the_estimate_accounts_for_the_arrivals(process: ArrivalProcess) -> None:
    truth = true_capacity_per_minute(BATCHING, 99.0, 50.0, requests=400_000, arrivals=process)
    found = settled(BATCHING, 0).estimate(P99, process)
    low, high = found.interval or (0.0, 0.0)
    assert low <= truth <= high
    assert found.invocations_per_minute == pytest.approx(truth, rel=0.12)


@pytest.mark.parametrize(("capacity_of", "verdict"), [(POISSON, "missed"), (GAMMA, "kept")])
def test_bursty_arrivals_miss_at_the_capacity_for_poisson_ones(capacity_of: ArrivalProcess, verdict: str) -> None:
    server = exponential_server(users=4, mean_ms=4.0)
    rate = 0.75 * replace(server, arrivals=capacity_of).highest_rate(P99)
    for seed in range(3):
        probe = SimulatedService(MM1, seed, GAMMA).probe
        test = SequentialTest(
            probe=probe, rate_per_minute=rate, limit=P99, looks_s=looks_s(rate, 99.0, 1800.0), arrivals=GAMMA
        )
        assert test.run() == verdict


@pytest.mark.parametrize("process", [GAMMA, BURSTS], ids=lambda process: process.text)
def test_a_fit_returns_the_process_of_a_recording(process: ArrivalProcess) -> None:
    found = fit(arrival_times(process, 50.0, 2000.0, np.random.default_rng(1)))
    assert found.process.process == process.process
    assert found.rate_per_s == pytest.approx(50, rel=0.05)
    assert found.distance < 0.2
    for key in ("cv", "dispersion", "burst_s"):
        if (expected := getattr(process, key)) is not None:
            assert getattr(found.process, key) == pytest.approx(expected, rel=0.3)


def test_a_recording_of_poisson_arrivals_is_called_poisson() -> None:
    assert fit(arrival_times(POISSON, 50.0, 2000.0, np.random.default_rng(1))).process == POISSON


def test_a_replay_has_the_gaps_of_the_recording_at_another_rate() -> None:
    stamps_s = np.cumsum(np.tile([0.1, 0.1, 0.8, 3.0], 50))
    replay = ArrivalProcess(process="replay", file="arrivals.csv")
    times = arrival_times(replay, 10.0, 15.0, np.random.default_rng(0), stamps_s)
    assert len(times) == pytest.approx(150, abs=5)
    assert sorted({round(gap, 6) for gap in np.diff(times)}) == pytest.approx([0.01, 0.08, 0.3], rel=0.02)
    with pytest.raises(UsageError, match=r"last 20 s at 600 requests/min, but 30 s are to be sent"):
        arrival_times(replay, 10.0, 30.0, np.random.default_rng(0), stamps_s)


def test_bursts_are_longer_where_a_rate_is_too_low_for_the_dispersion() -> None:
    chain = markov_arrivals(BURSTS, 3.0)
    assert float(chain.arriving.min()) == 0.0
    assert chain.dispersion(1e4) == pytest.approx(10, rel=0.01)
    assert memory_s(BURSTS) == 2.0
    assert memory_s(POISSON) == 0.0
