"""A ModelArtifact for tests that need one without a build."""

from typing import Any

from workloads import ModelArtifact, ParityReport

_METRICS = {"exact_match": 0.9, "unchanged_rate": 0.97}


def an_artifact(**changes: Any) -> ModelArtifact:
    """Returns the artifact of spellcheck for cpu with `changes` applied."""
    parity = ParityReport(
        examples=500,
        identical_answers=500,
        max_logit_difference=1e-5,
        mean_logit_difference=1e-6,
        original=_METRICS,
        compiled=_METRICS,
    )
    artifact = ModelArtifact(
        workload="spellcheck",
        variant="cpu",
        target="cpu",
        runtime="onnxruntime",
        precision="fp32",
        archive="model.tar.gz",
        archive_sha256="a" * 64,
        archive_bytes=1,
        default_model="spellcheck",
        environment={},
        checkpoint_sha256="0" * 64,
        toolchain={"onnxruntime": "1.31.0"},
        parity=parity,
    )
    return artifact.model_copy(update=changes)
