"""How a request to an endpoint fails, and which failures are retried.

Inference changes no state, so every request may be repeated. A retry has to be able to succeed, and must not add to the
load of a server that is still working on the request.
"""

import re
from datetime import UTC
from email.utils import parsedate_to_datetime

from workloads import ProjectError

RETRYABLE_STATUSES = frozenset({408, 425, 429, 500, 502, 503, 504, 530})
"""HTTP statuses that are retried: throttling, restarts and errors of the server. 530 is SageMaker's
InternalDependencyException."""


class InferenceFailed(ProjectError):
    """Base of every failed request."""

    exit_code = 3
    may_retry = False
    """Whether it is safe and useful to send the request again."""
    retry_after_s: float | None = None


class Refused(InferenceFailed):
    """The server answered with an error."""

    def __init__(self, where: str, status: int, message: str, retry_after_s: float | None = None) -> None:
        self.status = status
        self.may_retry = status in RETRYABLE_STATUSES
        self.retry_after_s = retry_after_s
        super().__init__(f"{where} answered {status}: {message[:500]}")


class Unreachable(InferenceFailed):
    """No connection, or the connection broke before the answer. An untrusted certificate or an unknown host name is not
    retried.
    """

    def __init__(self, where: str, why: object, may_retry: bool = True) -> None:
        self.may_retry = may_retry
        super().__init__(f"{where} cannot be reached: {why}")


class TimedOut(InferenceFailed):
    """No answer in time. Not retried, because the server may still work on the request."""

    def __init__(self, where: str, timeout_s: float) -> None:
        super().__init__(f"{where} gave no answer within {timeout_s:.3g} s.")


class NotAnAnswer(InferenceFailed):
    """The answer is not a KServe v2 response, or is larger than `max_answer_bytes`."""

    def __init__(self, why: str) -> None:
        super().__init__(f"The answer is not a KServe v2 response: {why}.")


def retry_after_s(value: str | None, now_s: float) -> float | None:
    """Returns the seconds of a Retry-After header (RFC 9110, 10.2.3: seconds or an HTTP date), or None if it cannot be
    read. `now_s` is in seconds since 1970.
    """
    text = (value or "").strip()
    if re.fullmatch(r"[0-9]{1,9}", text):
        return float(text)
    try:
        at = parsedate_to_datetime(text)
        return max(0.0, (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() - now_s)
    except (ArithmeticError, LookupError, TypeError, ValueError):
        return None
