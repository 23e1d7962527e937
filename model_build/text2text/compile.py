"""Compiles a T5 for ONNX Runtime, TensorRT or CUDA: an export of both graphs, then the target's own form of them."""

from pathlib import Path

from model_build.compile_inputs import CompileInputs
from model_build.progress import Progress
from model_build.tensorrt import engines
from model_build.tensorrt.trtexec import Toolchain
from model_build.text2text import export, generation, optimise, static_onnx
from model_build.text2text.repository import GRAPHS
from workloads import CudaTarget, OnnxRuntimeTarget, TensorRtTarget

PORTABLE = "portable"


def compile_graphs(inputs: CompileInputs, graphs: Path, scratch: Path, progress: Progress) -> dict[str, str]:
    """Writes the target's files into `graphs` and returns what they were made with besides the usual tools.

    Raises `UsageError` for a layer that neither graph has, or `Unavailable` where TensorRT is not there or refuses.
    """
    match inputs.target:
        case OnnxRuntimeTarget() as target:
            _export(inputs, scratch, progress)
            progress(f"Compiling for ONNX Runtime, {target.precision}")
            beams = generation.served(inputs.text2text, inputs.checkpoint).num_beams > 1
            optimise.optimise(scratch / PORTABLE, graphs, target.precision, target.fp32_layers, beams=beams)
            return {"onnx_opset": str(export.OPSET)}
        case CudaTarget():
            progress("Tracing")
            longest, limit = inputs.text2text.max_input_tokens, inputs.text2text.max_output_tokens
            model = export.load(inputs.checkpoint.folder)
            export.trace(model, graphs, max_input_tokens=longest, max_output_tokens=limit)
            return {}
        case TensorRtTarget() as target:
            toolchain = Toolchain.find(inputs.workload, inputs.target_name, target)
            typed = typed_graphs(inputs, scratch / "typed", scratch, progress)
            return engines.compile_graphs(inputs, toolchain, typed, graphs, progress)
        case target:
            raise AssertionError(target.runtime)  # the plan refuses it


def typed_graphs(inputs: CompileInputs, folder: Path, scratch: Path, progress: Progress) -> dict[str, Path]:
    """Returns the graphs that TensorRT gets. Raises what `engines.typed_graphs` raises."""
    return engines.typed_graphs(inputs, _export(inputs, scratch, progress), folder, static_onnx.calibration, progress)


def layers(inputs: CompileInputs, scratch: Path, progress: Progress) -> tuple[str, ...]:
    """The layers that `fp32_layers` can name, in the order of the graphs."""
    portable = _export(inputs, scratch, progress)
    if isinstance(inputs.target, TensorRtTarget):
        return engines.layer_names(inputs, portable)
    return optimise.layer_names(scratch / PORTABLE)


def _export(inputs: CompileInputs, scratch: Path, progress: Progress) -> dict[str, Path]:
    """Exports into a folder of its own, once for each scratch folder."""
    model, folder = inputs.text2text, scratch / PORTABLE
    if not folder.exists():
        progress("Exporting to ONNX")
        folder.mkdir()
        static = isinstance(inputs.target, TensorRtTarget)
        limits = {"max_input_tokens": model.max_input_tokens, "max_output_tokens": model.max_output_tokens}
        export.export(export.load(inputs.checkpoint.folder), folder, **limits, static=static)
    return {graph: folder / f"{graph}.onnx" for graph in GRAPHS}
