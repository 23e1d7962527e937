"""Why a workload on EC2 instances is refused at synth. Each names file and key, what is allowed, what to do next."""

from collections.abc import Sequence
from pathlib import Path

from workloads import ProjectError


class UnknownMachine(ProjectError):
    def __init__(self, file: Path, instance_type: str, families: Sequence[str]) -> None:
        super().__init__(
            f"{file}: {instance_type}: how many vCPUs and chips it has is not known here. Known are the sizes of "
            f"{', '.join(families)}, written as EC2 does (inf1.6xlarge). Choose one of them."
        )
