"""What the stack of a workload is made from, whatever hosts it."""

from dataclasses import dataclass
from pathlib import Path

from aws_cdk import Environment

from stacks.options import Options
from workloads import ModelArtifact, Recommendation, WorkloadFolder


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkloadStackProps:
    """A workload that is built. `environment` None fits every account and region."""

    folder: WorkloadFolder
    artifact: ModelArtifact
    archive_file: Path
    recommendation: Recommendation | None
    options: Options
    environment: Environment | None = None
