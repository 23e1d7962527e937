"""boto3's exceptions as errors that a person can act on: one sentence each, exit code 3. It knows no service."""

from collections.abc import Iterator
from contextlib import contextmanager

from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectionError,
    CredentialRetrievalError,
    HTTPClientError,
    NoCredentialsError,
    NoRegionError,
    PartialCredentialsError,
    SSOTokenLoadError,
    TokenRetrievalError,
    UnauthorizedSSOTokenError,
)

from workloads import ProjectError

BUSY = frozenset(
    {
        "InternalError",
        "InternalFailure",
        "InternalServerError",
        "InternalServiceError",
        "LimitExceededException",
        "PriorRequestNotComplete",
        "RequestLimitExceeded",
        "RequestThrottled",
        "RequestThrottledException",
        "ServiceUnavailable",
        "ServiceUnavailableException",
        "SlowDown",
        "Throttling",
        "ThrottledException",
        "ThrottlingException",
        "TooManyRequestsException",
    }
)
EXPIRED = frozenset({"ExpiredToken", "ExpiredTokenException", "RequestExpired"})
MISSING = frozenset({"ResourceNotFound", "ResourceNotFoundException"})


class AwsUnavailable(ProjectError):
    """AWS is not there or refuses."""

    exit_code = 3


class NoCredentials(AwsUnavailable):
    def __init__(self) -> None:
        super().__init__(
            "No AWS credentials were found. Configure them with `aws configure`, or start an account on this "
            "machine with `python -m local_aws` and export what it prints."
        )


class NoRegion(AwsUnavailable):
    def __init__(self) -> None:
        super().__init__("No AWS region is set. Export AWS_DEFAULT_REGION, or set one with `aws configure`.")


class AwsUnreachable(AwsUnavailable):
    def __init__(self, why: str) -> None:
        super().__init__(
            f"AWS cannot be reached: {why}. If AWS_ENDPOINT_URL points at an account on this machine, start it "
            "with `python -m local_aws`."
        )


class AwsRefused(AwsUnavailable):
    def __init__(self, operation: str, code: str, message: str) -> None:
        self.code = code
        super().__init__(f"AWS refused {operation}: {code}: {message}")


class AwsBusy(AwsRefused):
    """Refused for now: throttled, or a fault of the service's own. To be asked again."""


class NotFound(AwsRefused):
    """There is no such thing in this account and region."""


class ExpiredCredentials(AwsUnavailable):
    def __init__(self) -> None:
        super().__init__("The AWS credentials have expired: renew them (`aws sso login`, or as you got them).")


@contextmanager
def translate_aws_errors(operation: str) -> Iterator[None]:
    """Within, every error of boto3 becomes an `AwsUnavailable`."""
    try:
        yield
    except ClientError as error:
        raise refusal(operation, error) from error
    except (CredentialRetrievalError, SSOTokenLoadError, TokenRetrievalError, UnauthorizedSSOTokenError) as error:
        raise ExpiredCredentials() from error
    except (NoCredentialsError, PartialCredentialsError) as error:
        raise NoCredentials() from error
    except NoRegionError as error:
        raise NoRegion() from error
    except (ConnectionError, HTTPClientError, BotoCoreError) as error:
        raise AwsUnreachable(str(error).rstrip(".")) from error


def refusal(operation: str, error: ClientError) -> AwsRefused | ExpiredCredentials:
    """Of an answer that is an error: for now, for want of the thing, for want of credentials, or for good."""
    details = error.response.get("Error", {})
    code, message = details.get("Code", "Unknown"), details.get("Message", str(error))
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 400)
    if code in EXPIRED:
        return ExpiredCredentials()
    if code in BUSY or status >= 500:
        return AwsBusy(operation, code, message)
    return (NotFound if code in MISSING else AwsRefused)(operation, code, message)
