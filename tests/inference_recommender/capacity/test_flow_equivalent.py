"""The flow-equivalent server: exact where queueing theory has a closed form, near the truth on simulated services."""

from math import exp, factorial, log

import numpy as np
import pytest

from benchmarks.searches.estimate import series
from benchmarks.searches.simulated_service import BATCHING, MM1, STALLING, Service
from inference_recommender.capacity.flow_equivalent import (
    SHARES,
    Dispersion,
    FlowEquivalentServer,
    SettledPeriods,
    model_latencies,
    settled_periods,
)
from inference_recommender.capacity.statistics import Floats, Limit
from inference_recommender.capacity.time_series import Series
from tests.builders import known

P99 = Limit(percentile=99.0, latency_ms=50.0)


def _exponential(mean_ms: float) -> Floats:
    latencies: Floats = -mean_ms * np.log(1 - SHARES)
    return latencies


def exponential_server(users: int, mean_ms: float) -> FlowEquivalentServer:
    """A single exponential server, at which one request of each user takes as many services as there are users."""
    random = np.random.default_rng(0)
    drawn = [np.sort(random.gamma(count, mean_ms, 100_000)) for count in range(1, users + 1)]
    return FlowEquivalentServer(
        completions=np.full(users, 60_000 / mean_ms),
        latencies_ms=np.stack([np.quantile(latencies, SHARES) for latencies in drawn]),
    )


@pytest.mark.parametrize("load", [0.3, 0.6, 0.9])
@pytest.mark.parametrize("users", [1, 4])
def test_an_exponential_server_has_the_latencies_of_m_m_1(users: int, load: float) -> None:
    """The time in system of M/M/1 is exponential, of the rate at which requests are served less that of arrivals."""
    latency = exponential_server(users, 4.0).latency_ms(load * 15_000, 99.0)
    assert latency == pytest.approx(-log(0.01) * 4.0 / (1 - load), rel=0.03)


@pytest.mark.parametrize("load", [0.3, 0.6, 0.9])
def test_several_servers_have_the_waits_of_erlang_c(load: float) -> None:
    """M/M/4: a request waits with Erlang's probability C, for an exponential time; then it is served."""
    servers, mean_ms = 4, 12.0
    server = FlowEquivalentServer(
        completions=np.arange(1.0, servers + 1) * 60_000 / mean_ms,
        latencies_ms=np.stack([_exponential(mean_ms)] * servers),
    )
    offered = load * servers
    full = offered**servers / factorial(servers) / (1 - load)
    waits = full / (sum(offered**n / factorial(n) for n in range(servers)) + full)
    wait_rate, rate = (servers - offered) / mean_ms, 1 / mean_ms
    late = exp(-rate * 60) + waits * rate * (exp(-rate * 60) - exp(-wait_rate * 60)) / (wait_rate - rate)
    assert server.late_share(offered * 60_000 / mean_ms, 60.0) == pytest.approx(late, rel=0.02)


def test_the_highest_rate_is_the_one_whose_percentile_is_the_limit() -> None:
    """Solved for the rate, M/M/1's percentile gives mu + ln(1 - q) / limit."""
    server, slow = exponential_server(3, 4.0), exponential_server(1, 40.0)
    rate = server.highest_rate(P99)
    assert rate == pytest.approx(60_000 * (1 / 4 + log(0.01) / 50), rel=0.01)
    assert server.latency_ms(rate, 99.0) == pytest.approx(50, rel=0.01)
    assert server.highest_rate(Limit(percentile=99.0, latency_ms=None)) == 15_000
    assert server.latency_ms(15_000, 99.0) == np.inf
    assert slow.highest_rate(P99) == 0


@pytest.mark.parametrize(("index", "factor"), [(0.0, 0.5), (3.0, 2.0)])
def test_the_wait_is_as_long_as_the_completions_variance_makes_it(index: float, factor: float) -> None:
    """In heavy traffic a queue's wait is in proportion to 1 + I (Kingman): half as long at regular completions."""
    queue = exponential_server(1, 4.0)
    other = FlowEquivalentServer(
        completions=queue.completions,
        latencies_ms=queue.latencies_ms,
        dispersion=Dispersion(over_s=1.0, index=index),
    )
    rate = 0.98 * 15_000
    assert other.latency_ms(rate, 99.0) / queue.latency_ms(rate, 99.0) == pytest.approx(factor, rel=0.05)


def settled(model: Service, seed: int) -> SettledPeriods:
    measured = series(model, seed, disturbed=False)
    return known(settled_periods(measured, measured.latency_ms))


@pytest.mark.parametrize(
    ("model", "truth"),
    [
        # The exact capacity of M/M/1; the others are of runs of a million requests at one rate each.
        pytest.param(MM1, 60_000 * (1 / 4 + log(0.01) / 50), id="mm1"),
        pytest.param(BATCHING, 41_600, id="batches"),
        pytest.param(STALLING, 39_000, id="stalls"),
    ],
)
def test_a_minute_of_closed_loop_users_tells_the_capacity_for_arrivals(model: Service, truth: float) -> None:
    found = settled(model, 0).estimate(P99)
    assert found.invocations_per_minute == pytest.approx(truth, rel=0.12)
    assert found.latency_ms == pytest.approx(50, rel=0.01)
    low, high = found.interval or (0.0, 0.0)
    assert low <= truth <= high


def _half_as_fast(series: Series, periods: range) -> Series:
    """Returns the series with other work on the machine in these periods, and with the stalls that report it."""
    slow = set(periods)
    return series.model_copy(
        update={
            "invocations": tuple(
                n / 2 if at in slow else n for at, n in enumerate(series.invocations) if n is not None
            ),
            "latency_ms": {
                name: tuple((ms or 0) * (4 if at in slow else 1) for at, ms in enumerate(column))
                for name, column in series.latency_ms.items()
            },
            "stalled_s": tuple(0.9 if at in slow else 0.0 for at in range(60)),
        }
    )


def test_periods_in_which_the_machine_stalled_do_not_enter_the_estimate() -> None:
    measured = series(MM1, 0, disturbed=False)
    truth = settled(MM1, 0).estimate(P99).invocations_per_minute or 0.0
    disturbed = _half_as_fast(measured, range(30, 60, 2))
    found = known(settled_periods(disturbed, disturbed.latency_ms))
    assert found.estimate(P99).invocations_per_minute == pytest.approx(truth, rel=0.05)
    counted = disturbed.model_copy(update={"stalled_s": ()})
    unaware = known(settled_periods(counted, counted.latency_ms))
    assert (unaware.estimate(P99).invocations_per_minute or 0.0) < 0.8 * truth


def test_of_periods_without_a_percentile_or_a_user_nothing_is_told() -> None:
    measured = series(MM1, 0, disturbed=False)
    assert settled_periods(measured, {}) is None
    assert settled_periods(measured, {"p99": (None,) * 60}) is None
    assert settled_periods(measured.model_copy(update={"users": (None,) * 60}), measured.latency_ms) is None
    assert settled_periods(measured.model_copy(update={"users": (1e12,) * 60}), measured.latency_ms) is None
    assert settled_periods(measured, {"p99": (float("inf"),) * 60}) is None


def test_model_latency_has_the_clients_proportions() -> None:
    measured = series(MM1, 0, disturbed=False)
    half = tuple(None if value is None else value / 2 for value in measured.latency_ms["p99"])
    found = model_latencies(measured.model_copy(update={"model_latency_ms": {"p99": half}}), "p99")
    assert found["p50"] == pytest.approx([(value or 0) / 2 for value in measured.latency_ms["p50"]])
    assert found["p99"] == half
    assert model_latencies(measured, "p99") == {}
