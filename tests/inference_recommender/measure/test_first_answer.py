"""A new server is asked until it answers within the objective; on AWS through boto3 itself, with stubbed answers."""

import io
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import boto3
import pytest
from botocore.stub import Stubber
from moto import mock_aws

from inference_recommender.experiment.aws import ExperimentAws
from inference_recommender.measure import first_answer
from inference_recommender.measure.first_answer import first_answer_s, start_of
from inference_recommender.measure.start_stages import LogLine
from tests.inference_recommender.measure.recorded_log import VERBOSE, at, lines

BODIES = [b"first", b"second"]
MS = 0.001


class Server:
    """Answers within so many milliseconds, one after the other; the last one goes on. Negative: it fails then."""

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
def aws(monkeypatch: pytest.MonkeyPatch) -> Iterator[ExperimentAws]:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    with mock_aws():
        yield ExperimentAws(region="us-east-1")


def test_a_start_on_sagemaker_is_read_from_describe_endpoint_and_the_containers_log(
    aws: ExperimentAws, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not run on AWS: the answers have the shapes of its service model, and the log's lines are a real Triton's."""
    monkeypatch.setattr("inference_recommender.experiment.aws.first_events", lambda *_: [_events(VERBOSE)])
    sagemaker, runtime = aws.client("sagemaker"), aws.client("sagemaker-runtime")
    arn = "arn:aws:sagemaker:us-east-1:123456789012:endpoint/new"
    described = {
        "EndpointName": "new",
        "EndpointArn": arn,
        "EndpointConfigName": "new",
        "EndpointStatus": "InService",
        "CreationTime": datetime.fromtimestamp(at(46.0, minute=12), UTC),
        "LastModifiedTime": datetime.fromtimestamp(at(70.0), UTC),
    }
    server = Server(300, 20)

    def answer(**_: Any) -> dict[str, Any]:
        server.ask(b"")
        return {"Body": io.BytesIO(b"{}"), "ContentType": "application/json"}

    monkeypatch.setattr(runtime, "invoke_endpoint", answer)
    with Stubber(sagemaker) as stubbed:
        stubbed.add_response("describe_endpoint", described, {"EndpointName": "new"})
        stubbed.add_response("list_tags", {"Tags": []}, {"ResourceArn": arn})
        stubbed.add_response("describe_endpoint", described, {"EndpointName": "new"})
        found = start_of(aws, "new", BODIES, 50, server.sleep, server.clock)
        stubbed.assert_no_pending_responses()
    assert (found.fetch_s, found.unpack_s) == (None, None)
    assert found.provisioning_s == pytest.approx(240.005892, abs=1e-5)
    assert found.warm_up_s == pytest.approx(0.127916, abs=1e-5)
    assert found.total_s == pytest.approx(70 - 46.005892 + 0.32, abs=1e-5)


def test_lines_that_cloudwatch_has_not_yet_are_waited_for() -> None:
    class Late:
        """Has the log at the third look."""

        looks = 0

        def invocations_url(self, endpoint: str) -> str | None:
            return "http://127.0.0.1:1/key/invocations"

        def client(self, service: str) -> Any:
            raise AssertionError(service)

        def endpoint_times(self, name: str) -> tuple[datetime, datetime]:
            return datetime.fromtimestamp(at(40.0), UTC), datetime.fromtimestamp(at(49.0), UTC)

        def endpoint_log(self, name: str) -> list[list[LogLine]]:
            self.looks += 1
            return [[], [lines(VERBOSE)[:2]], [lines(VERBOSE)]][min(self.looks, 3) - 1]

    server, account = Server(-1, 20), Late()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(first_answer, "ask_url", lambda url: server.ask)
        found = start_of(account, "e", BODIES, 50, server.sleep, server.clock)
    assert account.looks == 3
    assert found.load_s == pytest.approx(2.267932, abs=1e-5)


def test_a_log_that_never_comes_leaves_the_stages_unknown(monkeypatch: pytest.MonkeyPatch, aws: ExperimentAws) -> None:
    server = Server(20)
    monkeypatch.setattr(aws, "invocations_url", lambda endpoint: "http://127.0.0.1:1/key/invocations")
    monkeypatch.setattr(first_answer, "ask_url", lambda url: server.ask)
    times = datetime.fromtimestamp(at(40.0), UTC), datetime.fromtimestamp(at(49.0), UTC)
    monkeypatch.setattr(aws, "endpoint_times", lambda endpoint: times)
    found = start_of(aws, "e", BODIES, 50, server.sleep, server.clock)
    assert (found.load_s, found.total_s) == (None, None)
    assert server.now - 100 == pytest.approx(0.02 + first_answer.LOG_S)


def test_the_beginning_of_each_servers_log_is_read_oldest_first(aws: ExperimentAws) -> None:
    logs, group = boto3.client("logs", region_name="us-east-1"), "/aws/sagemaker/Endpoints/fleet"
    logs.create_log_group(logGroupName=group)
    now = int(datetime.now(UTC).timestamp() * 1000)
    for stream, moment in (("AllTraffic/i-2", now), ("AllTraffic/i-1", now - 5000)):
        logs.create_log_stream(logGroupName=group, logStreamName=stream)
        events = [{"timestamp": moment + n, "message": f"{stream} {n}\nits next line\n"} for n in range(3)]
        logs.put_log_events(logGroupName=group, logStreamName=stream, logEvents=events)
    older, newer = aws.endpoint_log("fleet")
    assert [line.text for line in older[:3]] == ["AllTraffic/i-1 0", "its next line", "AllTraffic/i-1 1"]
    assert (len(older), older[0].written_at) == (6, (now - 5000) / 1000)
    assert newer[0].text == "AllTraffic/i-2 0"
    assert aws.endpoint_log("another") == []


def _events(text: str) -> list[tuple[float, str]]:
    return [(line.written_at, line.text) for line in lines(text)]
