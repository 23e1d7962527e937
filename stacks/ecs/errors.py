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


class ImageOutOfReach(ProjectError):
    def __init__(self, file: Path, image_uri: str) -> None:
        super().__init__(
            f"{file}: hosting.image_uri: got '{image_uri}', but the instances reach private Amazon ECR only: "
            "<account>.dkr.ecr.<region>.amazonaws.com/<repository>:<tag> (or @sha256:<digest>). "
            "Push the image there first."
        )


class NoThroughputObjective(ProjectError):
    def __init__(self, file: Path) -> None:
        super().__init__(
            f"{file}: objective: is a latency, but a scheduled batch is held to its throughput. "
            "Set objective.rows_per_second and nothing else, or choose another hosting.kind."
        )


class UnknownProcessingType(ProjectError):
    def __init__(self, file: Path, instance_type: str) -> None:
        super().__init__(
            f"{file}: {instance_type}: SageMaker has no processing jobs on it. Write it as EC2 does, without ml., to "
            "run the batch on ECS, or choose another."
        )
