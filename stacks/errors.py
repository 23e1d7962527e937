"""Why a workload is refused at synth. Each names file and key, what is allowed, and what to do next."""

from collections.abc import Sequence
from pathlib import Path

from workloads import ModelArtifact, ProjectError


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


class NothingBuilt(ProjectError):
    def __init__(self, reasons: Sequence[ProjectError]) -> None:
        super().__init__("\n".join(["There is nothing to deploy:", *map(str, reasons)]))


class WrongHardware(ProjectError):
    def __init__(self, file: Path, key: str, instance_type: str, artifact: ModelArtifact, needed: str) -> None:
        super().__init__(
            f"{file}: {key}: got '{instance_type}', but {artifact.variant} of {artifact.workload} was built with "
            f"{artifact.runtime} for {needed or 'no GPU that its artifact.json names'} and runs on nothing else. "
            "Choose such an instance type, or a hosting.target that was built for this one."
        )


class UnknownRegion(ProjectError):
    def __init__(self, region: str, known: Sequence[str]) -> None:
        super().__init__(
            f"There is no region '{region}'. Known: {', '.join(known)}. Set AWS_REGION, or the profile's region."
        )


class NotInRegion(ProjectError):
    def __init__(self, file: Path, key: str, instance_type: str, region: str, offered: Sequence[str]) -> None:
        super().__init__(
            f"{file}: {key}: got '{instance_type}', which AWS does not have in {region}, only in "
            f"{', '.join(offered)}. Deploy to one of these, or choose another instance type."
        )


class NotInZone(ProjectError):
    def __init__(self, file: Path, zone: str, instance_type: str, offered: Sequence[str]) -> None:
        super().__init__(
            f"{file}: hosting.network.zone_ids: got '{zone}', which has no {instance_type}. "
            f"Zones of this region that have it: {', '.join(offered)}."
        )


class OtherArtifact(ProjectError):
    def __init__(self, file: Path, measured: str, artifact: ModelArtifact, stack: str, measure: str) -> None:
        super().__init__(
            f"{file}: archive_sha256: was measured on the artifact {measured[:12]}…, but the one to deploy is "
            f"{artifact.archive_sha256[:12]}… ({artifact.variant}). Deploy it on one instance with "
            f"`cdk deploy {stack} -c recommendation=ignore`, measure it with `{measure}`, review the file and deploy "
            "again."
        )


class OtherVariant(ProjectError):
    def __init__(self, file: Path, workload_file: Path, recommended: str, hosted: str) -> None:
        super().__init__(
            f"{file}: recommended.variant: is '{recommended}', but {workload_file} hosts '{hosted}'. "
            f"Set hosting.target = \"{recommended}\", or measure '{hosted}'."
        )


class NoRecommendation(ProjectError):
    def __init__(self, file: Path, measure: str) -> None:
        super().__init__(
            f"{file}: does not exist, and production is sized by nothing else. Deploy without -c stage=production, "
            f"measure on SageMaker with `{measure}` and review the file."
        )


class LocalRecommendation(ProjectError):
    def __init__(self, file: Path, machine: str, measure: str) -> None:
        super().__init__(
            f"{file}: provenance.measured_on: is 'local' ({machine}), and production wants 'sagemaker'. "
            f"Run `{measure}` against an AWS account."
        )


class MinimumOutOfRange(ProjectError):
    def __init__(self, file: Path, number: int, got: int, low: int, high: int) -> None:
        super().__init__(
            f"{file}: hosting.scaling.scheduled_minimums.{number}.min_capacity: got {got}. The fleet has between "
            f"{low} and {high} instances; choose one of these, or measure for a larger peak."
        )


class ShadowOnInf1(ProjectError):
    def __init__(self, file: Path, instance_type: str) -> None:
        super().__init__(
            f"{file}: hosting.shadow: SageMaker runs no shadow tests with Inf1 (got {instance_type}). "
            "Leave hosting.shadow out, or host a target for Inf2."
        )


class SeveralProblems(ProjectError):
    def __init__(self, problems: Sequence[ProjectError]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(map(str, problems)))


def waits(error: ProjectError) -> bool:
    """It is mended by a recommendation that is measured on the artifact, and by nothing else."""
    problems = error.problems if isinstance(error, SeveralProblems) else (error,)
    return all(isinstance(each, NoRecommendation | OtherArtifact | LocalRecommendation) for each in problems)
