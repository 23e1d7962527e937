"""What to warn about at synth, where a refusal would say too much."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from stacks.fitness import Wanted
from workloads import (
    LatencyObjective,
    ModelArtifact,
    Recommendation,
    SageMakerEndpointHosting,
    WorkloadFolder,
    instances,
)
from workloads.instances import family, hardware

NEURON = ("neuron", "neuronx")


@dataclass(frozen=True, kw_only=True, slots=True)
class Caution:
    """A warning at synth; `id` is what a user acknowledges it by."""

    id: str
    text: str


def image_cautions(file: Path, hosting: SageMakerEndpointHosting, artifact: ModelArtifact) -> Iterator[Caution]:
    if artifact.runtime in NEURON or hosting.image_uri is not None:
        return
    lacks = "neither onnxruntime nor tokenizers" if artifact.runtime == "onnxruntime" else "no tokenizers"
    text = (
        f"{file}: hosting.image_uri is not set, and SageMaker's stock Triton image has {lacks}, which this "
        "model needs. For an AWS account build containers/triton/Dockerfile, push it to Amazon ECR and set "
        "hosting.image_uri. local_aws needs no image."
    )
    yield Caution(id="image:stock", text=text)


def inf1_cautions(file: Path, instance_type: str) -> Iterator[Caution]:
    if hardware(instance_type) == "Inferentia 1":
        text = (
            f"{file}: hosting: SageMaker excludes endpoints on Inf1 ({instance_type}) from deployment guardrails and "
            "shadow tests: an update moves all traffic at once, and no alarm rolls it back. With hosting.kind = "
            '"ecs-service" the same build is rolled back by itself; workloads/query_intent shows how.'
        )
        yield Caution(id="guardrails:inf1", text=text)


def zone_cautions(wanted: Wanted, region: str) -> Iterator[Caution]:
    """Two instances are spread over zones only where two have the type."""
    offered = (instances.zones(family(wanted.instance_type)) or {}).get(region)
    if offered is not None and len(offered) < 2:
        text = (
            f"{wanted.file}: {wanted.key}: only zone {offered[0]} of {region} has {wanted.instance_type}, so the fleet "
            "cannot outlive it. Deploy to another region, or accept it."
        )
        yield Caution(id="zones:one", text=text)


def size_caution(instance_type: str) -> Caution:
    text = (
        "-c autoscaling=off: the fleet keeps its present size, whatever the load. "
        f"Deploy without it as soon as the endpoint is on {instance_type}."
    )
    return Caution(id="autoscaling:off", text=text)


def local_caution(file: Path, recommendation: Recommendation, measure: str) -> Iterator[Caution]:
    if recommendation.provenance.measured_on == "local":
        text = (
            f"{file}: was measured locally, on {recommendation.provenance.machine}. "
            f"Production wants one measured on SageMaker: run `{measure}` against an AWS account."
        )
        yield Caution(id="recommendation:local", text=text)


def objective_caution(
    file: Path, recommendation: Recommendation, folder: WorkloadFolder, measure: str
) -> Iterator[Caution]:
    measured, wanted = recommendation.objective, folder.workload.objective
    if isinstance(wanted, LatencyObjective) and _told(measured) != _told(wanted):
        text = (
            f"{file}: objective: was sized for {_told(measured)}, and {folder.file} now says {_told(wanted)}. "
            f"Measure again with `{measure}`."
        )
        yield Caution(id="recommendation:objective", text=text)


def _told(objective: LatencyObjective) -> str:
    """What decides a fleet's size."""
    peak = objective.peak_invocations_per_minute
    return f"{objective.percentile} ≤ {objective.model_latency_ms:g} ms at {peak:,} invocations/min"
