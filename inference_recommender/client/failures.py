"""How a request to an endpoint fails, and which failures are worth another attempt.

Inference changes nothing, so any request may be repeated; what decides is whether a repetition can succeed, and whether
it would add to the load of a server that is still at work.
"""

import re
from datetime import UTC
from email.utils import parsedate_to_datetime

from workloads import ProjectError

RETRYABLE_STATUSES = frozenset({408, 425, 429, 500, 502, 503, 504, 530})
"""HTTP statuses of a server that throttles, restarts or failed on its side; another attempt may succeed. 530 is
SageMaker's InternalDependencyException."""


class InferenceFailed(ProjectError):
    """Base of every failed request."""

    exit_code = 3
    may_retry = False
    """Whether it is safe and useful to send the request again."""
    retry_after_s: float | None = None
    """How long the server asked to be left alone, in seconds; None where it did not."""


class Refused(InferenceFailed):
    """The server answered with an error."""

    def __init__(self, where: str, status: int, message: str, retry_after_s: float | None = None) -> None:
        self.status = status
        self.may_retry = status in RETRYABLE_STATUSES
        self.retry_after_s = retry_after_s
        super().__init__(f"{where} answered {status}: {message[:500]}")


class Unreachable(InferenceFailed):
    """There was no connection, or it broke before an answer. `may_retry` is False where the next attempt would meet the
    same: an untrusted certificate, a name that does not exist.
    """

    def __init__(self, where: str, why: object, may_retry: bool = True) -> None:
        self.may_retry = may_retry
        super().__init__(f"{where} cannot be reached: {why}")


class TimedOut(InferenceFailed):
    """The server may still be at work on the request; a repetition would add to its load."""

    def __init__(self, where: str, timeout_s: float) -> None:
        super().__init__(f"{where} gave no answer within {timeout_s:.3g} s.")


class NotAnAnswer(InferenceFailed):
    """The server's answer is not a KServe v2 response, or is larger than the client takes."""

    def __init__(self, why: str) -> None:
        super().__init__(f"The answer is no KServe v2 response: {why}.")


def retry_after_s(value: str | None, now_s: float) -> float | None:
    """Returns the seconds of a Retry-After header (RFC 9110, 10.2.3: seconds, or an HTTP date), or None where there is
    none that can be read. `now_s` is in seconds since 1970.
    """
    text = (value or "").strip()
    if re.fullmatch(r"[0-9]{1,9}", text):
        return float(text)
    try:
        at = parsedate_to_datetime(text)
        return max(0.0, (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() - now_s)
    except (ArithmeticError, LookupError, TypeError, ValueError):
        return None
