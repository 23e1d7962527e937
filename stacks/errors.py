"""Why a workload is refused at synth. Each names file and key, what is allowed, and what to do next."""

from collections.abc import Sequence
from pathlib import Path

from workloads import ProjectError


class UnpublishedTriton(ProjectError):
    def __init__(self, file: Path, version: str, published: Sequence[str]) -> None:
        super().__init__(
            f"{file}: hosting.triton_version: got '{version}', which SageMaker does not publish. "
            f"Published: {', '.join(published)}. "
            "Choose one of them, or set hosting.image_uri to your own image."
        )


class TritonNotInRegion(ProjectError):
    def __init__(self, file: Path, version: str, region: str, published: Sequence[str]) -> None:
        super().__init__(
            f"{file}: hosting.triton_version: SageMaker does not publish Triton {version} in {region}, only "
            f"in {', '.join(published)}. Deploy to one of these regions, choose another version, or set "
            "hosting.image_uri to your own image."
        )


class NotAnEcrImage(ProjectError):
    def __init__(self, file: Path, image_uri: str) -> None:
        super().__init__(
            f"{file}: hosting.image_uri: got '{image_uri}', but SageMaker pulls from private Amazon ECR "
            "only: <account>.dkr.ecr.<region>.amazonaws.com/<repository>:<tag> (or @sha256:<digest>). "
            "Push the image there first."
        )


class UnknownHostAmi(ProjectError):
    """A host whose driver is not known to start the image: the wrong pair hangs without a log line."""

    def __init__(
        self, file: Path, version: str, instance_type: str, versions: Sequence[str], families: Sequence[str]
    ) -> None:
        super().__init__(
            f"{file}: hosting: no host AMI is known to start Triton {version} on {instance_type}. "
            f"Known: Triton {', '.join(versions)} on {', '.join(families)}. "
            "Choose such a pair, or a CPU instance type."
        )


class NoRecommendedCandidate(ProjectError):
    def __init__(self, file: Path) -> None:
        super().__init__(
            f"{file}: recommended is null: no candidate met the objective, so there is nothing to deploy. "
            "Change its target, the target's instance_types or the objective and run the recommender again, "
            "or delete the file to deploy one instance without autoscaling."
        )


class IncompleteRecommendation(ProjectError):
    def __init__(self, file: Path, missing: Sequence[str], workload: str) -> None:
        super().__init__(
            f"{file}: {' and '.join(missing)}: null, but the fleet is sized by nothing else. "
            f"Run `python -m inference_recommender run {workload} --job advanced` again."
        )


class NoStack(ProjectError):
    def __init__(self, file: Path, kind: str, stack: str) -> None:
        super().__init__(f"{file}: hosting.kind: '{kind}' has no stack yet, so there is no {stack}.")


class NothingBuilt(ProjectError):
    def __init__(self, reasons: Sequence[ProjectError]) -> None:
        super().__init__("\n".join(["There is nothing to deploy:", *map(str, reasons)]))


class UnknownOption(ProjectError):
    def __init__(self, key: str, value: object, allowed: Sequence[str]) -> None:
        super().__init__(f"-c {key}: got '{value}'. Allowed: {', '.join(allowed)}.")


class RehearsalInProduction(ProjectError):
    def __init__(self, key: str, value: object) -> None:
        super().__init__(
            f"-c {key}={value}: is for rehearsing and measuring, and -c stage=production is neither. "
            "Leave one of the two out."
        )
