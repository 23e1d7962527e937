"""Compiles a BERT for ONNX Runtime, PyTorch on CPU or GPU, or TensorRT, from one module of the checkpoint's weights."""

from collections.abc import Iterator
from pathlib import Path

import onnx
from tokenizers import Tokenizer

from containers.encoder.engines.load_engine import CUDA_FILES
from containers.encoder.preprocess import Preprocessor
from containers.encoder.row import Refusal
from containers.encoder.tensors import tensors
from model_build.compile_inputs import CompileInputs
from model_build.encoder import export, optimise
from model_build.encoder.graphs import settings
from model_build.layers import names, products
from model_build.onnx_session import Tensors
from model_build.progress import Progress
from model_build.tensorrt import engines
from model_build.tensorrt.trtexec import Toolchain
from workloads import CudaTarget, OnnxRuntimeTarget, OpenVinoTarget, TensorRtTarget, TorchScriptTarget


def compile_graphs(inputs: CompileInputs, graphs: Path, scratch: Path, progress: Progress) -> dict[str, str]:
    """Writes the target's files into `graphs` and returns what they were made with besides the usual tools.

    Raises `UsageError` for a layer that the graph has not, or `Unavailable` where TensorRT is not there or refuses.
    """
    match inputs.target:
        case TorchScriptTarget() as target:
            progress("Tracing")
            form: export.Format = "torchscript" if target.precision == "fp32" else "torchscript-mixed"
            export.write(form, inputs.checkpoint, inputs.encoder, graphs)
            return {}
        case CudaTarget(execution=execution):
            progress("Tracing")
            form = "program" if execution == "eager" else "torchscript"
            export.write(form, inputs.checkpoint, inputs.encoder, scratch).rename(graphs / CUDA_FILES[execution])
            return {}
        case OnnxRuntimeTarget() as target:
            portable = _export(inputs, scratch, progress)
            progress(f"Compiling for ONNX Runtime, {target.precision}")
            optimise.optimise(portable, graphs / export.GRAPH, target)
            return {"onnx_opset": str(export.OPSET)}
        case OpenVinoTarget() as target:
            from model_build.encoder import openvino_graph  # OpenVINO takes a second to import

            portable = _export(inputs, scratch, progress)
            progress(f"Compiling for OpenVINO, {target.precision}")
            openvino_graph.compile_graph(portable, graphs, target, list(_calibration(inputs)))
            return {"onnx_opset": str(export.OPSET)}
        case TensorRtTarget() as target:
            toolchain = Toolchain.find(inputs.workload, inputs.target_name, target)
            typed = typed_graphs(inputs, scratch / "typed", scratch, progress)
            return engines.compile_graphs(inputs, toolchain, typed, graphs, progress)
        case target:
            raise AssertionError(target.runtime)  # Neuron has a backend of its own


def typed_graphs(inputs: CompileInputs, folder: Path, scratch: Path, progress: Progress) -> dict[str, Path]:
    """Returns the graph that TensorRT gets. Raises what `engines.typed_graphs` raises."""
    portable = {"model": _export(inputs, scratch, progress)}
    return engines.typed_graphs(inputs, portable, folder, lambda inputs, _: {"model": _calibration(inputs)}, progress)


def layers(inputs: CompileInputs, scratch: Path, progress: Progress) -> tuple[str, ...]:
    """The layers that `fp32_layers` can name, in the order of the graph; none of PyTorch's mixed precision."""
    if isinstance(inputs.target, TorchScriptTarget):
        return ()
    portable = _export(inputs, scratch, progress)
    if isinstance(inputs.target, TensorRtTarget):
        return engines.layer_names(inputs, {"model": portable})
    if isinstance(inputs.target, OpenVinoTarget):
        return names(onnx.load(portable, load_external_data=False))
    return tuple(dict.fromkeys(products(portable).values()))


def _export(inputs: CompileInputs, scratch: Path, progress: Progress) -> Path:
    """Exports once for each scratch folder."""
    if not (scratch / export.GRAPH).exists():
        progress("Exporting to ONNX")
        export.write("onnx", inputs.checkpoint, inputs.encoder, scratch)
    return scratch / export.GRAPH


def _calibration(inputs: CompileInputs) -> Iterator[Tensors]:
    """Real rows, one at a time, for the ranges of activations."""
    known = settings(inputs.encoder, inputs.target, inputs.checkpoint)
    preprocessor = Preprocessor(Tokenizer.from_file(str(inputs.checkpoint.tokenizer)), known)
    for code in preprocessor.encode(inputs.calibration):
        if not isinstance(code, Refusal):
            yield tensors([code], known.inputs, known.pad_to, known.pad_token_id)
