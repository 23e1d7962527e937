"""Asking again: how long between, how often said, when given up; and which of boto3's errors are asked again at all."""

from collections.abc import Callable

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError, TokenRetrievalError
from hypothesis import given
from hypothesis import strategies as st

from aws_api.errors import AwsBusy, AwsRefused, AwsUnreachable, ExpiredCredentials, NotFound, translate_aws_errors
from inference_recommender.jobs.retrying_service import GIVE_UP_S, LONGEST_PAUSE_S, Patient, pause_s
from tests.inference_recommender.api import FakeService, description
from tests.inference_recommender.jobs.test_job_run import Watcher


def test_pauses_double_up_to_a_minute_and_are_cut_by_half_at_most() -> None:
    assert [pause_s(attempt, 0.0) for attempt in range(7)] == [2, 4, 8, 16, 32, 60, 60]
    assert [pause_s(attempt, 1.0) for attempt in range(7)] == [1, 2, 4, 8, 16, 30, 30]


@given(st.integers(0, 60), st.floats(0, 1))
def test_no_pause_is_longer_than_the_longest_or_nothing_at_all(attempt: int, jitter: float) -> None:
    assert 1 <= pause_s(attempt, jitter) <= LONGEST_PAUSE_S


def asked(troubles: list[Exception]) -> tuple[Callable[[], object], Watcher, list[float]]:
    service, watcher, pauses = FakeService([description()]), Watcher(), list[float]()
    service.troubles = {"describe_job": troubles}
    patient = Patient(service, watcher, pauses.append, lambda: 0.0)
    return lambda: patient.describe_job("job-1")["Status"], watcher, pauses


def test_throttling_and_a_lost_network_are_waited_out_and_said_once() -> None:
    throttled = AwsBusy("DescribeInferenceRecommendationsJob", "ThrottlingException", "Rate exceeded")
    question, watcher, pauses = asked([throttled, AwsUnreachable("Could not connect"), throttled])
    assert question() == "COMPLETED"
    assert pauses == [2, 4, 8]
    assert watcher.said == [
        "AWS refused DescribeInferenceRecommendationsJob: ThrottlingException: Rate exceeded. Asking again for up to "
        "15 minutes; a job under way is not affected.",
        "AWS answers again.",
    ]


def test_a_quarter_of_an_hour_of_trouble_is_enough() -> None:
    question, watcher, pauses = asked([AwsUnreachable("Could not connect")] * 100)
    with pytest.raises(AwsUnreachable):
        question()
    assert GIVE_UP_S - LONGEST_PAUSE_S < sum(pauses) <= GIVE_UP_S
    assert len(watcher.said) == 1


@pytest.mark.parametrize("error", [ExpiredCredentials(), AwsRefused("Describe", "AccessDenied", "No.")])
def test_what_waiting_does_not_cure_is_raised_at_once(error: Exception) -> None:
    question, watcher, pauses = asked([error])
    with pytest.raises(type(error)):
        question()
    assert (pauses, watcher.said) == ([], [])


def refused(code: str, status: int = 400) -> ClientError:
    response = {"Error": {"Code": code, "Message": "why"}, "ResponseMetadata": {"HTTPStatusCode": status}}
    return ClientError(response, "Describe")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("raised", "becomes", "told"),
    [
        (refused("ThrottlingException"), AwsBusy, "AWS refused Describe: ThrottlingException: why"),
        (refused("Whatever", 503), AwsBusy, "AWS refused Describe: Whatever: why"),
        (refused("ResourceNotFound"), NotFound, "AWS refused Describe: ResourceNotFound: why"),
        (refused("ValidationException"), AwsRefused, "AWS refused Describe: ValidationException: why"),
        (
            refused("ExpiredTokenException"),
            ExpiredCredentials,
            "The AWS credentials have expired: renew them (`aws sso login`, or as you got them).",
        ),
        (
            TokenRetrievalError(provider="sso", error_msg="Token has expired and refresh failed"),
            ExpiredCredentials,
            "The AWS credentials have expired: renew them (`aws sso login`, or as you got them).",
        ),
        (
            EndpointConnectionError(endpoint_url="https://api"),
            AwsUnreachable,
            'AWS cannot be reached: Could not connect to the endpoint URL: "https://api". If AWS_ENDPOINT_URL points '
            "at an account on this machine, start it with `python -m local_aws`.",
        ),
    ],
)
def test_boto3s_errors_are_told_apart(raised: Exception, becomes: type[Exception], told: str) -> None:
    with pytest.raises(becomes) as caught, translate_aws_errors("Describe"):
        raise raised
    assert type(caught.value) is becomes
    assert str(caught.value) == told
