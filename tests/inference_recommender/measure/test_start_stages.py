"""The stages of a start and the time to the first answer. The log lines are a real Triton's."""

import io
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from botocore.stub import Stubber
from moto import mock_aws

from aws_api.sagemaker import SageMakerAccount
from inference_recommender.kserve import Body
from inference_recommender.measure import start_stages
from inference_recommender.measure.start_stages import LogLine, cold_start, first_answer_s, stages, start_of
from tests.builders import a_system
from tests.inference_recommender.api import DeployedAccount
from tests.inference_recommender.measure.recorded_log import OWN, QUIET, VERBOSE, at, lines
from workloads.recommendation import Stages

ARCHIVE = "a" * 64
BODIES = [Body(content=b"first"), Body(content=b"second")]
OLDER = QUIET.replace('"loading: spellcheck:1"', "loading: spellcheck:1").replace(
    "\"successfully loaded 'spellcheck'\"", "successfully loaded 'spellcheck' version 1"
)


@pytest.mark.parametrize(
    ("log", "figures", "expected"),
    [
        (
            OWN + QUIET,
            {"requested_at": at(40.0), "in_service_at": at(43.7), "warm_up_s": 0.215, "answered_s": 0.012},
            {
                "fetch_s": 0.025,
                "unpack_s": 0.075,
                "start_s": 0.663204,
                "load_s": 2.658840 - 0.215,
                "warm_up_s": 0.215,
                "first_answer_s": 0.189956,
                "total_s": 3.612,
            },
        ),
        # On SageMaker. The warm-up ends with the first loaded model; models that load later are ignored.
        (
            VERBOSE,
            {"requested_at": at(46.0, minute=12), "in_service_at": at(70.0), "answered_s": 0.5},
            {
                "provisioning_s": 240.005892,
                "start_s": 0.001904,
                "load_s": 2.267932,
                "warm_up_s": 0.127916,
                "first_answer_s": 22.096356,
                "total_s": 24.494108,
            },
        ),
        # Without verbose lines and counters the load includes the warm-up. An older Triton writes no quotation marks.
        (QUIET, {}, {"start_s": 0.001774, "load_s": 2.658840}),
        (OLDER, {}, {"start_s": 0.001774, "load_s": 2.658840}),
        ("", {"requested_at": at(0.0), "in_service_at": at(5.0), "answered_s": 0.1}, {}),
        ("Starting Gunicorn\n", {"requested_at": at(0.0)}, {"provisioning_s": 49.0}),
    ],
    ids=["local", "sagemaker", "quiet", "older Triton", "no log", "another server"],
)
def test_the_stages_of_a_start_are_read_from_its_log(
    log: str, figures: dict[str, float], expected: dict[str, float]
) -> None:
    found = stages(lines(log), **figures).model_dump(exclude_none=True)
    assert found == pytest.approx(expected, abs=2e-3)


@pytest.mark.parametrize(
    ("written_at", "line", "before_s"),
    [
        (datetime(2027, 1, 1, 0, 0, 3, tzinfo=UTC), 'I1231 23:59:59.500000 1 a.cc:472] "loading: m:1"', 3.5),
        (datetime(2028, 2, 29, 12, tzinfo=UTC), 'I0229 11:59:58.000000 1 a.cc:472] "loading: m:1"', 2.0),
    ],
)
def test_a_line_has_the_year_nearest_to_its_reception(written_at: datetime, line: str, before_s: float) -> None:
    at = LogLine(written_at=written_at.timestamp(), text=line).at
    assert written_at.timestamp() - at == pytest.approx(before_s, abs=1e-5)


def test_several_starts_are_their_medians_and_ranges() -> None:
    starts = [Stages(load_s=load, total_s=total) for load, total in ((2.0, 5.0), (4.0, 6.0), (3.0, None))]
    system = a_system(stands_in=True, machine="m")
    result = cold_start(starts, system, ARCHIVE, datetime(2026, 11, 23, 9, 30, 1, 5, tzinfo=UTC))
    assert result.model_dump(exclude_none=True) == {
        "load_s": 3.0,
        "total_s": 5.5,
        "starts": 3,
        "ranges_s": {"load_s": (2.0, 4.0), "total_s": (5.0, 6.0)},
        "measured_on": "local",
        "machine": "m",
        "instance_type": "ml.c5.xlarge",
        "archive_sha256": ARCHIVE,
        "measured_at": "2026-11-23T09:30:01+00:00",
    }


class Server:
    """Answers after the given milliseconds, one after the other, and then after the last. Negative: it fails."""

    def __init__(self, *answers_ms: float) -> None:
        self.now = 100.0
        self.bodies: list[Body] = []
        self._answers, self._last = iter(answers_ms), answers_ms[-1]

    def ask(self, body: Body) -> bool:
        self.bodies.append(body)
        took_ms = next(self._answers, self._last)
        self.now += abs(took_ms) / 1000
        return took_ms > 0

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def clock(self) -> float:
        return self.now


@pytest.mark.parametrize(
    ("server", "seconds", "waited_s"),
    [
        (Server(400, 80, 20, 5), 0.5, 0.5),
        (Server(-1, 20), 0.121, 0.121),
        (Server(1000), None, start_stages.GIVE_UP_S + 1),
    ],
    ids=["slow answers count", "a failure is no answer", "never within the limit"],
)
def test_the_first_answer_within_the_limit_ends_the_wait(
    server: Server, seconds: float | None, waited_s: float
) -> None:
    assert first_answer_s(server.ask, BODIES, 50, server.sleep, server.clock) == (seconds and pytest.approx(seconds))
    assert server.now - 100 == pytest.approx(waited_s)
    assert server.bodies[:2] == BODIES


@pytest.mark.usefixtures("credentials")
def test_a_start_on_sagemaker_is_read_from_describe_endpoint_and_the_containers_log(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    account, server = SageMakerAccount(region="us-east-1"), Server(300, 20)
    monkeypatch.setattr(account, "endpoint_log", lambda name: [_events(VERBOSE)])

    def answer(**_: Any) -> dict[str, Any]:
        server.ask(Body(content=b""))
        return {"Body": io.BytesIO(b"{}"), "ContentType": "application/json"}

    monkeypatch.setattr(account.client("sagemaker-runtime"), "invoke_endpoint", answer)
    described = {
        "EndpointName": "new",
        "EndpointArn": "arn:aws:sagemaker:us-east-1:123456789012:endpoint/new",
        "EndpointConfigName": "new",
        "EndpointStatus": "InService",
        "CreationTime": datetime.fromtimestamp(at(46.0, minute=12), UTC),
        "LastModifiedTime": datetime.fromtimestamp(at(70.0), UTC),
    }
    with Stubber(account.client("sagemaker")) as stubbed:
        stubbed.add_response("describe_endpoint", described, {"EndpointName": "new"})
        found = start_of(account, a_system(name="new", url=None), BODIES, 50, server.sleep, server.clock)
    assert (found.fetch_s, found.unpack_s) == (None, None)
    assert found.provisioning_s == pytest.approx(240.005892, abs=1e-5)
    assert found.total_s == pytest.approx(70 - 46.005892 + 0.32, abs=1e-5)


@pytest.mark.parametrize(
    ("logs", "load_s", "waited_s"),
    [(["", VERBOSE[:200], VERBOSE], 2.267932, 4.02), ([""], None, 0.02 + start_stages.LOG_S)],
    ids=["late", "none"],
)
def test_lines_that_cloudwatch_does_not_have_yet_are_waited_for(
    monkeypatch: pytest.MonkeyPatch, logs: list[str], load_s: float | None, waited_s: float
) -> None:
    server, account = Server(20), DeployedAccount()
    monkeypatch.setattr(start_stages, "ask_url", lambda url: server.ask)
    monkeypatch.setattr(account, "endpoint_log", _later(logs))
    found = start_of(account, a_system(), BODIES, 50, server.sleep, server.clock)
    assert found.load_s == (load_s and pytest.approx(load_s, abs=1e-5))
    assert server.now - 100 == pytest.approx(waited_s)


@pytest.mark.usefixtures("credentials")
def test_the_beginning_of_each_servers_log_is_read_oldest_first() -> None:
    with mock_aws():
        account = SageMakerAccount(region="us-east-1")
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


def _later(logs: list[str]) -> Callable[[str], list[list[tuple[float, str]]]]:
    """Returns a log for each look, and then the last."""
    rest = iter(logs)
    return lambda name: [_events(next(rest, logs[-1]))]
