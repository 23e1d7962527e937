"""boto3's errors are told apart, and each says in one sentence what to do."""

from typing import Any

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError, TokenRetrievalError

from aws_api.errors import (
    AwsBusy,
    AwsRefused,
    AwsUnreachable,
    ExpiredCredentials,
    LocalAccountEnded,
    NotFound,
    translate_aws_errors,
)


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
