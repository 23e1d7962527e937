"""What boto3 raises, turned into this package's errors. It knows botocore, and no service."""

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

from inference_recommender.errors import (
    AwsBusy,
    AwsRefused,
    AwsUnreachable,
    ExpiredCredentials,
    NoCredentials,
    NoRegion,
    NotFound,
)

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


@contextmanager
def speaking_plainly(operation: str) -> Iterator[None]:
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
