"""The two use cases: build a target from its plan, and verify one that was built.

Both hold the target's lock, work in a scratch folder inside the target's folder and leave nothing half-made: files
move into place at the end and artifact.json last. A model that fails a gate leaves no artifact.json, not even an older
build's; an interrupted build leaves the older one as it was.
"""

import contextlib
import importlib.metadata
import logging
import platform
import shutil
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from transformers.utils import logging as transformers_logging

from containers.text2text.generator import TextGenerator
from model_build import archive, optimise, parity, repository
from model_build.errors import GateFailed, StaleArtifact
from model_build.lock import exclusive
from model_build.plan import BuildPlan
from model_build.progress import Progress, silent
from model_build.text2text import export, verify
from workloads import ModelArtifact, ParityReport, file_sha256, load_artifact

TOOLS = ("numpy", "onnx", "onnxruntime", "onnxscript", "tokenizers", "torch", "transformers")


def build(plan: BuildPlan, progress: Progress = silent) -> ModelArtifact:
    """Raises `GateFailed` or `BuildRunning`."""
    with _scratch(plan) as scratch, _libraries_quiet():
        progress("Loading the checkpoint")
        model = export.load(plan.checkpoint.folder)
        made = _compile(plan, model, scratch, progress)
        figures = _gate(plan, verify.Original.load(plan.checkpoint.folder, model), made, progress)
        progress("Packing")
        packed = scratch / plan.archive.name
        archive.pack(made, packed)
        artifact = _artifact(plan, packed, figures)
        _publish(plan, made, packed, artifact)
    return artifact


def verify_built(plan: BuildPlan, progress: Progress = silent) -> ParityReport:
    """Compare the archive that a build left, which is what ships, with the checkpoint as it is now."""
    with _scratch(plan) as scratch, _libraries_quiet():
        artifact = load_artifact(plan.root, plan.workload.name, plan.target_name)
        if artifact.checkpoint_sha256 != plan.checkpoint.sha256:
            raise StaleArtifact(plan.artifact, plan.workload.name, plan.target_name)
        progress("Loading the checkpoint")
        archive.unpack(plan.folder / artifact.archive, scratch / "repository")
        model = export.load(plan.checkpoint.folder)
        original = verify.Original.load(plan.checkpoint.folder, model)
        return _gate(plan, original, scratch / "repository", progress)


def _compile(plan: BuildPlan, model: Any, scratch: Path, progress: Progress) -> Path:
    """The Triton repository, in the scratch folder."""
    portable, compiled, made = (scratch / name for name in ("portable", "compiled", "repository"))
    portable.mkdir()
    compiled.mkdir()
    progress("Exporting to ONNX")
    export.export(
        model,
        portable,
        max_input_tokens=plan.settings.max_input_tokens,
        max_output_tokens=plan.settings.max_output_tokens,
    )
    progress(f"Compiling for ONNX Runtime, {plan.target.precision}")
    optimise.optimise(portable, compiled, plan.target.precision)
    repository.lay_out(
        made,
        plan.model,
        config=plan.config_pbtxt,
        compiled=compiled,
        tokenizer=plan.checkpoint.folder / "tokenizer.json",
        warmup_text=plan.warmup_text,
    )
    return made


def _gate(plan: BuildPlan, original: verify.Original, made: Path, progress: Progress) -> ParityReport:
    compiled = TextGenerator.load(repository.version_folder(made, plan.model), plan.settings)
    comparisons = verify.compare(
        original,
        compiled,
        plan.examples,
        batch_size=plan.workload.serving.max_batch_size,
        file=plan.evaluation_file,
        progress=progress,
    )
    figures = parity.report(comparisons)
    try:
        parity.check_quality(figures, plan.workload.quality, comparisons)
        parity.check_parity(figures, plan.target.parity, comparisons)
    except GateFailed:
        plan.artifact.unlink(missing_ok=True)
        raise
    return figures


def _artifact(plan: BuildPlan, packed: Path, figures: ParityReport) -> ModelArtifact:
    versions = {tool: importlib.metadata.version(tool) for tool in TOOLS}
    return ModelArtifact(
        workload=plan.workload.name,
        target=plan.target_name,
        runtime=plan.target.runtime,
        precision=plan.target.precision,
        archive=packed.name,
        archive_sha256=file_sha256(packed),
        archive_bytes=packed.stat().st_size,
        default_model=plan.model,
        checkpoint_sha256=plan.checkpoint.sha256,
        toolchain={"python": platform.python_version(), "onnx_opset": str(export.OPSET), **versions},
        parity=figures,
    )


def _publish(plan: BuildPlan, made: Path, packed: Path, artifact: ModelArtifact) -> None:
    """The old artifact.json goes first and the new one comes last: in between the target counts as not built."""
    plan.artifact.unlink(missing_ok=True)
    shutil.rmtree(plan.repository, ignore_errors=True)
    made.replace(plan.repository)
    packed.replace(plan.archive)
    artifact.write_json(plan.artifact)


@contextlib.contextmanager
def _scratch(plan: BuildPlan) -> Iterator[Path]:
    """An empty folder under the target's lock, gone afterwards. What a killed build left is swept away first."""
    with exclusive(plan.folder, plan.workload.name, plan.target_name):
        scratch = plan.folder / ".scratch"
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir()
        try:
            yield scratch
        finally:
            shutil.rmtree(scratch, ignore_errors=True)


@contextlib.contextmanager
def _libraries_quiet() -> Iterator[None]:
    """torch, transformers and onnxruntime warn of things nobody can act on; a build speaks by its progress port."""
    bars: Any = transformers_logging
    logging.disable(logging.WARNING)
    bars.disable_progress_bar()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        bars.enable_progress_bar()
        logging.disable(logging.NOTSET)
