"""Compiles the portable graphs of a T5 for ONNX Runtime on CPU: quantised for int8, fused, stripped of their origin.

ONNX Runtime's own offline optimiser is all there is for fp32: it fuses the norms, turns product-and-residual into Gemm
and folds transposes. One node per attention (MultiHeadAttention, GroupQueryAttention) was tried: no gain.

int8 leaves embeddings in fp32, which cost size and not time, and the layers named in `fp32_layers`. The decoder's
weights are scaled by blocks of `BLOCK` inputs (MatMulNBits), its activations by blocks of their own row. For many rows
that is the slower operator: a decoder of beams has weights scaled by output, and activations by row (`BY_ROW`). In the
encoder the activations of a batch share one scale (DynamicQuantizeMatMul), so that an int8 answer may still depend
on its neighbours in the batch; an fp32 answer does not.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import numpy as np
import onnx
from onnx import numpy_helper, parser
from onnxruntime.quantization.matmul_nbits_quantizer import DefaultWeightOnlyQuantConfig, MatMulNBitsQuantizer

from model_build import layers
from model_build.onnx_session import quantise_by_output, save_as_run
from model_build.text2text.repository import GRAPHS

Precision = Literal["fp32", "int8"]
PRODUCT = "MatMul"
BLOCK = 128
"""Inputs of a product that share a scale in int8."""
BY_ROW = parser.parse_function("""
    <domain: "rows", opset_import: ["" : 18, "com.microsoft" : 1]>
    Product (hidden, weights, scales) => (products) {
        axis = Constant <value_ints = [-1]> ()
        least = Constant <value_float = 1e-30> ()
        step = Constant <value_float = 0.007874016> ()
        zero = Constant <value = uint8 {128}> ()

        sizes = Abs (hidden)
        largest = ReduceMax (sizes, axis)
        positive = Max (largest, least)

        shares = Div (hidden, positive)
        quantised = QuantizeLinear (shares, step, zero)
        unscaled = com.microsoft.MatMulIntegerToFloat (quantised, weights, step, scales, zero)
        products = Mul (unscaled, positive)
    }
""")
"""A product with activations in uint8 around 128, scaled by row, and weights in int8, scaled by output."""


def optimise(
    portable: Path, compiled: Path, precision: Precision, fp32_layers: Sequence[str] = (), *, beams: bool = False
) -> None:
    """Compiles both graphs of `portable` into `compiled`. Raises `UsageError` for a layer that neither has."""
    kept = layers.chosen(layer_names(portable), fp32_layers)
    decoder = _quantise_by_row if beams else _quantise_by_block
    for name, quantise in (("encoder", quantise_by_output), ("decoder", decoder)):
        source, file = portable / f"{name}.onnx", compiled / f"{name}.onnx"
        if precision == "int8":
            scratch = compiled / f"int8-{name}.onnx"
            quantise(source, scratch, [node for node, layer in products(source, name).items() if layer in kept])
            save_as_run(scratch, file)
            scratch.unlink()
        else:
            save_as_run(source, file)


def products(file: Path, graph: str) -> dict[str, str]:
    """Returns `layers.products` with the graph's name before each layer: `encoder.block.0.feed_forward.wo`."""
    return {node: f"{graph}.{layer}" for node, layer in layers.products(file).items()}


def layer_names(portable: Path) -> tuple[str, ...]:
    """Returns the layers with products of weights, in the order of both graphs."""
    known = [layer for graph in GRAPHS for layer in products(portable / f"{graph}.onnx", graph).values()]
    return tuple(dict.fromkeys(known))


def _quantise_by_block(source: Path, quantised: Path, kept: list[str]) -> None:
    # Level 4: activations in int8.
    config = DefaultWeightOnlyQuantConfig(block_size=BLOCK, is_symmetric=True, accuracy_level=4, bits=8)
    quantizer = MatMulNBitsQuantizer(onnx.load(source), nodes_to_exclude=kept, algo_config=config)
    quantizer.process()
    quantizer.model.save_model_to_file(str(quantised), False)


def _quantise_by_row(source: Path, quantised: Path, kept: list[str]) -> None:
    model = onnx.load(source)
    weights = {tensor.name: tensor for tensor in model.graph.initializer}
    for node in model.graph.node:
        if node.op_type == PRODUCT and node.input[1] in weights and node.name not in kept:
            matrix = numpy_helper.to_array(weights[node.input[1]])
            scales = np.abs(matrix).max(0).clip(np.float32(1e-30)) / np.float32(127)
            names = [f"{node.name}.{part}" for part in ("int8", "scales")]
            for name, values in zip(names, (np.rint(matrix / scales).astype(np.int8), scales), strict=True):
                model.graph.initializer.append(numpy_helper.from_array(values, name))
            node.op_type, node.domain, node.input[1:] = BY_ROW.name, BY_ROW.domain, names
    model.functions.append(BY_ROW)
    model.opset_import.extend(onnx.helper.make_opsetid(domain, 1) for domain in (BY_ROW.domain, "com.microsoft"))
    onnx.save(model, quantised)
