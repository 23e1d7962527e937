"""Runs a `BuildPlan`: compile, lay out, verify, pack, and record in artifact.json. Two builds give the same bytes.

    build/WORKLOAD/.compiled/TARGET/   graphs/ and compiled.json: made once for all variants of a target
    build/WORKLOAD/VARIANT/            artifact.json, model.tar.gz, repository/ (what is packed, for a look or a Triton)

Build and verification hold the target's lock, work in a scratch folder and leave nothing half-made: files move into
place at the end and artifact.json last. A model that fails a gate leaves no artifact.json, not even an older build's;
an interrupted build leaves the older one as it was.
"""

import contextlib
import errno
import importlib.metadata
import importlib.util
import logging
import platform
import shutil
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from model_build import archive, parity, repository
from model_build.backends import backend
from model_build.compiled import Compiled
from model_build.errors import DiskFull, Fp32Fails, GateFailed, StaleArtifact
from model_build.lock import exclusive
from model_build.plan import BuildPlan
from model_build.progress import Progress, silent
from model_build.tensorrt.compile import Toolchain
from workloads import (
    ModelArtifact,
    ParityReport,
    TensorRtTarget,
    file_sha256,
    load_artifact,
)

TOOLS = ("numpy", "onnx", "onnxruntime", "onnxscript", "tokenizers", "torch", "transformers")
NO_SPACE = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


def build(plan: BuildPlan, progress: Progress = silent) -> ModelArtifact:
    """Raises `GateFailed`, `BuildRunning`, `DiskFull`, or what a missing toolchain raises."""
    with _scratch(plan) as scratch, _libraries_quiet():
        compiled = _compile(plan, scratch, progress)
        made = scratch / "repository"
        repository.lay_out(made, _contents(plan, compiled))
        try:
            figures = compiled.parity or _gate(plan, made, progress)
        except GateFailed as failed:
            raise _with_remedy(plan, scratch, failed, progress) from None
        progress("Packing")
        packed = scratch / plan.archive.name
        archive.pack(made, packed)
        artifact = _artifact(plan, packed, compiled, figures)
        _publish(plan, made, packed, artifact)
    return artifact


def verify_built(plan: BuildPlan, progress: Progress = silent) -> ParityReport | None:
    """Compare the archive that a build left, which is what ships, with the checkpoint as it is now.

    None where the model cannot run on this machine and nothing was compared when it was built either.
    """
    with _scratch(plan) as scratch, _libraries_quiet():
        artifact = load_artifact(plan.root, plan.workload.name, plan.variant_name)
        if artifact.checkpoint_sha256 != plan.checkpoint.sha256:
            raise StaleArtifact(plan.artifact, plan.workload.name, plan.variant_name)
        archive.unpack(plan.folder / artifact.archive, scratch / "repository")
        return _gate(plan, scratch / "repository", progress)


def _compile(plan: BuildPlan, scratch: Path, progress: Progress) -> Compiled:
    """From the cache where it is there."""
    found = Compiled.load(plan.compiled, plan.compiled_key)
    if found and _loads_here(plan, found):
        progress("Compiled before")
        return found
    graphs = scratch / "graphs"
    graphs.mkdir()
    made = backend(plan).compile_graphs(plan, graphs, scratch, progress)
    return Compiled.keep(plan.compiled, plan.compiled_key, graphs, made)


def _loads_here(plan: BuildPlan, compiled: Compiled) -> bool:
    """Engines do not, if another machine or another TensorRT made them. Raises what this machine lacks for them."""
    if not isinstance(plan.target, TensorRtTarget):
        return True
    here = Toolchain.find(plan.workload.name, plan.variant.target, plan.target).record()
    return here.items() <= compiled.toolchain.items()


def _contents(plan: BuildPlan, compiled: Compiled) -> dict[str, repository.Content]:
    """Without the engines of other GPUs than this machine's: those are built there and put together afterwards."""
    contents = plan.contents(compiled.graphs)
    if not isinstance(plan.target, TensorRtTarget):
        return contents
    return {name: it for name, it in contents.items() if not isinstance(it, Path) or it.exists()}


def _gate(plan: BuildPlan, made: Path, progress: Progress) -> ParityReport | None:
    comparisons = backend(plan).compare(plan, made, progress)
    if comparisons is None:
        return None
    figures = parity.report(plan.workload.model.task, comparisons)
    try:
        parity.check_quality(figures, plan.workload.quality, comparisons)
        parity.check_parity(figures, plan.target.parity, comparisons)
    except GateFailed:
        plan.artifact.unlink(missing_ok=True)
        raise
    return figures


def _with_remedy(plan: BuildPlan, scratch: Path, failed: GateFailed, progress: Progress) -> GateFailed:
    """The failure, and for a low precision the layers with which it would pass in fp32."""
    if not failed.of_compiled or plan.target.precision == "fp32":
        return failed
    try:
        layers = backend(plan).fp32_layers(plan, scratch, progress)
    except Fp32Fails as hopeless:
        return failed.advised(str(hopeless))
    named = ", ".join(f'"{layer}"' for layer in layers)
    return failed.advised(f"Or keep these layers in fp32, with which it passes: fp32_layers = [{named}]")


def _artifact(plan: BuildPlan, packed: Path, compiled: Compiled, figures: ParityReport | None) -> ModelArtifact:
    versions = {tool: importlib.metadata.version(tool) for tool in TOOLS if importlib.util.find_spec(tool)}
    return ModelArtifact(
        workload=plan.workload.name,
        variant=plan.variant_name,
        target=plan.variant.target,
        runtime=plan.target.runtime,
        precision=plan.target.precision,
        archive=packed.name,
        archive_sha256=file_sha256(packed),
        archive_bytes=packed.stat().st_size,
        default_model=plan.workload.name,
        environment=plan.environment,
        checkpoint_sha256=plan.checkpoint.sha256,
        toolchain={"python": platform.python_version(), **versions, **compiled.toolchain},
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
    with exclusive(plan.compiled, plan.workload.name, plan.variant.target):
        scratch = plan.folder / ".scratch"
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir(parents=True)
        try:
            yield scratch
        except OSError as error:
            if error.errno in NO_SPACE:
                raise DiskFull(plan.folder, str(error)) from error
            raise
        finally:
            shutil.rmtree(scratch, ignore_errors=True)


@contextlib.contextmanager
def _libraries_quiet() -> Iterator[None]:
    """torch, transformers and onnxruntime warn of things nobody can act on; a build speaks by its progress port."""
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(), _no_loading_bars():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(logging.NOTSET)


@contextlib.contextmanager
def _no_loading_bars() -> Iterator[None]:
    if not importlib.util.find_spec("transformers"):
        yield
        return
    from transformers.utils import logging as transformers_logging

    bars: Any = transformers_logging
    bars.disable_progress_bar()
    try:
        yield
    finally:
        bars.enable_progress_bar()
