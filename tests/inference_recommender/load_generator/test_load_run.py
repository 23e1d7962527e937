"""The run: its windows, the three stopping conditions of the API, and every way to end, in virtual time."""

import numpy as np
import pytest

from inference_recommender.load_generator.load_run import Interval, reason_to_stop
from inference_recommender.load_generator.plan import Arrivals, StoppingConditions
from tests.inference_recommender.load_generator.virtual_run import START_S, VirtualRun, drive, users
from tests.virtual_time import EPOCH, Request, answering


def _interval(users: float = 1, rate: float = 6000, latency_ms: float = 10, samples: int = 1000) -> Interval:
    return Interval(users=users, invocations_per_minute=rate, latencies_ms=np.full(samples, latency_ms))


def _conditions(**members: object) -> StoppingConditions:
    defaults = {
        "MaxInvocations": 30_000,
        "ModelLatencyThresholds": [{"Percentile": "P99", "ValueInMilliseconds": 50}],
        "FlatInvocations": "Stop",
    }
    return StoppingConditions.model_validate({**defaults, **members}, strict=False)


def test_a_run_that_grows_within_its_limits_is_not_stopped() -> None:
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


def test_a_run_reports_its_windows() -> None:
    virtual = drive(users((4, 3), spawn_rate=60), answering(0.0101), window_s=0.5)
    assert virtual.ended == "traffic ended"
    assert [(window.start_s, window.end_s) for window in virtual.windows] == [(n / 2, n / 2 + 0.5) for n in range(6)]
    assert [window.users for window in virtual.windows] == [4, 4, 5, 5, 6, 6]
    assert [window.invocations for window in virtual.windows] == pytest.approx([198, 198, 248, 248, 297, 297], abs=6)
    assert virtual.windows[2].started_at == EPOCH + START_S + 1.0
    assert virtual.windows[2].latency_ms["p99"] == pytest.approx(10.1)
    assert virtual.run.duration_s == pytest.approx(3)


def test_a_window_s_histogram_gives_its_percentiles_back_within_a_percent() -> None:
    virtual = drive(users((4, 2)), answering(lambda request: 0.005 + 0.01 * (request.at_s % 0.1)), window_s=1.0)
    for window in virtual.windows:
        latencies, counts = zip(*window.histogram, strict=True)
        values = np.repeat(latencies, counts)
        assert len(values) == window.invocations
        assert np.percentile(values, 50) == pytest.approx(window.latency_ms["p50"], rel=0.01)


def test_max_invocations_ends_the_run_after_an_interval() -> None:
    conditions = StoppingConditions(max_invocations=1_000)
    virtual = drive(users((4, 60)), answering(0.1), stopping_conditions=conditions)
    assert (virtual.ended, virtual.windows[-1].end_s) == ("max invocations", 10)


def test_a_latency_threshold_ends_the_run_after_an_interval() -> None:
    virtual = drive(users((4, 60)), answering(0.06), stopping_conditions=_conditions())
    assert (virtual.ended, virtual.windows[-1].end_s) == ("model latency threshold", 10)


def test_requests_that_a_stall_of_the_machine_delayed_end_no_run() -> None:
    stalls = {0.503 + 0.5 * n: lambda virtual: virtual.loop.block(0.08) for n in range(18)}
    conditions = _conditions(MaxInvocations=1_000_000)
    virtual = drive(users((4, 20)), answering(0.01), events=stalls, stopping_conditions=conditions)
    assert virtual.ended == "traffic ended"


def test_users_that_no_longer_raise_the_rate_end_the_run() -> None:
    """A server of one request at a time: its rate is the same for one user and for five."""
    free_s = [0.0]

    def service_s(request: Request) -> float:
        free_s[0] = max(free_s[0], request.at_s) + 0.05
        return free_s[0] - request.at_s

    conditions = StoppingConditions(flat_invocations="Stop")
    virtual = drive(users((1, 60), spawn_rate=6), answering(service_s), stopping_conditions=conditions)
    assert (virtual.ended, virtual.windows[-1].end_s) == ("flat invocations", 30)


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


def test_a_run_that_is_stopped_before_its_start_sends_nothing() -> None:
    virtual = drive(
        users((2, 2)), answering(), start_at=EPOCH + START_S + 60, events={1.0: lambda virtual: virtual.run.stop()}
    )
    assert virtual.ended == "stopped"
    assert virtual.network.requests == []
    assert virtual.run.started_at == pytest.approx(EPOCH + START_S + 1)
