"""Servers that are silent, slow or half there: requests time out, and users without answers allow no verdict.

In virtual time, so that a minute of silence takes none.
"""

from pathlib import Path

import pytest

from inference_recommender.load_generator.http import SWEEP_S
from inference_recommender.load_generator.load_plan import Arrivals, StoppingConditions
from inference_recommender.load_generator.load_run import DRAIN_S
from inference_recommender.load_generator.process import Outcome
from inference_recommender.load_generator.records import TIMED_OUT, SentRequests
from tests.builders import known
from tests.inference_recommender.load_generator.virtual_run import (
    START_S,
    drive,
    plan_of,
    records_of,
    run_command,
    users,
)
from tests.virtual_time import Network, Peer, Request, answering, http_answer

GO_ON = StoppingConditions(flat_invocations="Continue")
SERVICE_S = 0.02


def half_silent(request: Request, peer: Peer) -> None:
    """Answers on every second connection only."""
    if request.connection % 2:
        peer.send(http_answer(), SERVICE_S)


def silent(request: Request, peer: Peer) -> None:
    """Never answers."""


def _accounted(outcome: Outcome) -> None:
    """Every request is a row or unfinished, and the summary counts it once."""
    records, summary = records_of(outcome), outcome.summary
    assert summary is not None
    succeeded = int((records["status"] == 200).sum())
    unfinished = len(records["unfinished_intended_s"])
    assert summary["invocations"] == len(records["status"]) + unfinished == succeeded + summary["errors"]
    assert summary["unfinished"] == unfinished
    assert summary["timed_out"] == (records["status"] == TIMED_OUT).sum()


def test_users_that_hang_for_the_whole_run_allow_no_verdict(tmp_path: Path) -> None:
    """By number they are two requests among two thousand; by time they are half of the users."""
    outcome = run_command(plan_of(users((4, 20)), stopping_conditions=GO_ON), half_silent, tmp_path)
    assert outcome.summary is not None
    assert outcome.exit_code == 4
    assert outcome.reason == (
        f"too many errors: 50% of the users' time went to what failed, 2 of {outcome.summary['invocations']} requests "
        "(2 had no answer when the run was over); the first: no answer"
    )
    assert outcome.summary["invocations"] == pytest.approx(2 * 20 / SERVICE_S, abs=4)
    _accounted(outcome)


def test_a_request_that_times_out_is_a_row_of_its_own_kind_and_its_user_goes_on(tmp_path: Path) -> None:
    """The first connection is silent; its user gets another, on which it has answers."""
    plan = plan_of(users((1, 10)), request_timeout_s=2.0)
    network = Network(answering(SERVICE_S))
    answers = network.serve
    network.serve = lambda request, peer: answers(request, peer) if answers and request.connection else None
    outcome = run_command(plan, answering(), tmp_path, network=network)
    records = records_of(outcome)
    assert list(records["status"][:3]) == [TIMED_OUT, 200, 200]
    took_s = float(records["finished_s"][0] - records["sent_s"][0])
    assert 2.0 <= took_s <= 2.0 + SWEEP_S + 1e-6
    assert records["sent_s"][1] == pytest.approx(records["finished_s"][0]), "at once"
    assert network.connections == 2
    requests = SentRequests.read(outcome.records)
    assert (requests.errors, (requests.status == TIMED_OUT).sum()) == (1, 1)
    _accounted(outcome)


def test_an_answer_that_drips_has_to_end_in_time() -> None:
    def drip(request: Request, peer: Peer) -> None:
        for number, byte in enumerate(http_answer(b"x" * 1000)):
            peer.send(bytes([byte]), after_s=number * 0.5)

    virtual = drive(users((1, 10)), drip, request_timeout_s=2.0)
    rows = virtual.run.log.requests()
    assert (rows.status == TIMED_OUT).all()
    assert virtual.ended == "target failed: server answered nothing for 3 s"


@pytest.mark.parametrize("traffic", [users((4, 300)), Arrivals(invocations_per_minute=600, duration_in_seconds=300)])
def test_a_silent_server_ends_the_run_early(tmp_path: Path, traffic: Arrivals) -> None:
    outcome = run_command(plan_of(traffic), silent, tmp_path)
    assert (outcome.exit_code, outcome.reason) == (3, "target failed: server answered nothing for 61 s")
    assert known(outcome.summary)["duration_s"] == pytest.approx(61)
    assert known(outcome.summary)["first_error"] == "no answer within 60 s"
    _accounted(outcome)


@pytest.mark.parametrize("timeout_s", [2.0, 60.0])
def test_users_that_leave_with_a_request_under_way_are_counted(timeout_s: float) -> None:
    """Four users, of whom two hang; then one, so that both silent connections are to be left."""
    virtual = drive(
        users((4, 5), (1, 5)),
        lambda request, peer: None if request.connection in (1, 2) else peer.send(http_answer(), SERVICE_S),
        stopping_conditions=GO_ON,
        request_timeout_s=timeout_s,
    )
    records = virtual.run.log
    unfinished = len(records.requests().unfinished_intended_s)
    assert len(virtual.network.requests) == len(records) + unfinished
    assert (records.requests().errors, unfinished) == ((2, 0) if timeout_s == 2 else (0, 2))
    assert records.unserved_s == pytest.approx(4.1 if timeout_s == 2 else 20, abs=0.2)


def test_users_that_cannot_connect_allow_no_verdict(tmp_path: Path) -> None:
    """Two connections are taken, and all others refused: two of four users never send anything."""
    network = Network(answering(SERVICE_S))
    accepted, plan = network.connect, plan_of(users((4, 20)), stopping_conditions=GO_ON)

    async def connect(*where: object) -> object:
        if network.connections == 2:
            raise ConnectionRefusedError(111, "Connection refused")
        return await accepted(*where)  # type: ignore[arg-type]

    network.connect = connect  # type: ignore[assignment, method-assign]
    outcome = run_command(plan, answering(), tmp_path, network=network)
    assert outcome.exit_code == 4
    assert outcome.reason.startswith("too many errors: 50% of the users' time went to what failed, 0 of ")


def test_a_service_slower_than_the_usual_drain_has_no_unfinished_requests(tmp_path: Path) -> None:
    outcome = run_command(plan_of(users((4, 100)), stopping_conditions=GO_ON), answering(8.0), tmp_path)
    assert outcome.summary is not None
    assert (outcome.summary["unfinished"], outcome.summary["errors"]) == (0, 0)
    assert outcome.reason.startswith("too few samples")


def test_ctrl_c_while_a_slow_service_is_waited_for_ends_the_waiting() -> None:
    answers = answering(lambda request: 20.0 if request.at_s < START_S + 20 else 1000.0)
    virtual = drive(users((1, 30)), answers, events={37.0: lambda virtual: virtual.run.stop()})
    assert virtual.loop.time() - START_S == pytest.approx(37.0, abs=0.02)
    assert len(virtual.run.log.requests().unfinished_intended_s) == 1


def test_what_failed_while_the_run_drained_is_told_as_one_more_window(tmp_path: Path) -> None:
    virtual = drive(users((4, 3)), half_silent, stopping_conditions=GO_ON)
    last = virtual.windows[-1]
    assert [window.end_s for window in virtual.windows[:-1]] == [1, 2, 3]
    assert last.start_s == pytest.approx(3)
    assert (last.users, last.errors) == (4, 2)
    assert last.end_s == pytest.approx(3 + DRAIN_S, abs=0.02)
