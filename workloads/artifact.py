"""`artifact.json`: a build's archive, the toolchain that made it, and how close it is to the original model."""

import hashlib
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from workloads.document import Document
from workloads.errors import MissingArtifact, UsageError

Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class GuidedReport(Document):
    """Guided decoding against greedy decoding with the compiled model, one row at a time."""

    tokens_per_pass: float = Field(description="Output tokens for each pass of the decoder. Greedy decoding has 1.")
    differing_answers: int


class ParityReport(Document):
    """The compiled model against the original, as transformers runs it, on the same examples."""

    examples: int
    identical_answers: int
    max_logit_difference: float
    mean_logit_difference: float
    original: dict[str, float] = Field(description="The task's metrics on evaluation.jsonl.")
    compiled: dict[str, float]
    intervals: dict[str, tuple[float, float]] = Field(
        default={}, description="Of few examples, how the original's metrics may be on other rows like them: 95 %."
    )
    guided: GuidedReport | None = Field(default=None, description="None: drafts are off (model.generation.guided).")


class RunnerUp(Document):
    """The other CPU runtime, on the machine that built the archive."""

    runtime: Literal["onnxruntime", "openvino"]
    precision: str
    times_as_long: float = Field(description="Its CPU time for a row over that of the archive's model.")
    cpu: str


class ModelArtifact(Document):
    workload: str
    variant: str = Field(description="The built variant, or the target if it has no variant.")
    target: str
    runtime: Literal["onnxruntime", "openvino", "torchscript", "cuda", "tensorrt", "neuron", "neuronx"]
    precision: str
    archive: str = Field(description="File name of the archive, beside this file.")
    archive_sha256: Sha256
    archive_bytes: int
    default_model: str = Field(description="The Triton model that /invocations answers with.")
    environment: dict[str, str] = Field(description="What the container's environment must say for this archive.")
    checkpoint_sha256: Sha256
    toolchain: dict[str, str] = Field(description="Versions of what the build was made with.")
    instruction_sets: tuple[str, ...] = Field(
        default=(), description="The CPU flags in /proc/cpuinfo of which the model needs one. Empty: it needs none."
    )
    runner_up: RunnerUp | None = Field(default=None, description="None: built without --compare-runtimes.")
    parity: ParityReport | None = Field(description="None: the compiling machine cannot run the model.")


def artifact_file(root: Path, workload: str, variant: str) -> Path:
    """Returns where a build leaves its artifact below the repository's root."""
    return root / "build" / workload / variant / "artifact.json"


def load_artifact(root: Path, workload: str, variant: str, published: str | None = None) -> ModelArtifact:
    """Reads the artifact of a finished build and checks its archive against the hash. `published` names the experiment
    of a root that is one's (`WorkloadFolder.builds`).

    Raises `MissingArtifact`, `InvalidDocument`, or `UsageError` where the archive is not the one that was built.
    """
    file = artifact_file(root, workload, variant)
    if not file.exists():
        raise MissingArtifact(file, workload, variant, published)
    artifact = ModelArtifact.from_json(file)
    archive = file.with_name(artifact.archive)
    actual = file_sha256(archive) if archive.exists() else "missing"
    if actual != artifact.archive_sha256:
        raise UsageError(
            f"{archive}: its sha256 is {actual}, but artifact.json says {artifact.archive_sha256}. "
            f"Build it again with `python -m model_build build {workload} --target {variant}`."
        )
    return artifact


def file_sha256(file: Path) -> str:
    digest = hashlib.sha256()
    with file.open("rb") as stream:
        while block := stream.read(2**20):
            digest.update(block)
    return digest.hexdigest()
