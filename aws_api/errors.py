"""boto3's exceptions as errors that a user can act on: one sentence each, exit code 3. It knows no service."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from ipaddress import ip_address
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from workloads import Unavailable

if TYPE_CHECKING:
    from botocore.exceptions import ClientError

BUSY = re.compile(
    "Throttl|RequestLimitExceeded|TooManyRequests|SlowDown|PriorRequestNotComplete|^LimitExceededException$"
)
"""Error codes of a call that may succeed later. Every status above 500 may, too, but 501 is "not implemented"."""
EXPIRED = frozenset({"ExpiredToken", "ExpiredTokenException", "RequestExpired"})
MISSING = frozenset({"ResourceNotFound", "ResourceNotFoundException"})
ABSENT = "Could not find"
"""SageMaker's message for a name that is not there begins so, with the code of every wrong request."""

NO_CREDENTIALS = (
    "No AWS credentials were found. Configure them with `aws configure`, or start an account on this machine with "
    "`python -m local_aws` and export what it prints."
)
NO_REGION = "No AWS region is set. Export AWS_DEFAULT_REGION, or set one with `aws configure`."


class AwsUnavailable(Unavailable):
    """AWS is not there or refuses. Raised itself where credentials or a region are missing."""


class ExpiredCredentials(AwsUnavailable):
    """Only the user can renew them, so no call is tried again for it."""

    def __init__(self) -> None:
        super().__init__("The AWS credentials have expired: renew them (`aws sso login`, or as you got them).")


class AwsUnreachable(AwsUnavailable):
    """No answer came: a connection failed, broke or timed out."""

    def __init__(self, why: str) -> None:
        super().__init__(
            f"AWS cannot be reached: {why}. If AWS_ENDPOINT_URL points at an account on this machine, start it "
            "with `python -m local_aws`."
        )


class LocalAccountEnded(AwsUnavailable):
    """Nothing listens at a loopback endpoint. No call is tried again: a new account has another port and key."""

    def __init__(self, endpoint_url: str) -> None:
        super().__init__(
            f"The local account at {endpoint_url.rstrip('/')} is not running. Its exports file (.local_aws/exports, or "
            "the one in --state DIR) no longer holds. Start an account with `python -m local_aws` and source the file "
            "again. The new account is empty: bootstrap and deploy again. For AWS itself, unset AWS_ENDPOINT_URL."
        )


class AwsRefused(AwsUnavailable):
    """The answer is an error. `code` is the service's own."""

    def __init__(self, operation: str, code: str, message: str) -> None:
        self.code = code
        self.reason = message
        super().__init__(f"AWS refused {operation}: {code}: {message}")


class AwsBusy(AwsRefused):
    """Refused for now: throttled, or a fault of the service's own. The same call may succeed later."""


class NotFound(AwsRefused):
    """There is no such thing in this account and region."""


@contextmanager
def translate_aws_errors(operation: str) -> Iterator[None]:
    """Raises every error of boto3 within as an `AwsUnavailable`; `operation` is the API's name of the call."""
    from botocore import exceptions as raised  # who only catches `AwsUnavailable` needs no botocore

    try:
        yield
    except raised.ClientError as error:
        raise refusal(operation, error) from error
    except (
        raised.CredentialRetrievalError,
        raised.SSOTokenLoadError,
        raised.TokenRetrievalError,
        raised.UnauthorizedSSOTokenError,
    ) as error:
        raise ExpiredCredentials() from error
    except (raised.NoCredentialsError, raised.PartialCredentialsError) as error:
        raise AwsUnavailable(NO_CREDENTIALS) from error
    except raised.NoRegionError as error:
        raise AwsUnavailable(NO_REGION) from error
    except raised.BotoCoreError as error:
        raise unreachable(error) from error


def unreachable(error: Exception) -> AwsUnreachable | LocalAccountEnded:
    from botocore.exceptions import EndpointConnectionError

    if isinstance(error, EndpointConnectionError):
        endpoint_url = str(error.kwargs.get("endpoint_url", ""))
        if is_this_machine(urlsplit(endpoint_url).hostname or ""):
            return LocalAccountEnded(endpoint_url)
    return AwsUnreachable(str(error).rstrip("."))


def is_this_machine(host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def refusal(operation: str, error: "ClientError") -> AwsRefused | ExpiredCredentials:
    """Returns what an error response means: busy for now, no such thing, expired credentials, or a refusal."""
    details = error.response.get("Error", {})
    code, message = details.get("Code", "Unknown"), details.get("Message", str(error))
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 400)
    if code in EXPIRED:
        return ExpiredCredentials()
    if BUSY.search(code) or (status >= 500 and status != 501):
        return AwsBusy(operation, code, message)
    missing = code in MISSING or (code == "ValidationException" and message.startswith(ABSENT))
    return (NotFound if missing else AwsRefused)(operation, code, message)
