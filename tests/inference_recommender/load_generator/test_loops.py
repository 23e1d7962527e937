"""When requests are sent: users in a closed loop and arrivals in an open one, in virtual time to the microsecond."""

from pathlib import Path
from random import Random

import numpy as np
import pytest

from inference_recommender.load_generator.load_plan import Arrivals, Share, arrival_times
from inference_recommender.load_generator.loops import BACKLOG_S, PRIME
from inference_recommender.load_generator.records import RequestLog
from tests.inference_recommender.load_generator.virtual_run import BODIES, VirtualRun, drive, users
from tests.virtual_time import Request, answering
from workloads import ArrivalProcess

MICROSECOND = 1e-6


def _columns(records: RequestLog) -> dict[str, np.typing.NDArray[np.float64]]:
    rows = records.requests()
    return {
        "finished": rows.finished_s,
        "sent": rows.finished_s - rows.latencies_ms / 1000,
        "intended": rows.finished_s - rows.from_intended_ms / 1000,
    }


def _bodies(virtual: VirtualRun) -> list[bytes]:
    return [request.body for request in virtual.network.requests]


def test_a_user_sends_its_next_request_when_the_last_one_returned() -> None:
    random = Random(7)
    virtual = drive(users((1, 10)), answering(lambda request: random.uniform(0.001, 0.1)))
    columns = _columns(virtual.run.log)
    assert columns["sent"][1:] == pytest.approx(columns["finished"][:-1], abs=MICROSECOND)
    assert columns["intended"] == pytest.approx(columns["sent"], abs=MICROSECOND)
    assert columns["sent"][0] == pytest.approx(0, abs=MICROSECOND)
    assert columns["finished"][-1] >= 10, "an open request at the end returns"


def test_users_join_and_leave_as_the_schedule_says() -> None:
    """One user more each second, from two; then one, after the others' open requests returned."""
    virtual = drive(users((2, 3), (1, 2), spawn_rate=60), answering(0.05), window_s=0.5)
    assert [window.users for window in virtual.windows] == [2, 2, 3, 3, 4, 4, 1, 1, 2, 2]
    assert [window.invocations for window in virtual.windows[:6]] == pytest.approx([20, 20, 30, 30, 40, 40], abs=4)
    opened_s = [second - virtual.run.log.started for second in virtual.network.attempts_s]
    assert opened_s == pytest.approx([0, 0, 1, 2, 4], abs=MICROSECOND)
    assert virtual.run.log.requests().errors == 0


def test_users_start_far_apart_in_the_payloads_and_take_them_in_turn() -> None:
    virtual = drive(users((3, 1)), answering(0.1))
    first = {request.connection: request.body for request in reversed(virtual.network.requests)}
    assert first == {user: BODIES[user * PRIME % len(BODIES)] for user in range(3)}
    of_second_user = [request.body for request in virtual.network.requests if request.connection == 1]
    start = PRIME % len(BODIES)
    assert of_second_user == [BODIES[(start + turn) % len(BODIES)] for turn in range(len(of_second_user))]


def test_each_of_several_generators_has_its_share_of_the_users_and_the_arrivals() -> None:
    shares = [Share(index=index, of=3) for index in range(3)]
    opened = [drive(users((5, 1)), answering(0.1), share=share).network.connections for share in shares]
    assert opened == [2, 2, 1]
    arrivals = Arrivals(invocations_per_minute=3000, duration_in_seconds=2, connections=8)
    runs = [drive(arrivals, answering(), share=share) for share in shares]
    intended = np.concatenate([_columns(virtual.run.log)["intended"] for virtual in runs])
    assert np.sort(intended) == pytest.approx(arrival_times(arrivals), abs=MICROSECOND)
    assert [virtual.network.connections for virtual in runs] == [3, 3, 2]


def test_requests_are_sent_at_the_moments_of_the_plan() -> None:
    arrivals = Arrivals(invocations_per_minute=6000, duration_in_seconds=3, seed=7, connections=8)
    virtual = drive(arrivals, answering(0.01))
    assert virtual.seen_s == pytest.approx(arrival_times(arrivals), abs=MICROSECOND)
    assert _bodies(virtual) == [BODIES[number % len(BODIES)] for number in range(len(virtual.seen_s))]
    assert len(virtual.run.log.requests().unfinished_intended_s) == 0
    assert virtual.run.lags_s.max() < MICROSECOND


def test_a_replay_sends_payloads_of_the_recorded_lengths(tmp_path: Path) -> None:
    file = tmp_path / "arrivals.csv"
    file.write_text("\n".join(f"{number / 100},{len(BODIES[0])}" for number in range(200)), "utf-8")
    process = ArrivalProcess(process="replay", file=str(file))
    arrivals = Arrivals(invocations_per_minute=6000, duration_in_seconds=1, process=process)
    assert {len(body) for body in _bodies(drive(arrivals, answering()))} == {len(BODIES[0])}


@pytest.mark.parametrize("connections", [1, 3])
def test_a_request_that_finds_no_connection_free_is_sent_when_one_comes_free(connections: int) -> None:
    """The times of a queue with one server per connection: each request starts when it is due and one is free."""
    arrivals = Arrivals(invocations_per_minute=6000, duration_in_seconds=3, seed=2, connections=connections)
    random = Random(5)
    service_s = [random.expovariate(50 * connections / 2) for _ in range(2000)]

    def service(request: Request) -> float:
        return service_s[len(seen) - 1]

    seen: list[bytes] = []
    free = [0.0] * connections
    expected = []
    for due, takes in zip(arrival_times(arrivals), service_s, strict=False):
        start = max(due, min(free))
        free[free.index(min(free))] = start + takes
        expected.append((start, start + takes))

    def answer(body: bytes) -> tuple[int, bytes]:
        seen.append(body)
        return 200, b"{}"

    virtual = drive(arrivals, answering(service, answer))
    sent = virtual.seen_s
    assert sent == pytest.approx([start for start, _ in expected[: len(sent)]], abs=MICROSECOND)
    assert [start for start, _ in expected[len(sent) :] if start < 3 + BACKLOG_S - 0.01] == []
    finished = sorted(finish for _, finish in expected[: len(sent)])
    assert _columns(virtual.run.log)["finished"] == pytest.approx(finished, abs=MICROSECOND)


def test_requests_that_no_connection_was_free_for_are_kept_as_unfinished() -> None:
    """Two connections of 150 ms serve 13.3 a second of the 150 that arrive."""
    arrivals = Arrivals(invocations_per_minute=9000, duration_in_seconds=1, connections=2)
    virtual = drive(arrivals, answering(0.15))
    records = virtual.run.log
    unfinished = records.requests().unfinished_intended_s
    intended = np.concatenate([_columns(records)["intended"], unfinished])
    assert np.sort(intended) == pytest.approx(arrival_times(arrivals), abs=MICROSECOND)
    assert len(records) == pytest.approx(2 * (1 + BACKLOG_S) / 0.15, abs=2)


def test_the_lag_has_the_delay_of_each_request_that_no_stall_explains() -> None:
    """The event loop is busy for 19 ms, too short for a stall. Requests due in that time are sent after it."""
    arrivals = Arrivals(invocations_per_minute=12_000, duration_in_seconds=2, connections=64)
    virtual = drive(arrivals, answering(0.001), events={1.0: lambda virtual: virtual.loop.block(0.019)})
    held_up = [1.019 - moment for moment in arrival_times(arrivals) if 1.0 < moment < 1.019]
    assert len(held_up) >= 3
    tick_s = 0.019  # of the window that ended after one second
    late = [lag for lag in virtual.run.lags_s if lag > MICROSECOND]
    assert sorted(late) == pytest.approx(sorted([*held_up, tick_s]), abs=MICROSECOND)
