"""A call repeats what may succeed and records how long the caller waited; server and clock are fakes."""

import json
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inference_recommender.client import InferenceClient, InferenceFailed, Refused, Retries, TimedOut, Unreachable
from inference_recommender.client.kserve import Body

ANSWER = Body(content=json.dumps({"outputs": [{"name": "O", "shape": [1], "datatype": "INT64", "data": [7]}]}).encode())
CALL_S = 0.125


class Shelf:
    """A server that has an outcome ready for each attempt, a clock that its attempts move, and what was recorded."""

    def __init__(self, outcomes: Sequence[Body | InferenceFailed]) -> None:
        self._outcomes = list(outcomes)
        self.now_s = 0.0
        self.waits_s: list[float] = []
        self.recorded_ms: list[float] = []

    def send(self, request: Body) -> Body:
        self.now_s += CALL_S
        outcome = self._outcomes.pop(0)
        if isinstance(outcome, InferenceFailed):
            raise outcome
        return outcome

    def sleep(self, seconds: float) -> None:
        self.waits_s.append(seconds)
        self.now_s += seconds

    def record(self, latency_ms: float) -> None:
        self.recorded_ms.append(latency_ms)

    def client(self, retries: Retries | None = None) -> InferenceClient:
        return InferenceClient(
            self,
            binary=False,
            retries=retries,
            latency=self,
            clock_s=lambda: self.now_s,
            sleep=self.sleep,
            chance=lambda: 0,
        )


@pytest.mark.parametrize("failure", [Refused("s", 429, "slow down"), Refused("s", 503, ""), Unreachable("s", "reset")])
def test_a_busy_or_broken_server_is_asked_again_after_a_wait_that_doubles(failure: InferenceFailed) -> None:
    shelf = Shelf([failure, failure, ANSWER])
    assert shelf.client().infer({"A": [1]})["O"].tolist() == [7]
    assert shelf.waits_s == [0.05, 0.1]


@pytest.mark.parametrize("failure", [Refused("s", 400, "bad shape"), Refused("s", 413, ""), TimedOut("s", 5)])
def test_what_another_try_would_not_mend_is_not_sent_again(failure: InferenceFailed) -> None:
    shelf = Shelf([failure, ANSWER])
    with pytest.raises(type(failure)) as raised:
        shelf.client().infer({"A": [1]})
    assert raised.value is failure
    assert shelf.waits_s == []


def test_the_last_failure_is_the_one_that_is_raised() -> None:
    shelf = Shelf([Refused("s", 503, "first"), Refused("s", 503, "second"), Refused("s", 500, "third")])
    with pytest.raises(Refused, match=r"^s answered 500: third$"):
        shelf.client().infer({"A": [1]})


def test_what_the_caller_waited_is_recorded_with_retries_and_also_of_a_failure() -> None:
    shelf = Shelf([Refused("s", 503, ""), ANSWER, Refused("s", 400, "")])
    client = shelf.client()
    client.infer({"A": [1]})
    with pytest.raises(Refused):
        client.infer({"A": [1]})
    assert shelf.recorded_ms == [pytest.approx(1000 * (2 * CALL_S + 0.05)), pytest.approx(1000 * CALL_S)]


def test_one_attempt_is_for_models_that_keep_state() -> None:
    shelf = Shelf([Refused("s", 503, ""), ANSWER])
    with pytest.raises(Refused):
        shelf.client(Retries(attempts=1)).infer({"A": [1]})


@given(
    attempts=st.integers(1, 9),
    first=st.floats(0.001, 1),
    longest=st.floats(0.001, 5),
    within=st.floats(0, 10),
    chances=st.lists(st.floats(0, 1), min_size=9, max_size=9),
)
def test_no_attempt_begins_too_late_and_no_wait_is_too_long(
    attempts: int, first: float, longest: float, within: float, chances: list[float]
) -> None:
    retries = Retries(attempts=attempts, first_wait_s=first, longest_wait_s=longest, give_up_after_s=within)
    elapsed, begun = 0.0, 1
    while (wait := retries.wait_s(begun, elapsed, chances[begun - 1])) is not None:
        assert min(first, longest) / 2 <= wait <= longest
        elapsed, begun = elapsed + wait, begun + 1
    assert begun <= attempts
    assert elapsed <= within
