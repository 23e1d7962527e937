"""The one base of every error a person is meant to read, and the errors of the contract itself.

Only the `main()` of a command line catches `ProjectError`: it prints the message to stderr and returns `exit_code`.
What the codes mean is in the README. Other rooms keep their own named subclasses in their own `errors.py`.
"""

from collections.abc import Sequence
from pathlib import Path


class ProjectError(Exception):
    """A problem stated in the user's words: where, what, the value got, what is allowed, what to do next."""

    exit_code = 2


class UsageError(ProjectError):
    """A wrong option or a wrong file. Raised with its sentence where it is found; nothing catches it by name."""


class Unavailable(ProjectError):
    """AWS, an endpoint or a toolchain is not there, or refuses."""

    exit_code = 3


class NoVerdict(ProjectError):
    """A run measured something from which nothing may be concluded."""

    exit_code = 4


class Interrupted(ProjectError):
    """Ctrl-C. The message says what was kept and how to go on."""

    exit_code = 130


class UnknownWorkload(ProjectError):
    def __init__(self, name: str, known: Sequence[str]) -> None:
        super().__init__(f"There is no workload '{name}'. Known workloads: {', '.join(known) or 'none'}.")


class UnknownTarget(ProjectError):
    def __init__(self, file: Path, name: str, known: Sequence[str]) -> None:
        super().__init__(f"{file}: there is no target '{name}'. Known targets: {', '.join(known)}.")


class UnknownTraffic(ProjectError):
    def __init__(self, file: Path, name: str, known: Sequence[str]) -> None:
        super().__init__(f"{file}: there is no traffic profile '{name}'. Known profiles: {', '.join(known)}.")


class NoLatencyObjective(ProjectError):
    def __init__(self, workload: str) -> None:
        super().__init__(
            f"workloads/{workload}/workload.toml: objective: is a throughput, because it is a batch. "
            "Load tests, endpoints and their alarms need a latency objective (percentile, model_latency_ms, "
            "peak_invocations_per_minute)."
        )


class InvalidDocument(ProjectError):
    """A file of the contract that cannot be read: one line per problem, each with the file and the key."""

    def __init__(self, file: Path, problems: Sequence[str]) -> None:
        self.file = file
        self.problems = tuple(problems)
        super().__init__("\n".join(f"{file}: {problem}" for problem in problems))


class MissingArtifact(ProjectError):
    def __init__(self, file: Path, workload: str, target: str) -> None:
        super().__init__(
            f"{file} does not exist: build it with `python -m model_build build {workload} --target {target}`."
        )


class TamperedArchive(ProjectError):
    def __init__(self, file: Path, expected: str, actual: str, workload: str, target: str) -> None:
        super().__init__(
            f"{file}: its sha256 is {actual}, but artifact.json says {expected}. "
            f"Build it again with `python -m model_build build {workload} --target {target}`."
        )
