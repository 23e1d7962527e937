"""The contract: typed workload, artifact and recommendation. Imports no other package of the project."""

from typing import TYPE_CHECKING

from workloads.errors import Interrupted, MissingArtifact, NoVerdict, ProjectError, Unavailable, UsageError

if TYPE_CHECKING:
    from workloads.contract import *  # noqa: F403


def __getattr__(name: str) -> object:
    """Imports the other names when one is first used: pydantic takes long, and the client needs only the errors."""
    import workloads.contract

    return getattr(workloads.contract, name)
