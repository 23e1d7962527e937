"""A T5 compiled for its target, and compared with its original."""

import shutil
from collections.abc import Callable
from pathlib import Path

from containers.text2text.generator import TextGenerator
from model_build import bisect, parity
from model_build.plan import BuildPlan
from model_build.progress import Progress, silent
from model_build.repository import version_folder
from model_build.tensorrt import engines, gate
from model_build.tensorrt.compile import Toolchain
from model_build.text2text import export, optimise, repository, verify
from model_build.text2text.optimise import GRAPHS
from workloads import OnnxRuntimeTarget, TensorRtTarget, TextToText

PORTABLE = "portable"


def compile_graphs(plan: BuildPlan, graphs: Path, scratch: Path, progress: Progress) -> dict[str, str]:
    """Write the target's files into `graphs`; what they were made with, besides the usual tools."""
    match plan.target:
        case OnnxRuntimeTarget() as target:
            _export(plan, scratch, progress)
            progress(f"Compiling for ONNX Runtime, {target.precision}")
            optimise.optimise(scratch / PORTABLE, graphs, target.precision, target.fp32_layers)
            return {"onnx_opset": str(export.OPSET)}
        case TensorRtTarget() as target:
            found = Toolchain.find(plan.workload.name, plan.variant.target, target)
            portable = _export(plan, scratch, progress)
            return engines.compile_graphs(plan, target, found, portable, graphs, progress)
        case _:
            raise AssertionError(plan.target.runtime)  # the plan refuses it


def compare(plan: BuildPlan, made: Path, progress: Progress) -> list[parity.Comparison]:
    """The repository `made`, by its own serving code, against Hugging Face `generate`."""
    progress("Loading the checkpoint")
    return _compare(plan, _original(plan), version_folder(made, plan.workload.name), progress)


def fp32_layers(plan: BuildPlan, scratch: Path, progress: Progress) -> tuple[str, ...]:
    """The layers to keep in fp32 for the gate to pass, by bisection. Raises `Fp32Fails`."""
    target = plan.target
    portable, original = _export(plan, scratch, progress), _original(plan)
    tried = scratch / "tried"
    tried.mkdir()
    shutil.copyfile(plan.checkpoint.tokenizer, tried / "tokenizer.json")

    def compare(folder: Path) -> list[parity.Comparison]:
        return _compare(plan, original, folder, silent)

    match target:
        case TensorRtTarget():
            found = Toolchain.find(plan.workload.name, plan.variant.target, target)
            return engines.fp32_layers(plan, target, found, portable, tried, compare, progress)
        case OnnxRuntimeTarget():
            return _int8_fp32_layers(plan, target, scratch / PORTABLE, tried, compare, progress)
        case _:
            raise AssertionError(target.runtime)  # in fp32


def _int8_fp32_layers(
    plan: BuildPlan,
    target: OnnxRuntimeTarget,
    portable: Path,
    tried: Path,
    compare: Callable[[Path], list[parity.Comparison]],
    progress: Progress,
) -> tuple[str, ...]:
    def passes(kept: frozenset[str]) -> bool:
        progress(f"Searching for layers to keep in fp32, trying {len(kept)}")
        optimise.optimise(portable, tried, target.precision, sorted(kept))
        return not parity.differences(parity.report(plan.workload.model.task, compare(tried)), target.parity)

    known = [layer for graph in GRAPHS for layer in optimise.products(portable / f"{graph}.onnx", graph).values()]
    return bisect.fp32_layers(tuple(dict.fromkeys(known)), passes)


def _export(plan: BuildPlan, scratch: Path, progress: Progress) -> dict[str, Path]:
    """Into a folder of their own; from there where they are already."""
    model, folder = _model(plan), scratch / PORTABLE
    if not folder.exists():
        progress("Exporting to ONNX")
        folder.mkdir()
        limits = {"max_input_tokens": model.max_input_tokens, "max_output_tokens": model.max_output_tokens}
        export.export(export.load(plan.checkpoint.folder), folder, **limits)
    return {graph: folder / f"{graph}.onnx" for graph in GRAPHS}


def _original(plan: BuildPlan) -> verify.Original:
    return verify.Original.load(plan.checkpoint.folder, export.load(plan.checkpoint.folder))


def _compare(plan: BuildPlan, original: verify.Original, folder: Path, progress: Progress) -> list[parity.Comparison]:
    """`folder` has what the version folder of the model has."""
    settings = repository.settings(_model(plan), plan.target, plan.checkpoint)
    with gate.explained(plan):
        return verify.compare(
            original,
            TextGenerator.load(folder, settings),
            plan.examples,
            batch_size=plan.variant.serving.max_batch_size,
            file=plan.source.path / "evaluation.jsonl",
            progress=progress,
        )


def _model(plan: BuildPlan) -> TextToText:
    model = plan.workload.model
    assert isinstance(model, TextToText)
    return model
