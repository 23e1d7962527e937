"""`artifact.json`: what a build made, where it lies, what it was made with, and how close it is to the original."""

import hashlib
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from workloads.document import Document
from workloads.errors import MissingArtifact, TamperedArchive

Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class TaskMetrics(Document):
    """Figures on evaluation.jsonl, each a share of 0 to 1."""

    exact_match: float
    left_alone: float


class ParityReport(Document):
    """The compiled model against Hugging Face `generate` on the same examples."""

    examples: int
    identical_sequences: int
    max_logit_difference: float
    mean_logit_difference: float
    original: TaskMetrics
    compiled: TaskMetrics


class ModelArtifact(Document):
    workload: str
    target: str
    runtime: Literal["onnxruntime"]
    precision: str
    archive: str = Field(description="File name of the archive, beside this file.")
    archive_sha256: Sha256
    archive_bytes: int
    default_model: str = Field(description="The Triton model that /invocations answers with.")
    checkpoint_sha256: Sha256
    toolchain: dict[str, str] = Field(description="Versions of what the build was made with.")
    parity: ParityReport


def artifact_file(root: Path, workload: str, target: str) -> Path:
    """Where a build leaves its artifact below the repository's root."""
    return root / "build" / workload / target / "artifact.json"


def load_artifact(root: Path, workload: str, target: str) -> ModelArtifact:
    """The artifact of a finished build, its archive checked against the hash.

    Raises `MissingArtifact`, `InvalidDocument` or `TamperedArchive`.
    """
    file = artifact_file(root, workload, target)
    if not file.exists():
        raise MissingArtifact(file, workload, target)
    artifact = ModelArtifact.from_json(file)
    archive = file.with_name(artifact.archive)
    actual = file_sha256(archive) if archive.exists() else "missing"
    if actual != artifact.archive_sha256:
        raise TamperedArchive(archive, artifact.archive_sha256, actual, workload, target)
    return artifact


def file_sha256(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
