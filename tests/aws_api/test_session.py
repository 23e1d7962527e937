"""One retry policy for all calls: botocore's retries, outages with a message, and errors that are raised at once."""

import os
from collections.abc import Iterator
from typing import Any

import boto3
import botocore.endpoint
import pytest
from botocore.awsrequest import AWSResponse
from botocore.compat import HTTPHeaders
from botocore.exceptions import ConnectionClosedError, EndpointConnectionError
from hypothesis import given
from hypothesis import strategies as st

from aws_api.errors import (
    AwsBusy,
    AwsRefused,
    AwsUnavailable,
    AwsUnreachable,
    ExpiredCredentials,
    LocalAccountEnded,
    is_this_machine,
    translate_aws_errors,
)
from aws_api.session import ATTEMPTS, GIVE_UP_S, LONGEST_PAUSE_S, AwsSession, OutageRetries, pause_s

THROTTLED = (400, b'{"__type": "ThrottlingException", "message": "Rate exceeded"}')
DROPPED = EndpointConnectionError(endpoint_url="https://api")
EXPIRED = (400, b'{"__type": "ExpiredTokenException", "message": "The security token is expired"}')
DENIED = (400, b'{"__type": "AccessDeniedException", "message": "No."}')
ANSWER = (200, b'{"ProcessingJobName": "job"}')
TOLD = (
    "AWS refused DescribeProcessingJob: ThrottlingException: Rate exceeded. Asking again for up to 15 minutes; a "
    "running job is not affected."
)
SESSION = boto3.Session(aws_access_key_id="k", aws_secret_access_key="s", region_name="us-east-1")

Attempt = tuple[int, bytes] | Exception


class Api:
    """Stands in for the network below botocore: one attempt after another ends as `attempts` says."""

    def __init__(self, *attempts: Attempt) -> None:
        self._attempts: Iterator[Attempt] = iter(attempts)

    def __call__(self, request: Any, **_: Any) -> AWSResponse:
        attempt = next(self._attempts)
        if isinstance(attempt, Exception):
            raise attempt
        status, body = attempt

        class Raw:
            def stream(self) -> Iterator[bytes]:
                yield body

        return AWSResponse(request.url, status, HTTPHeaders(), Raw())


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    pauses: list[float] = []
    monkeypatch.setattr(botocore.endpoint.time, "sleep", pauses.append)  # type: ignore[attr-defined]
    return pauses


def describe(said: list[str] | None, *attempts: Attempt) -> str:
    """Describes a job through a session that tells `said`; None is a session without `notify`."""
    client = AwsSession(SESSION, None if said is None else said.append).client("sagemaker")
    client.meta.events.register("before-send", Api(*attempts))
    with translate_aws_errors("DescribeProcessingJob"):
        return str(client.describe_processing_job(ProcessingJobName="job")["ProcessingJobName"])


@pytest.mark.parametrize("trouble", [THROTTLED, DROPPED, (503, b"{}")], ids=["throttled", "dropped", "503"])
def test_short_trouble_passes_in_silence(trouble: Attempt, slept: list[float]) -> None:
    said: list[str] = []
    assert describe(said, *[trouble] * (ATTEMPTS - 1), ANSWER) == "job"
    assert said == []
    assert len(slept) == ATTEMPTS - 1


def test_an_outage_is_outlasted_and_told_once(slept: list[float]) -> None:
    said: list[str] = []
    assert describe(said, *[THROTTLED] * (ATTEMPTS + 2), DROPPED, ANSWER) == "job"
    assert said == [TOLD, "AWS answers again."]
    assert [pause >= 1 for pause in slept[ATTEMPTS - 1 :]] == [True] * 4


def test_without_notify_an_outage_ends_the_call(slept: list[float]) -> None:
    with pytest.raises(AwsBusy):
        describe(None, *[THROTTLED] * ATTEMPTS)
    assert len(slept) == ATTEMPTS - 1


def test_after_stop_retrying_an_outage_ends_the_call(slept: list[float]) -> None:
    aws = AwsSession(SESSION, notify=pytest.fail)
    client = aws.client("sagemaker")
    aws.stop_retrying()
    client.meta.events.register("before-send", Api(*[THROTTLED] * ATTEMPTS))
    with pytest.raises(AwsBusy), translate_aws_errors("DescribeProcessingJob"):
        client.describe_processing_job(ProcessingJobName="job")
    assert len(slept) == ATTEMPTS - 1


def test_an_outage_of_a_quarter_of_an_hour_ends_the_call(slept: list[float]) -> None:
    said: list[str] = []
    with pytest.raises(AwsUnreachable):
        describe(said, *[DROPPED] * 200)
    assert GIVE_UP_S - LONGEST_PAUSE_S < sum(slept[ATTEMPTS - 1 :]) <= GIVE_UP_S
    assert len(said) == 1


@pytest.mark.parametrize(("refusal", "error"), [(EXPIRED, ExpiredCredentials), (DENIED, AwsRefused)])
def test_what_waiting_does_not_cure_is_raised_at_once(
    refusal: Attempt, error: type[AwsUnavailable], slept: list[float]
) -> None:
    said: list[str] = []
    with pytest.raises(error):
        describe(said, refusal)
    assert (slept, said) == ([], [])


def test_a_refusal_ends_an_outage_too(slept: list[float]) -> None:
    said: list[str] = []
    with pytest.raises(AwsRefused, match="AccessDeniedException"):
        describe(said, *[THROTTLED] * ATTEMPTS, DENIED)
    assert said == [TOLD, "AWS answers again."]


@pytest.mark.parametrize("notified", [True, False])
def test_a_local_account_that_has_ended_fails_the_call_at_once(notified: bool, slept: list[float]) -> None:
    said: list[str] = []
    ended = EndpointConnectionError(endpoint_url="http://localhost:5055/")
    closed = ConnectionClosedError(endpoint_url="http://localhost:5055/")
    with pytest.raises(LocalAccountEnded, match="The local account at http://localhost:5055 is not running"):
        describe(said if notified else None, closed, ended)
    assert (len(slept), said) == (1, [])


def test_what_is_no_trouble_of_the_network_is_not_tried_again() -> None:
    context: dict[str, Any] = {"context": {}}
    handler = OutageRetries(AwsSession(notify=pytest.fail))
    arguments: Any = {"response": None, "operation": None, "attempts": ATTEMPTS, "request_dict": context}

    class Operation:
        name = "DescribeProcessingJob"

    arguments["operation"] = Operation
    assert handler(**arguments, caught_exception=ValueError("not botocore's")) is None


def test_pauses_double_up_to_a_minute_and_are_cut_by_half_at_most() -> None:
    assert [pause_s(attempt, 0.0) for attempt in range(7)] == [2, 4, 8, 16, 32, 60, 60]
    assert [pause_s(attempt, 1.0) for attempt in range(7)] == [1, 2, 4, 8, 16, 30, 30]


@given(st.integers(0, 60), st.floats(0, 1))
def test_no_pause_is_longer_than_the_longest_or_nothing_at_all(attempt: int, jitter: float) -> None:
    assert 1 <= pause_s(attempt, jitter) <= LONGEST_PAUSE_S


def test_without_credentials_or_region_it_says_what_to_configure(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", os.devnull)
    with pytest.raises(AwsUnavailable) as no_region:
        AwsSession().default_bucket()
    assert str(no_region.value) == "No AWS region is set. Export AWS_DEFAULT_REGION, or set one with `aws configure`."
    with pytest.raises(AwsUnavailable) as no_credentials:
        AwsSession(boto3.Session(region_name="us-east-1")).default_bucket()
    assert str(no_credentials.value) == (
        "No AWS credentials were found. Configure them with `aws configure`, or start an account on this machine with "
        "`python -m local_aws` and export what it prints."
    )


def test_only_loopback_is_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("localhost", "127.0.0.1", "127.8.8.8", "::1", "10.0.0.1", "service.example", "")
    assert [name for name in names if is_this_machine(name)] == ["localhost", "127.0.0.1", "127.8.8.8", "::1"]
    assert not AwsSession(region="us-east-1").is_on_this_machine()
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:4566")
    assert AwsSession(region="us-east-1").is_on_this_machine()
