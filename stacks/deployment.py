"""What to deploy: instance type, count and scaling, copied from the recommendation, and what to warn about.

Pure: knows the contract only, neither AWS nor CDK. It decides between numbers; it computes none.
"""

from dataclasses import dataclass
from pathlib import Path

from stacks.errors import IncompleteRecommendation, NoRecommendedCandidate
from workloads import Autoscaling, Candidate, ModelArtifact, Recommendation, SageMakerEndpointHosting, WorkloadFolder


@dataclass(frozen=True, kw_only=True, slots=True)
class Caution:
    """A warning at synth; `id` is what a user acknowledges it by."""

    id: str
    text: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Deployment:
    instance_type: str
    instance_count: int
    environment: dict[str, str]
    autoscaling: Autoscaling | None
    cautions: tuple[Caution, ...]


def plan_deployment(
    folder: WorkloadFolder,
    hosting: SageMakerEndpointHosting,
    artifact: ModelArtifact,
    recommendation: Recommendation | None,
) -> Deployment:
    """Raises `NoRecommendedCandidate` or `IncompleteRecommendation`."""
    image = _image_cautions(folder, artifact, hosting.image_uri)
    if recommendation is None:
        return _single_instance(folder, image)
    chosen, count, autoscaling = _recommended(folder, recommendation)
    return Deployment(
        instance_type=chosen.instance_type,
        instance_count=count,
        environment=chosen.environment,
        autoscaling=autoscaling,
        cautions=(*image, *_recommendation_cautions(folder, artifact, recommendation)),
    )


def _single_instance(folder: WorkloadFolder, image: tuple[Caution, ...]) -> Deployment:
    instance_type = folder.workload.instance_types[0]
    caution = Caution(
        id="recommendation:missing",
        text=f"{folder.recommendation_file} does not exist: one {instance_type} is deployed, without "
        f"autoscaling. Measure with `{_measure(folder)}`, review the file and deploy again.",
    )
    return Deployment(
        instance_type=instance_type,
        instance_count=1,
        environment={},
        autoscaling=None,
        cautions=(*image, caution),
    )


def _recommended(folder: WorkloadFolder, recommendation: Recommendation) -> tuple[Candidate, int, Autoscaling]:
    file: Path = folder.recommendation_file
    chosen = recommendation.recommended
    if chosen is None:
        raise NoRecommendedCandidate(file)
    if chosen.instance_count is None or chosen.autoscaling is None:
        missing = [f"recommended.{key}" for key in ("instance_count", "autoscaling") if getattr(chosen, key) is None]
        raise IncompleteRecommendation(file, missing, folder.workload.name)
    return chosen, chosen.instance_count, chosen.autoscaling


def _image_cautions(folder: WorkloadFolder, artifact: ModelArtifact, own_image: str | None) -> tuple[Caution, ...]:
    if artifact.runtime != "onnxruntime" or own_image is not None:
        return ()
    text = (
        f"{folder.file}: hosting.image_uri is not set, and SageMaker's stock Triton image has neither "
        "onnxruntime nor tokenizers, which this model needs. For an AWS account build "
        "containers/triton/Dockerfile, push it to Amazon ECR and set hosting.image_uri. local_aws needs no image."
    )
    return (Caution(id="image:stock", text=text),)


def _recommendation_cautions(
    folder: WorkloadFolder, artifact: ModelArtifact, recommendation: Recommendation
) -> list[Caution]:
    cautions = []
    if recommendation.archive_sha256 != artifact.archive_sha256:
        text = (
            f"{folder.recommendation_file}: was measured on another artifact (archive_sha256 "
            f"{recommendation.archive_sha256[:12]}…, this one is {artifact.archive_sha256[:12]}…). "
            f"Measure this one with `{_measure(folder)}`."
        )
        cautions.append(Caution(id="recommendation:artifact", text=text))
    if recommendation.provenance.measured_on == "local":
        text = (
            f"{folder.recommendation_file}: was measured locally, on {recommendation.provenance.machine}. "
            f"Production wants one measured on SageMaker: run `{_measure(folder)}` against an AWS account."
        )
        cautions.append(Caution(id="recommendation:local", text=text))
    return cautions


def _measure(folder: WorkloadFolder) -> str:
    return f"python -m inference_recommender run {folder.workload.name} --job advanced"
