"""Retries of a call within its deadline and budget, with a fake server and clock, and Retry-After headers."""

import json
from collections.abc import Callable, Sequence
from email.utils import formatdate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inference_recommender.client import InferenceClient, InferenceFailed, Refused, Retries, TimedOut, Unreachable
from inference_recommender.client.servers import retry_after_s
from inference_recommender.kserve import Body

ANSWER = Body(content=json.dumps({"outputs": [{"name": "O", "shape": [1], "datatype": "INT64", "data": [7]}]}).encode())
CALL_S = 0.125


class FakeServer:
    """Has an outcome for each attempt and a clock that attempts advance. Also records latencies."""

    def __init__(self, outcomes: Sequence[Body | InferenceFailed]) -> None:
        self._outcomes = list(outcomes)
        self.now_s = 0.0
        self.waits_s: list[float] = []
        self.within_s: list[float] = []
        self.recorded_ms: list[float] = []

    def send(self, request: Body, within_s: float) -> Body:
        self.within_s.append(within_s)
        self.now_s += min(CALL_S, within_s)
        outcome = self._outcomes.pop(0)
        if isinstance(outcome, InferenceFailed):
            raise outcome
        return outcome

    def sleep(self, seconds: float) -> None:
        self.waits_s.append(seconds)
        self.now_s += seconds

    def record(self, latency_ms: float) -> None:
        self.recorded_ms.append(latency_ms)

    def client(
        self, retries: Retries | None = None, deadline_s: float = 10.0, chance: Callable[[], float] = lambda: 1.0
    ) -> InferenceClient:
        return InferenceClient(
            self,
            binary=False,
            deadline_s=deadline_s,
            retries=retries,
            latency=self,
            clock_s=lambda: self.now_s,
            sleep=self.sleep,
            chance=chance,
        )


@pytest.mark.parametrize(
    "failure",
    [*(Refused("s", status, "") for status in (408, 425, 429, 500, 502, 503, 504, 530)), Unreachable("s", "reset")],
)
def test_failures_of_a_busy_server_are_retried_after_a_wait_that_doubles(failure: InferenceFailed) -> None:
    server = FakeServer([failure, failure, ANSWER])
    assert server.client().infer({"A": [1]})["O"].tolist() == [7]
    assert server.waits_s == [0.05, 0.1]


@pytest.mark.parametrize(
    "failure",
    [
        *(Refused("s", status, "") for status in (302, 400, 401, 403, 404, 413, 424, 501)),
        TimedOut("s", 5),
        Unreachable("s", "certificate", may_retry=False),
    ],
)
def test_lasting_failures_are_not_retried(failure: InferenceFailed) -> None:
    server = FakeServer([failure, ANSWER])
    with pytest.raises(type(failure)) as raised:
        server.client().infer({"A": [1]})
    assert raised.value is failure
    assert server.waits_s == []


def test_a_timeout_is_retried_on_request() -> None:
    server = FakeServer([TimedOut("s", 5), ANSWER])
    assert server.client(Retries(timeouts=True)).infer({"A": [1]})["O"].tolist() == [7]


def test_the_recorded_latency_includes_retries_and_failed_calls() -> None:
    server = FakeServer([Refused("s", 503, ""), ANSWER, Refused("s", 400, "")])
    client = server.client()
    client.infer({"A": [1]})
    with pytest.raises(Refused):
        client.infer({"A": [1]})
    assert server.recorded_ms == [pytest.approx(1000 * (2 * CALL_S + 0.05)), pytest.approx(1000 * CALL_S)]


@given(
    attempts=st.integers(1, 9),
    first=st.floats(0.001, 1),
    longest=st.floats(0.001, 5),
    deadline=st.floats(0, 10),
    retry_after=st.one_of(st.none(), st.floats(0, 10)),
    chances=st.lists(st.floats(0, 1), min_size=9, max_size=9),
)
def test_a_call_ends_by_its_deadline_and_no_wait_is_too_long_or_too_short(
    attempts: int, first: float, longest: float, deadline: float, retry_after: float | None, chances: list[float]
) -> None:
    server = FakeServer([Refused("s", 503, "", retry_after)] * attempts)
    drawn = iter(chances)
    retries = Retries(attempts=attempts, first_wait_s=first, longest_wait_s=longest)
    with pytest.raises(Refused):
        server.client(retries, deadline, lambda: next(drawn)).infer({"A": [1]})
    assert server.now_s <= deadline + 1e-9
    assert len(server.within_s) <= attempts
    for failures, wait in enumerate(server.waits_s):
        assert 0 <= wait - (retry_after or 0) <= min(longest, first * 2**failures) + 1e-9


def test_each_attempt_gets_the_rest_of_the_deadline() -> None:
    server = FakeServer([Refused("s", 503, ""), Refused("s", 503, ""), ANSWER])
    server.client(deadline_s=2.0).infer({"A": [1]})
    assert server.within_s == [2.0, 2.0 - CALL_S - 0.05, pytest.approx(2.0 - 2 * CALL_S - 0.05 - 0.1)]


def test_a_retry_after_beyond_the_deadline_ends_the_call() -> None:
    server = FakeServer([Refused("s", 503, "", 120.0), ANSWER])
    with pytest.raises(Refused):
        server.client().infer({"A": [1]})
    assert server.waits_s == []


def test_retries_stop_when_the_budget_is_spent() -> None:
    server = FakeServer([Refused("s", 503, "")] * 1_000)
    client = server.client()
    for _ in range(100):
        with pytest.raises(Refused):
            client.infer({"A": [1]})
    assert len(server.within_s) == 100 + 33  # 49 failures leave more than half: 16 calls of three attempts, one of two


def test_occasional_failures_are_always_retried() -> None:
    server = FakeServer([Refused("s", 503, ""), *[ANSWER] * 11] * 200)
    client = server.client()
    for _ in range(200 * 11):
        client.infer({"A": [1]})
    assert len(server.waits_s) == 200


NOW_S = 1_795_000_000.0


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("120", 120.0),
        (" 0 ", 0.0),
        (formatdate(NOW_S + 90, usegmt=True), 90.0),
        (formatdate(NOW_S + 90), 90.0),
        (formatdate(NOW_S - 90, usegmt=True), 0.0),
        (None, None),
        ("", None),
        ("-1", None),
        ("1.5", None),
        ("soon", None),
        ("Wed, 99 Nov 2026 07:28:00 GMT", None),
        ("9" * 5_000, None),
    ],
)
def test_seconds_and_dates_are_read(value: str | None, seconds: float | None) -> None:
    assert retry_after_s(value, NOW_S) == seconds
