"""Portable graphs to graphs for ONNX Runtime on CPU: quantised for int8, fused, and stripped of where they were made.

In and out: folders of graphs. ONNX Runtime's own offline optimiser is all there is for fp32:
it fuses the norms, turns product-and-residual into Gemm and folds transposes; the norm fusions of
onnxruntime.transformers find nothing more in these graphs. int8 quantises the weights of matrix products per channel
and leaves embeddings in fp32: those cost size, not time. Its activations share one scale per batch, so that an int8
answer may depend on its neighbours in the batch; an fp32 answer does not.
"""

from pathlib import Path
from typing import Literal

import onnx
import onnxruntime
from onnxruntime.quantization import QuantType, quantize_dynamic


def optimise(portable: Path, compiled: Path, precision: Literal["fp32", "int8"]) -> None:
    """Compile every graph of `portable` into `compiled`."""
    for source in sorted(portable.glob("*.onnx")):
        target = compiled / source.name
        quantised = _quantise(source, compiled / f"quantised-{source.name}") if precision == "int8" else source
        _fuse(quantised, target)
        if quantised != source:
            quantised.unlink()
        _strip(target)


def _quantise(source: Path, quantised: Path) -> Path:
    quantize_dynamic(
        source,
        quantised,
        op_types_to_quantize=["MatMul"],
        per_channel=True,
        weight_type=QuantType.QInt8,
        # Products of two activations (attention) stay in fp32.
        extra_options={"MatMulConstBOnly": True},
    )
    return quantised


def _fuse(source: Path, compiled: Path) -> None:
    """Let a session save what it runs. EXTENDED, not ALL: the last level is for the machine it runs on."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    options.optimized_model_filepath = str(compiled)
    options.log_severity_level = 3
    onnxruntime.InferenceSession(str(source), options, providers=["CPUExecutionProvider"])


def _strip(file: Path) -> None:
    """Drop stack traces and shapes: they name this machine's paths and make no graph faster."""
    model = onnx.load(file)
    model.doc_string = ""
    del model.metadata_props[:]
    graph = model.graph
    graph.name, graph.doc_string = file.stem, ""
    del graph.metadata_props[:], graph.value_info[:]
    for node in graph.node:
        node.doc_string = ""
        del node.metadata_props[:]
    for initializer in graph.initializer:
        initializer.doc_string = ""
        del initializer.metadata_props[:]
    file.write_bytes(model.SerializeToString(deterministic=True))
