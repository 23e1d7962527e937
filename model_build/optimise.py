"""Portable graphs of a T5 to graphs for ONNX Runtime on CPU: quantised for int8, fused, stripped of their origin.

In and out: folders with encoder.onnx and decoder.onnx. ONNX Runtime's own offline optimiser is all there is for fp32:
it fuses the norms, turns product-and-residual into Gemm and folds transposes. One node per attention
(MultiHeadAttention, GroupQueryAttention) was tried and won next to nothing: a step's time is in its weights.

int8 leaves embeddings in fp32: those cost size, not time. The decoder's weights are scaled by blocks of `BLOCK` inputs
(MatMulNBits), its activations by blocks of their own row. The encoder reads many positions at once, for which that
operator is the slower one: its weights are scaled by output (DynamicQuantizeMatMul). There the activations of a batch
share one scale, so that an int8 answer may still depend on its neighbours in the batch; an fp32 answer does not.
"""

from pathlib import Path
from typing import Literal

import onnx
import onnxruntime
from onnxruntime.quantization import QuantType, quantize_dynamic
from onnxruntime.quantization.matmul_nbits_quantizer import DefaultWeightOnlyQuantConfig, MatMulNBitsQuantizer

from model_build.text2text.int8 import BLOCK, INT8_ACTIVATIONS


def optimise(portable: Path, compiled: Path, precision: Literal["fp32", "int8"]) -> None:
    """Compile both graphs of `portable` into `compiled`."""
    for name, quantise in (("encoder.onnx", _quantise_by_output), ("decoder.onnx", _quantise_by_block)):
        if precision == "int8":
            scratch = compiled / f"int8-{name}"
            quantise(portable / name, scratch)
            _fuse(scratch, compiled / name)
            scratch.unlink()
        else:
            _fuse(portable / name, compiled / name)
        _strip(compiled / name)


def _quantise_by_output(source: Path, quantised: Path) -> None:
    quantize_dynamic(
        source,
        quantised,
        op_types_to_quantize=["MatMul"],
        per_channel=True,
        weight_type=QuantType.QInt8,
        # Products of two activations (attention) stay in fp32.
        extra_options={"MatMulConstBOnly": True},
    )


def _quantise_by_block(source: Path, quantised: Path) -> None:
    config = DefaultWeightOnlyQuantConfig(
        block_size=BLOCK, is_symmetric=True, accuracy_level=INT8_ACTIVATIONS, bits=8, op_types_to_quantize=("MatMul",)
    )
    quantizer = MatMulNBitsQuantizer(onnx.load(source), algo_config=config)
    quantizer.process()
    quantizer.model.save_model_to_file(str(quantised), False)


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
