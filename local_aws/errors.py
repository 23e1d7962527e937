"""What can go wrong with the local account, in the user's words. Exit codes are the README's."""

from collections.abc import Sequence
from pathlib import Path

from workloads import ProjectError


class LocalAccountError(ProjectError):
    """Anything the machine under the local account lacks or refuses."""

    exit_code = 3


class PortTaken(LocalAccountError):
    def __init__(self, port: int) -> None:
        super().__init__(
            f"Port {port} of localhost is taken by another process. Stop that process, or choose another port with "
            f"`python -m local_aws --port N` (0 picks a free one)."
        )


class AccountDidNotStart(LocalAccountError):
    def __init__(self, reason: str, log_tail: str) -> None:
        super().__init__(f"The local account did not start: {reason}.{_quoted(log_tail)}")


class ToolchainMissing(LocalAccountError):
    """There is no Triton server that this machine could run."""

    def __init__(self, reason: str) -> None:
        super().__init__(
            f"There is no Triton server to answer for an endpoint: {reason}. "
            f"On Linux x86-64, `make triton` installs one; elsewhere, use a running endpoint of a real AWS account "
            f"(unset AWS_ENDPOINT_URL)."
        )


class RolledBack(LocalAccountError):
    """An update that its own alarms stopped."""

    def __init__(self, endpoint: str, alarms: Sequence[str]) -> None:
        super().__init__(
            f"The update of endpoint {endpoint} was rolled back: of its AutoRollbackConfiguration, {', '.join(alarms)} "
            f"{'is' if len(alarms) == 1 else 'are'} in ALARM."
        )


class TritonFailed(LocalAccountError):
    """Triton did not come up with its model."""


class ModelDidNotLoad(TritonFailed):
    def __init__(self, model: str, exit_status: int, log_file: Path, log_tail: str) -> None:
        super().__init__(
            f"Triton could not load the model '{model}' and ended with exit status {exit_status}. "
            f"Its whole log is {log_file}.{_quoted(log_tail)}"
        )


class TritonStartTimeout(TritonFailed):
    def __init__(self, model: str, seconds: float, log_file: Path, log_tail: str) -> None:
        super().__init__(
            f"Triton was not ready with the model '{model}' after {seconds:g} s and was stopped. "
            f"Its whole log is {log_file}.{_quoted(log_tail)}"
        )


class InvalidModelRepository(TritonFailed):
    """The unpacked archive is no model repository, or leaves open which model answers."""


class InvalidModelArchive(TritonFailed):
    """The archive cannot be fetched or unpacked."""


class UnsupportedModel(TritonFailed):
    """A model or a variant that this account cannot serve, in one sentence."""


def _quoted(log_tail: str) -> str:
    return f" Its last lines:\n{log_tail}" if log_tail else ""
