"""What the stack of a workload is made from, whatever hosts it."""

from dataclasses import dataclass
from pathlib import Path

from aws_cdk import Environment, Stack, Token
from aws_cdk.region_info import Fact

from stacks.context import Options
from stacks.errors import UnknownRegion
from workloads import ModelArtifact, Recommendation, WorkloadFolder


@dataclass(frozen=True, kw_only=True, slots=True)
class BuiltArtifact:
    artifact: ModelArtifact
    archive_file: Path


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkloadStackProps:
    """A workload that is built. `environment` None fits every account and region."""

    folder: WorkloadFolder
    artifact: ModelArtifact
    archive_file: Path
    recommendation: Recommendation | None
    options: Options
    environment: Environment | None = None


def region_of(stack: Stack) -> str | None:
    """None for a stack that fits every region. Raises `UnknownRegion`."""
    if Token.is_unresolved(stack.region):
        return None
    if stack.region not in (known := Fact.regions):
        raise UnknownRegion(stack.region, known)
    return stack.region
