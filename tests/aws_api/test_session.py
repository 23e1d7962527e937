"""Errors of AWS calls in a sentence, sessions and their retries."""

from collections.abc import Iterator
from typing import Any

import boto3
import botocore.endpoint
import pytest
from botocore.awsrequest import AWSResponse
from botocore.compat import HTTPHeaders
from botocore.exceptions import ClientError, ConnectionClosedError, EndpointConnectionError, TokenRetrievalError

from aws_api.errors import (
    NO_CREDENTIALS,
    NO_REGION,
    AwsBusy,
    AwsRefused,
    AwsUnavailable,
    AwsUnreachable,
    ExpiredCredentials,
    LocalAccountEnded,
    NotFound,
    is_this_machine,
    translate_aws_errors,
)
from aws_api.session import ATTEMPTS, GIVE_UP_S, LONGEST_PAUSE_S, AwsSession
from tests.builders import message_of

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
    with pytest.raises(AwsRefused, match="AccessDeniedException"):
        describe(said, *[THROTTLED] * ATTEMPTS, DENIED)
    assert said == [TOLD, "AWS answers again."] * 2
    assert [pause >= 1 for pause in slept[ATTEMPTS - 1 : ATTEMPTS + 3]] == [True] * 4


def test_without_notify_an_outage_ends_the_call(slept: list[float]) -> None:
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


@pytest.mark.parametrize("notified", [True, False])
def test_a_local_account_that_has_ended_fails_the_call_at_once(notified: bool, slept: list[float]) -> None:
    said: list[str] = []
    ended = EndpointConnectionError(endpoint_url="http://localhost:5055/")
    closed = ConnectionClosedError(endpoint_url="http://localhost:5055/")
    with pytest.raises(LocalAccountEnded, match="The local account at http://localhost:5055 is not running"):
        describe(said if notified else None, closed, ended)
    assert (len(slept), said) == (1, [])


def test_without_credentials_or_region_it_says_what_to_configure() -> None:
    for aws, problem in (
        (AwsSession(), NO_REGION),
        (AwsSession(boto3.Session(region_name="us-east-1")), NO_CREDENTIALS),
    ):
        assert message_of(AwsUnavailable, aws.default_bucket) == problem


def test_only_loopback_is_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("localhost", "127.0.0.1", "127.8.8.8", "::1", "10.0.0.1", "service.example", "")
    assert [name for name in names if is_this_machine(name)] == ["localhost", "127.0.0.1", "127.8.8.8", "::1"]
    assert not AwsSession(region="us-east-1").is_on_this_machine()
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:4566")
    assert AwsSession(region="us-east-1").is_on_this_machine()


def refused(code: str, status: int = 400, message: str = "why") -> ClientError:
    response: Any = {"Error": {"Code": code, "Message": message}, "ResponseMetadata": {"HTTPStatusCode": status}}
    return ClientError(response, "Describe")


@pytest.mark.parametrize(
    ("raised", "becomes", "told"),
    [
        (refused("ThrottlingException"), AwsBusy, "AWS refused Describe: ThrottlingException: why"),
        (refused("Whatever", 503), AwsBusy, "AWS refused Describe: Whatever: why"),
        (refused("ResourceNotFound"), NotFound, "AWS refused Describe: ResourceNotFound: why"),
        (refused("ValidationException"), AwsRefused, "AWS refused Describe: ValidationException: why"),
        (
            refused("ValidationException", message="Could not find model 'm'."),
            NotFound,
            "AWS refused Describe: ValidationException: Could not find model 'm'.",
        ),
        (
            refused("ExpiredTokenException"),
            ExpiredCredentials,
            "The AWS credentials have expired: renew them (`aws sso login`, or as you got them).",
        ),
        (TokenRetrievalError(provider="sso", error_msg="It failed"), ExpiredCredentials, str(ExpiredCredentials())),
        (
            EndpointConnectionError(endpoint_url="https://api"),
            AwsUnreachable,
            'AWS cannot be reached: Could not connect to the endpoint URL: "https://api". If AWS_ENDPOINT_URL points '
            "at an account on this machine, start it with `python -m local_aws`.",
        ),
        (
            EndpointConnectionError(endpoint_url="http://localhost:5055/"),
            LocalAccountEnded,
            "The local account at http://localhost:5055 is not running. Its exports file (.local_aws/exports, or the "
            "one in --state DIR) no longer holds. Start an account with `python -m local_aws` and source the file "
            "again. The new account is empty: bootstrap and deploy again. For AWS itself, unset AWS_ENDPOINT_URL.",
        ),
    ],
)
def test_boto3s_errors_are_told_apart(raised: Exception, becomes: type[Exception], told: str) -> None:
    with pytest.raises(becomes) as caught, translate_aws_errors("Describe"):
        raise raised
    assert type(caught.value) is becomes
    assert str(caught.value) == told
