"""The run: its windows, the three stopping conditions of the API, and every way to end, in virtual time."""

import numpy as np
import pytest

from inference_recommender.load_generator.load_plan import Arrivals, StoppingConditions
from inference_recommender.load_generator.load_run import Interval, reason_to_stop
from inference_recommender.load_generator.records import binned_percentile, histogram
from tests.inference_recommender.load_generator.virtual_run import START_S, VirtualRun, drive, users
from tests.virtual_time import EPOCH, answering


def _interval(users: float = 1, rate: float = 6000, latency_ms: float = 10, samples: int = 1000) -> Interval:
    return Interval(users=users, invocations_per_minute=rate, latencies_ms=np.full(samples, latency_ms))


def _conditions(**members: object) -> StoppingConditions:
    defaults = {
        "MaxInvocations": 30_000,
        "ModelLatencyThresholds": [{"Percentile": "P99", "ValueInMilliseconds": 50}],
        "FlatInvocations": "Stop",
    }
    return StoppingConditions.model_validate({**defaults, **members}, strict=False)


def test_a_run_reports_its_windows() -> None:
    virtual = drive(users((4, 3), spawn_rate=60), answering(0.0101), window_s=0.5)
    assert virtual.ended == "traffic ended"
    assert [(window.start_s, window.end_s) for window in virtual.windows] == [(n / 2, n / 2 + 0.5) for n in range(6)]
    assert [window.users for window in virtual.windows] == [4, 4, 5, 5, 6, 6]
    assert [window.invocations for window in virtual.windows] == pytest.approx([198, 198, 248, 248, 297, 297], abs=6)
    assert virtual.windows[2].started_at == EPOCH + START_S + 1.0
    assert virtual.windows[2].latency_ms["p99"] == pytest.approx(10.1)
    assert virtual.run.duration_s == pytest.approx(3)


def test_max_invocations_ends_the_run_after_an_interval() -> None:
    conditions = StoppingConditions(max_invocations=1_000)
    virtual = drive(users((4, 60)), answering(0.1), stopping_conditions=conditions)
    assert (virtual.ended, virtual.windows[-1].end_s) == ("max invocations", 10)


def test_requests_that_a_stall_of_the_machine_delayed_end_no_run() -> None:
    stalls = {0.503 + 0.5 * n: lambda virtual: virtual.loop.block(0.08) for n in range(18)}
    conditions = _conditions(MaxInvocations=1_000_000)
    virtual = drive(users((4, 20)), answering(0.01), events=stalls, stopping_conditions=conditions)
    assert virtual.ended == "traffic ended"


def test_a_target_that_dies_ends_the_run_with_what_was_measured() -> None:
    virtual = drive(users((4, 60)), answering(0.01), window_s=0.5, events={2.5: lambda virtual: virtual.network.die()})
    assert virtual.ended == "target failed: server refuses connections (Connection refused)"
    assert virtual.windows[-1].end_s == 3.5
    rows = virtual.run.log.requests()
    assert len(rows.successful_ms) == pytest.approx(1000, abs=4)
    assert rows.errors == 4


def test_a_target_that_recovers_goes_on_being_measured() -> None:
    serve = answering(0.01)

    def restart(virtual: VirtualRun) -> None:
        virtual.network.serve = serve

    events = {1.0: lambda virtual: virtual.network.die(), 1.4: restart}
    virtual = drive(users((2, 4)), serve, window_s=0.5, events=events)
    assert virtual.ended == "traffic ended"
    assert virtual.windows[-1].invocations == pytest.approx(100, abs=2)


def test_a_target_that_refuses_every_request_fails_with_its_first_answer() -> None:
    virtual = drive(users((4, 60)), answering(0.01, lambda body: (400, b'{"error":"unexpected input TEXTS"}')))
    assert virtual.ended == 'target failed: HTTP 400: {"error":"unexpected input TEXTS"}'
    assert virtual.run.duration_s == pytest.approx(2)
    assert [window.errors == window.invocations > 0 for window in virtual.windows] == [True] * 3, (
        "the last as it drained"
    )
    assert virtual.network.connections == 4, "an error costs no connection"


def test_a_run_that_is_stopped_ends_at_once_and_lets_requests_return() -> None:
    virtual = drive(users((4, 60)), answering(0.2), events={1.3: lambda virtual: virtual.run.stop()})
    assert virtual.ended == "stopped"
    assert virtual.run.duration_s == pytest.approx(1.3)
    assert len(virtual.run.log) == 4 * 7
    assert len(virtual.run.log.requests().unfinished_intended_s) == 0


@pytest.mark.parametrize("traffic", [users((2, 2)), Arrivals(invocations_per_minute=600, duration_in_seconds=2)])
def test_a_run_waits_for_its_start_on_the_common_clock(traffic: Arrivals) -> None:
    virtual = drive(traffic, answering(), start_at=EPOCH + START_S + 7.5)
    assert virtual.run.started_at == pytest.approx(EPOCH + START_S + 7.5)
    assert virtual.network.requests[0].at_s >= START_S + 7.5


SLOW = Interval(users=1, invocations_per_minute=6000, latencies_ms=np.repeat([10.0, 60.0], [980, 20]))
MEDIAN = [{"Percentile": "P50", "ValueInMilliseconds": 50}]


def _growth(rates: tuple[float, ...], users: tuple[float, ...]) -> list[Interval]:
    return [_interval(count, rate) for count, rate in zip(users, rates, strict=True)]


@pytest.mark.parametrize(
    ("members", "intervals", "reason"),
    [
        ({}, [], None),
        ({}, _growth((1000, 2000, 3000, 4000), (1, 2, 3, 4)), None),
        ({}, [_interval(rate=30_000)], "max invocations"),
        ({}, [SLOW], "model latency threshold"),
        ({"ModelLatencyThresholds": MEDIAN}, [SLOW], None),
        ({}, [_interval(latency_ms=60, samples=100)], None),
        ({}, _growth((6000, 6050, 6000), (1, 2, 3)), "flat invocations"),
        ({"FlatInvocations": "Continue"}, _growth((6000, 6050, 6000), (1, 2, 3)), None),
        ({}, _growth((6000, 6050, 7000), (1, 2, 3)), None),
        ({}, _growth((6000, 6050), (1, 2)), None),
        ({}, _growth((6000, 6000, 6000), (2, 2, 2)), None),
    ],
)
def test_the_stopping_conditions_of_the_api(
    members: dict[str, object], intervals: list[Interval], reason: str | None
) -> None:
    assert reason_to_stop(_conditions(**members), intervals) == reason


def test_bins_give_counts_and_percentiles_back_within_half_a_percent() -> None:
    latencies_ms = np.random.default_rng(0).lognormal(3, 1, 5000)
    values, counts = zip(*histogram(latencies_ms), strict=True)
    assert sum(counts) == 5000
    for percentile in (50, 99, 99.9, 100):
        exact = float(np.sort(latencies_ms)[round(5000 * percentile / 100) - 1])
        assert binned_percentile(latencies_ms, percentile) == pytest.approx(exact, rel=0.00502)
        assert np.percentile(np.repeat(values, counts), percentile) == pytest.approx(exact, rel=0.02)
    assert (histogram(np.zeros(0)), binned_percentile(np.zeros(0), 99)) == ((), None)
    assert histogram(np.zeros(3))[0] == pytest.approx((0.001, 3), rel=0.005)
