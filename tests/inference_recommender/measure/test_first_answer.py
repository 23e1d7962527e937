"""A new server is asked until it answers within the objective; on AWS through boto3 itself, with stubbed answers."""

import io
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from botocore.stub import Stubber
from moto import mock_aws

from aws_api.sagemaker import SageMakerAccount
from inference_recommender.measure import first_answer
from inference_recommender.measure.first_answer import first_answer_s, start_of
from tests.builders import a_system
from tests.inference_recommender.measure.recorded_log import VERBOSE, at, lines

BODIES = [b"first", b"second"]
MS = 0.001


class Server:
    """Answers after the given milliseconds, one after the other, and then after the last. Negative: it fails."""

    def __init__(self, *answers_ms: float) -> None:
        self.now = 100.0
        self.asked: list[bytes] = []
        self._answers = iter(answers_ms)
        self._last = answers_ms[-1]

    def ask(self, body: bytes) -> bool:
        self.asked.append(body)
        took_ms = next(self._answers, self._last)
        self.now += abs(took_ms) * MS
        return took_ms > 0

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def clock(self) -> float:
        return self.now


def test_the_first_answer_within_the_limit_ends_it_and_slow_ones_count_in() -> None:
    server = Server(400, 80, 20, 5)
    assert first_answer_s(server.ask, BODIES, 50, server.sleep, server.clock) == pytest.approx(0.5)
    assert server.asked == [b"first", b"second", b"first"]


def test_a_failure_is_no_answer_however_fast_it_came() -> None:
    server = Server(-1, 20)
    assert first_answer_s(server.ask, BODIES, 50, server.sleep, server.clock) == pytest.approx(0.121)


def test_a_server_that_never_answers_within_the_limit_is_given_up() -> None:
    server = Server(1000)
    assert first_answer_s(server.ask, BODIES, 50, server.sleep, server.clock) is None
    assert server.now - 100 == pytest.approx(first_answer.GIVE_UP_S + 1)


@pytest.fixture
def account(monkeypatch: pytest.MonkeyPatch) -> Iterator[SageMakerAccount]:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    with mock_aws():
        yield SageMakerAccount(region="us-east-1")


def described(created: float, changed: float) -> dict[str, Any]:
    return {
        "EndpointName": "new",
        "EndpointArn": "arn:aws:sagemaker:us-east-1:123456789012:endpoint/new",
        "EndpointConfigName": "new",
        "EndpointStatus": "InService",
        "CreationTime": datetime.fromtimestamp(created, UTC),
        "LastModifiedTime": datetime.fromtimestamp(changed, UTC),
    }


def test_a_start_on_sagemaker_is_read_from_describe_endpoint_and_the_containers_log(
    account: SageMakerAccount, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not run on AWS: the answers have the shapes of its service model, and the log's lines are a real Triton's."""
    monkeypatch.setattr(account, "endpoint_log", lambda name: [_events(VERBOSE)])
    sagemaker, runtime = account.client("sagemaker"), account.client("sagemaker-runtime")
    server = Server(300, 20)

    def answer(**_: Any) -> dict[str, Any]:
        server.ask(b"")
        return {"Body": io.BytesIO(b"{}"), "ContentType": "application/json"}

    monkeypatch.setattr(runtime, "invoke_endpoint", answer)
    with Stubber(sagemaker) as stubbed:
        stubbed.add_response("describe_endpoint", described(at(46.0, minute=12), at(70.0)), {"EndpointName": "new"})
        found = start_of(account, a_system(name="new", url=None), BODIES, 50, server.sleep, server.clock)
    assert (found.fetch_s, found.unpack_s) == (None, None)
    assert found.provisioning_s == pytest.approx(240.005892, abs=1e-5)
    assert found.warm_up_s == pytest.approx(0.127916, abs=1e-5)
    assert found.total_s == pytest.approx(70 - 46.005892 + 0.32, abs=1e-5)


class Late:
    """Has the log at the third look, or never."""

    def __init__(self, *logs: list[tuple[float, str]]) -> None:
        self.logs = logs
        self.looks = 0

    def client(self, service: str) -> Any:
        raise AssertionError(service)

    def describe_endpoint(self, name: str) -> dict[str, Any]:
        return described(at(40.0), at(49.0))

    def endpoint_log(self, name: str) -> list[list[tuple[float, str]]]:
        self.looks += 1
        return [self.logs[min(self.looks, len(self.logs)) - 1]] if self.logs else []


def test_lines_that_cloudwatch_does_not_have_yet_are_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    server, late = Server(-1, 20), Late([], _events(VERBOSE)[:2], _events(VERBOSE))
    monkeypatch.setattr(first_answer, "ask_url", lambda url: server.ask)
    found = start_of(late, a_system(), BODIES, 50, server.sleep, server.clock)
    assert late.looks == 3
    assert found.load_s == pytest.approx(2.267932, abs=1e-5)


def test_without_a_log_the_stages_are_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server(20)
    monkeypatch.setattr(first_answer, "ask_url", lambda url: server.ask)
    found = start_of(Late(), a_system(), BODIES, 50, server.sleep, server.clock)
    assert (found.load_s, found.total_s) == (None, None)
    assert server.now - 100 == pytest.approx(0.02 + first_answer.LOG_S)


def test_the_beginning_of_each_servers_log_is_read_oldest_first(account: SageMakerAccount) -> None:
    logs, group = account.client("logs"), "/aws/sagemaker/Endpoints/fleet"
    logs.create_log_group(logGroupName=group)
    now = int(datetime.now(UTC).timestamp() * 1000)
    for stream, moment in (("AllTraffic/i-2", now), ("AllTraffic/i-1", now - 5000)):
        logs.create_log_stream(logGroupName=group, logStreamName=stream)
        events = [{"timestamp": moment + n, "message": f"{stream} {n}\nits next line\n"} for n in range(3)]
        logs.put_log_events(logGroupName=group, logStreamName=stream, logEvents=events)
    older, newer = account.endpoint_log("fleet")
    assert [text for _, text in older[:3]] == ["AllTraffic/i-1 0", "its next line", "AllTraffic/i-1 1"]
    assert (len(older), older[0][0]) == (6, (now - 5000) / 1000)
    assert newer[0][1] == "AllTraffic/i-2 0"
    assert account.endpoint_log("another") == []


def _events(text: str) -> list[tuple[float, str]]:
    return [(line.written_at, line.text) for line in lines(text)]
