"""A T5 compiled for its target, and compared with its original."""

from pathlib import Path

from containers.text2text.generator import TextGenerator
from model_build import optimise, parity
from model_build.plan import BuildPlan
from model_build.progress import Progress
from model_build.repository import version_folder
from model_build.tensorrt import engines
from model_build.tensorrt.compile import Toolchain
from model_build.text2text import export, repository, verify
from workloads import OnnxRuntimeTarget, TensorRtTarget, TextToText


def compile_graphs(plan: BuildPlan, graphs: Path, scratch: Path, progress: Progress) -> dict[str, str]:
    """Write the target's files into `graphs`; what they were made with, besides the usual tools."""
    model = plan.workload.model
    assert isinstance(model, TextToText)
    target = plan.target
    found = isinstance(target, TensorRtTarget) and Toolchain.find(plan.workload.name, plan.variant.target, target)
    portable = scratch / "portable"
    portable.mkdir()
    progress("Exporting to ONNX")
    export.export(
        export.load(plan.checkpoint.folder),
        portable,
        max_input_tokens=model.max_input_tokens,
        max_output_tokens=model.max_output_tokens,
    )
    match target:
        case OnnxRuntimeTarget():
            progress(f"Compiling for ONNX Runtime, {target.precision}")
            optimise.optimise(portable, graphs, target.precision)
            return {"onnx_opset": str(export.OPSET)}
        case TensorRtTarget():
            assert found
            made = {graph: portable / f"{graph}.onnx" for graph in ("encoder", "decoder")}
            return engines.compile_graphs(plan, target, found, made, graphs, progress)
        case _:
            raise AssertionError(target.runtime)  # the plan refuses it


def compare(plan: BuildPlan, made: Path, progress: Progress) -> list[parity.Comparison]:
    """The repository `made`, by its own serving code, against Hugging Face `generate`."""
    model = plan.workload.model
    assert isinstance(model, TextToText)
    progress("Loading the checkpoint")
    original = verify.Original.load(plan.checkpoint.folder, export.load(plan.checkpoint.folder))
    settings = repository.settings(model, plan.target, plan.checkpoint)
    return verify.compare(
        original,
        TextGenerator.load(version_folder(made, plan.workload.name), settings),
        plan.examples,
        batch_size=plan.variant.serving.max_batch_size,
        file=plan.source.path / "evaluation.jsonl",
        progress=progress,
    )
