"""Runs a `BuildPlan`: compile, lay out, verify, pack, and record in artifact.json. Two builds give the same bytes.

    build/WORKLOAD/.compiled/TARGET/   the cache of compiled graphs, for all variants of a target (`compiled`)
    build/WORKLOAD/VARIANT/            artifact.json, model.tar.gz, repository/ (the packed files, unpacked)

Build and verification hold the target's lock and work in a scratch folder. Files move into place at the end,
artifact.json last. A model that fails a gate leaves no artifact.json, not even an older build's. An interrupted build
keeps the older build. The output of libraries goes to the plan's log file.
"""

import contextlib
import importlib.metadata
import importlib.util
import platform
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from containers.encoder.engines.engine import LacksInstructionSet
from containers.text2text.tensorrt_plan import PlanRefused
from model_build import archive, fp32_layers, parity
from model_build.backends import backend
from model_build.compile_inputs import CompileInputs
from model_build.compiled import Compiled, compile_key, exclusive, scratch_folder
from model_build.library_log import libraries_logged
from model_build.parity import GateFailed, ParityFailed
from model_build.plan import BuildPlan
from model_build.progress import Progress, silent
from model_build.tensorrt.rtx import builder_name
from model_build.tensorrt.trtexec import Toolchain, no_bindings
from model_build.triton import repository
from workloads import (
    CudaTarget,
    ModelArtifact,
    NeuronTarget,
    OpenVinoTarget,
    ParityReport,
    RandomWeights,
    TensorRtTarget,
    Unavailable,
    UsageError,
    file_sha256,
    load_artifact,
)

TOOLS = ("nncf", "numpy", "onnx", "onnxruntime", "onnxscript", "openvino", "tokenizers", "torch", "transformers")
TENSORRT_BINDINGS = ("tensorrt", "tensorrt_bindings", "cuda")


def build(plan: BuildPlan, progress: Progress = silent, *, compare_runtimes: bool = False) -> ModelArtifact:
    """Builds one variant of a target. `compare_runtimes` also times it against the other CPU runtime.

    Raises `GateFailed`, `UsageError` for a workload that cannot be built, `Unavailable` if another build runs, the disk
    is full or a compiler fails, and ModuleNotFoundError if the build's tools are not installed.
    """
    with _scratch(plan) as scratch:
        compiled = _compile(plan, scratch, progress)
        made = _laid_out(plan, plan.compiled / "graphs", scratch)
        compare = None if _lacks_gpu(plan) else backend(plan).comparer(plan, made, progress)
        try:
            figures = _gate(plan, made, compare, progress)
        except ParityFailed as failed:
            raise _with_advice(plan, failed, compare, backend(plan).compile_graphs, scratch, progress) from None
        progress("Packing")
        packed = scratch / plan.archive.name
        archive.pack(made, packed)
        artifact = _artifact(plan, packed, compiled, figures)
        if compare_runtimes:
            from model_build.encoder.runner_up import time_runner_up  # OpenVINO takes a second to import

            timed = time_runner_up(plan, backend(plan).served_folder(plan, made), scratch, progress)
            artifact = artifact.model_copy(update={"runner_up": timed})
        archive.publish(artifact, packed, made, plan.artifact)
    return artifact


def verify_built(plan: BuildPlan, progress: Progress = silent) -> ParityReport | None:
    """Compares the archive of a finished build with the current checkpoint.

    Returns None if the model cannot run on this machine. Raises what `build` raises, `UsageError` for an archive of
    another checkpoint, and `Unavailable` if it needs a GPU.
    """
    if problem := _lacks_gpu(plan):
        raise Unavailable(problem)
    with _scratch(plan) as scratch:
        _, made = _unpacked(plan, scratch)
        return _gate(plan, made, backend(plan).comparer(plan, made, progress), progress)


def verify_outputs(plan: BuildPlan, outputs: Path, progress: Progress = silent) -> ParityReport:
    """Compares the archive's outputs on the target's hardware with the checkpoint, and records the report.

    `outputs` is a file of `containers.batch.record`. Raises what `verify_built` raises, and `UsageError` for outputs of
    another build or a target that does not need them.
    """
    if not isinstance(plan.target, NeuronTarget):
        raise UsageError(
            f"--outputs: {plan.variant_name} is not for Inferentia. `python -m model_build verify "
            f"{plan.workload.name} --target {plan.variant_name}` runs it on this machine."
        )
    from model_build.neuron import recorded

    with _scratch(plan) as scratch:
        artifact, made = _unpacked(plan, scratch)
        figures = _gate(plan, made, recorded.comparer(plan, made, outputs, progress), progress)
        artifact.model_copy(update={"parity": figures}).write_json(plan.artifact)
    assert figures is not None
    return figures


def verify_recorded(plan: BuildPlan) -> ParityReport:
    """Judges the figures that a build or `verify_outputs` recorded, without running the model.

    Raises `GateFailed`, also if the build compared nothing, or `UsageError` for a build of another checkpoint.
    """
    artifact = _artifact_of_checkpoint(plan)
    if artifact.parity is None:
        named = f"{plan.workload.name} --target {plan.variant_name}"
        again = (
            f"Build it on a machine with an NVIDIA GPU: `python -m model_build build {named}`."
            if isinstance(plan.target, CudaTarget)
            else "Run `python -m containers.batch.record` on the target's hardware, and then "
            f"`python -m model_build verify {named} --outputs FILE`."
        )
        raise GateFailed(
            f"{plan.artifact}: parity: the build compared nothing, because its machine could not run the model. {again}"
        )
    _judge(plan, artifact.parity, ())
    return artifact.parity


def check_engines(plan: BuildPlan, progress: Progress = silent) -> dict[str, Any]:
    """Builds the plan's engines with TensorRT for RTX for all GPUs of the target, and returns the printed report.

    Raises `UsageError` for a target without engines, `Unavailable` if TensorRT for RTX is not installed, and
    `GateFailed` if it rejects an operator that is not known to be accepted by TensorRT.
    """
    if not isinstance(plan.target, TensorRtTarget):
        raise _no_engines(plan, "rtx")
    from model_build.tensorrt.engines import check_graphs  # AWS's Neuron images have no onnx

    builder = builder_name()
    with _scratch(plan) as scratch:
        typed = backend(plan).typed_graphs(plan.compile_inputs, scratch / "typed", scratch, progress)
        checked = check_graphs(plan.compile_inputs, typed, progress)
    if failed := [each for each in checked if each.failed]:
        raise GateFailed(
            "\n".join(
                f"{plan.workload.name} for {plan.variant_name}: {builder} cannot build {each.graph} for compute "
                f"capability {each.compute_capability}, and trtexec most likely cannot either: {each.refusal}"
                for each in failed
            )
        )
    return {
        "workload": plan.workload.name,
        "variant": plan.variant_name,
        "target": plan.variant.target,
        "precision": plan.target.precision,
        "builder": builder,
        "engines": [asdict(each) for each in checked],
    }


def verify_graphs(plan: BuildPlan, progress: Progress = silent) -> ParityReport:
    """Compares the graphs from which TensorRT builds engines with the checkpoint, on ONNX Runtime on this CPU.

    Raises `UsageError` for a target without engines, `GateFailed`, and `Unavailable` if int8 lacks ModelOpt.
    """
    if not isinstance(plan.target, TensorRtTarget):
        raise _no_engines(plan, "onnxruntime")
    chosen = backend(plan)

    def typed(inputs: CompileInputs, graphs: Path, scratch: Path, progress: Progress) -> None:
        for graph in chosen.typed_graphs(inputs, scratch / "typed", scratch, progress).values():
            for file in graph.parent.glob(f"{graph.name}*"):  # with its external weights
                shutil.copyfile(file, graphs / file.name)

    with _scratch(plan) as scratch:
        made = _laid_out(plan, scratch / "no-engines", scratch)
        folder, compare = chosen.served_folder(plan, made), chosen.comparer(plan, made, progress)
        assert compare is not None
        folder.mkdir(parents=True, exist_ok=True)
        typed(plan.compile_inputs, folder, scratch, progress)
        comparisons = compare(folder, progress)
        figures = parity.report(plan.workload.metrics, comparisons)
        try:
            _judge(plan, figures, comparisons)
        except ParityFailed as failed:
            raise _with_advice(plan, failed, compare, typed, scratch, progress) from None
    return figures


def _no_engines(plan: BuildPlan, builder: str) -> UsageError:
    return UsageError(
        f"--builder {builder} takes the graphs of TensorRT's engines, and {plan.workload.name} for "
        f'{plan.variant_name} is {plan.target.runtime}. Leave it out, or name a target with runtime = "tensorrt".'
    )


def _laid_out(plan: BuildPlan, graphs: Path, scratch: Path) -> Path:
    """Returns the repository with the compiled `graphs`; of a TensorRT target, with the engines that exist."""
    contents = plan.contents(graphs)
    if isinstance(plan.target, TensorRtTarget):  # `combine` adds the engines of other GPUs
        contents = {name: it for name, it in contents.items() if not isinstance(it, Path) or it.exists()}
    repository.lay_out(scratch / "repository", contents)
    return scratch / "repository"


def _artifact_of_checkpoint(plan: BuildPlan) -> ModelArtifact:
    artifact = load_artifact(plan.builds, plan.workload.name, plan.variant_name, plan.source.published_name)
    if artifact.checkpoint_sha256 != plan.checkpoint.sha256:
        raise UsageError(
            f"{plan.artifact} was built from another checkpoint than the one workload.toml names now. "
            f"Build it again with `python -m model_build build {plan.workload.name} --target {plan.variant_name}`."
        )
    return artifact


def _unpacked(plan: BuildPlan, scratch: Path) -> tuple[ModelArtifact, Path]:
    """Unpacks the built archive."""
    artifact, made = _artifact_of_checkpoint(plan), scratch / "repository"
    archive.unpack(plan.folder / artifact.archive, made, artifact.archive_sha256)
    return artifact, made


def _compile(plan: BuildPlan, scratch: Path, progress: Progress) -> Compiled:
    """Returns the graphs in the cache; compiles them if they are missing."""
    key = compile_key(plan.compile_inputs)
    cached = Compiled.load(plan.compiled, key)
    if cached and isinstance(plan.target, TensorRtTarget):
        # Not engines of another GPU or TensorRT. Raises `Unavailable` if this machine has neither.
        here = Toolchain.find(plan.workload.name, plan.variant.target, plan.target).record()
        cached = cached if here.items() <= cached.toolchain.items() else None
    if cached:
        progress("Compiled before")
        return cached
    graphs = scratch / "graphs"
    graphs.mkdir()
    toolchain = backend(plan).compile_graphs(plan.compile_inputs, graphs, scratch, progress)
    return Compiled.keep(plan.compiled, key, graphs, toolchain)


def _gate(plan: BuildPlan, made: Path, compare: parity.Compare | None, progress: Progress) -> ParityReport | None:
    if compare is None:
        return None
    with _engine_errors_explained(plan):
        comparisons = compare(backend(plan).served_folder(plan, made), progress)
    figures = parity.report(plan.workload.metrics, comparisons)
    try:
        _judge(plan, figures, comparisons)
    except GateFailed:
        plan.artifact.unlink(missing_ok=True)
        raise
    return figures


def _judge(plan: BuildPlan, figures: ParityReport, comparisons: Sequence[parity.ParityComparison]) -> None:
    """Raises `GateFailed`. With random weights only the outputs' numbers are judged, not the answers."""
    limits, quality = plan.target.parity, plan.workload.quality
    if isinstance(plan.model.checkpoint, RandomWeights):
        limits = limits.model_copy(update={"max_metric_drop": 1.0})
    else:
        parity.check_quality(figures, quality, comparisons)
    parity.check_parity(figures, limits, comparisons, quality)


def _with_advice(
    plan: BuildPlan,
    failed: ParityFailed,
    compare: parity.Compare | None,
    compile_graphs: fp32_layers.Compile,
    scratch: Path,
    progress: Progress,
) -> ParityFailed:
    """Adds the layers that need fp32, for a lower precision."""
    if compare is None or plan.target.precision == "fp32":
        return failed
    with _engine_errors_explained(plan):
        advice = fp32_layers.advice(plan, compare, compile_graphs, scratch, progress)
    return failed if advice is None else ParityFailed(f"{failed}\n{advice}")


def _lacks_gpu(plan: BuildPlan) -> str:
    """Returns the reason why a CUDA target cannot run here; empty if it can, and for other targets."""
    if not isinstance(plan.target, CudaTarget):
        return ""
    from model_build.torch_threads import version_without_gpu  # `verify --recorded` needs no torch

    if (version := version_without_gpu()) is None:
        return ""
    return (
        f"{plan.workload.name} for {plan.variant_name} runs on an NVIDIA GPU, and PyTorch {version} finds "
        "none here, so it cannot be compared with the original. Build it on a machine that has one, with PyPI's "
        "PyTorch."
    )


@contextlib.contextmanager
def _engine_errors_explained(plan: BuildPlan) -> Iterator[None]:
    """Raises `Unavailable` with workload and target for an engine's error about plans, CUDA or the CPU."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] not in TENSORRT_BINDINGS:
            raise
        raise no_bindings(f"the package '{error.name}' is not installed", None) from error
    except LacksInstructionSet as error:
        raise Unavailable(
            f"{plan.workload.name} for {plan.variant.target} cannot be compared with the original here. {error}"
        ) from error
    except PlanRefused as error:
        raise Unavailable(
            f"The engines of {plan.workload.name} for {plan.variant.target} cannot be run here: "
            f"{str(error).removesuffix('.')}. "
            "They run on a machine with the GPU and the TensorRT they were built with."
        ) from error


def _artifact(plan: BuildPlan, packed: Path, compiled: Compiled, figures: ParityReport | None) -> ModelArtifact:
    others = {f"model {each.name}": each.artifact.archive_sha256 for each in plan.others}
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
        default_model=plan.default_model,
        environment=plan.environment,
        checkpoint_sha256=plan.checkpoint.sha256,
        toolchain={"python": platform.python_version(), **versions, **compiled.toolchain, **others},
        instruction_sets=plan.target.instruction_sets if isinstance(plan.target, OpenVinoTarget) else (),
        parity=figures,
    )


@contextlib.contextmanager
def _scratch(plan: BuildPlan) -> Iterator[Path]:
    """Holds the target's lock and yields an empty folder, which is deleted afterwards. Libraries write to the log."""
    with (
        exclusive(plan.compiled, plan.workload.name, plan.variant.target),
        libraries_logged(plan.log),
        scratch_folder(plan.folder / ".scratch") as scratch,
    ):
        yield scratch
