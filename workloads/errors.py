"""The base of every error that a user is meant to read, its kinds by exit code, and the errors of the contract.

Only the `main()` of a command line catches `ProjectError`: it prints the message to stderr and returns `exit_code`.
A subclass exists where a caller catches it by name or where the exit code differs; any other problem is raised as one
of these with its sentence, where it is found.
"""

from collections.abc import Sequence
from pathlib import Path


class ProjectError(Exception):
    """A problem that the user can fix. The message has place, value, allowed values and next step."""

    exit_code = 2


class UsageError(ProjectError):
    """A wrong option or a wrong file."""


class Unavailable(ProjectError):
    """AWS, an endpoint or a toolchain is not there, or refuses."""

    exit_code = 3


class NoVerdict(ProjectError):
    """A run measured something from which nothing may be concluded."""

    exit_code = 4


class Interrupted(ProjectError):
    """Ctrl-C ended the run. The message names the stored results and the command that continues."""

    exit_code = 130


class InvalidDocument(ProjectError):
    """A file of the contract that cannot be read: one line per problem, each with the file and the key."""

    def __init__(self, file: Path, problems: Sequence[str]) -> None:
        self.file = file
        self.problems = tuple(problems)
        super().__init__("\n".join(f"{file}: {problem}" for problem in problems))


class MissingArtifact(ProjectError):
    """A workload's target or variant has not been built."""

    def __init__(self, file: Path, workload: str, target: str, published: str | None = None) -> None:
        of = f" --published {published}" if published else ""
        super().__init__(
            f"{file} does not exist: build it with `python -m model_build build {workload} --target {target}{of}`."
        )
