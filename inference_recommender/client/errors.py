"""How a request to a model can fail, and after which failures it may be sent again."""

from workloads import ProjectError

BUSY_OR_BROKEN = frozenset({429, 500, 502, 503, 504})
"""Statuses of a server that throttles, restarts or failed on its side; another try may succeed."""


class CannotEncode(ProjectError):
    """An input that has no KServe v2 datatype, or none in JSON."""

    def __init__(self, name: str, what: str) -> None:
        super().__init__(f"Input {name}: {what}.")


class InferenceFailed(ProjectError):
    exit_code = 3
    may_retry = False
    """Whether it is safe and of use to send the request again."""


class Refused(InferenceFailed):
    """The server answered with an error."""

    def __init__(self, where: str, status: int, message: str) -> None:
        self.status = status
        self.may_retry = status in BUSY_OR_BROKEN
        super().__init__(f"{where} answered {status}: {message[:500]}")


class Unreachable(InferenceFailed):
    """No connection, or it broke before an answer: inference changes nothing, so that it may be asked again."""

    may_retry = True

    def __init__(self, where: str, why: object) -> None:
        super().__init__(f"{where} cannot be reached: {why}")


class TimedOut(InferenceFailed):
    """The server may still be at work on it; asking again would add to its load."""

    def __init__(self, where: str, timeout_s: float) -> None:
        super().__init__(f"{where} gave no answer within {timeout_s:g} s.")


class NotAnAnswer(InferenceFailed):
    def __init__(self, why: str) -> None:
        super().__init__(f"The answer is no KServe v2 response: {why}.")
