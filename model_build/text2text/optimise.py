"""Compiles the portable graphs of a T5 for ONNX Runtime on CPU: quantised for int8, fused, stripped of their origin.

In and out: folders with encoder.onnx and decoder.onnx. ONNX Runtime's own offline optimiser is all there is for fp32:
it fuses the norms, turns product-and-residual into Gemm and folds transposes. One node per attention
(MultiHeadAttention, GroupQueryAttention) was tried and won next to nothing: a step's time is in its weights.

int8 leaves embeddings in fp32, which cost size and not time, and the layers named in `fp32_layers`. The decoder's
weights are scaled by blocks of `BLOCK` inputs (MatMulNBits), its activations by blocks of their own row. That operator
is the fastest for up to four rows at once. A decoder of beams has more: its weights are scaled by output, and its
activations by row (MatMulIntegerToFloat). The encoder reads many positions at once. Its weights are scaled by output
(DynamicQuantizeMatMul), and the activations of a batch share one scale, so that an int8 answer may still depend on its
neighbours in the batch; an fp32 answer does not.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import numpy as np
import onnx
from onnx import NodeProto, helper, numpy_helper
from onnxruntime.quantization import QuantType, quantize_dynamic
from onnxruntime.quantization.matmul_nbits_quantizer import DefaultWeightOnlyQuantConfig, MatMulNBitsQuantizer

from model_build import layers
from model_build.onnx_session import save_as_run
from model_build.text2text.graphs import BLOCK, GRAPHS, INT8_ACTIVATIONS

PRODUCT = "MatMul"


def optimise(
    portable: Path,
    compiled: Path,
    precision: Literal["fp32", "int8"],
    fp32_layers: Sequence[str] = (),
    *,
    beams: bool = False,
) -> None:
    """Compiles both graphs of `portable` into `compiled`. Raises `UsageError` for a layer that neither has."""
    kept = layers.chosen(layer_names(portable), fp32_layers)
    for name, quantise in (
        ("encoder", _quantise_by_output),
        ("decoder", _quantise_by_row if beams else _quantise_by_block),
    ):
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


def _quantise_by_output(source: Path, quantised: Path, kept: list[str]) -> None:
    quantize_dynamic(
        source,
        quantised,
        op_types_to_quantize=[PRODUCT],
        nodes_to_exclude=kept,
        per_channel=True,
        weight_type=QuantType.QInt8,
        # Products of two activations (attention) stay in fp32.
        extra_options={"MatMulConstBOnly": True},
    )


def _quantise_by_block(source: Path, quantised: Path, kept: list[str]) -> None:
    config = DefaultWeightOnlyQuantConfig(
        block_size=BLOCK, is_symmetric=True, accuracy_level=INT8_ACTIVATIONS, bits=8, op_types_to_quantize=(PRODUCT,)
    )
    quantizer = MatMulNBitsQuantizer(onnx.load(source), nodes_to_exclude=kept, algo_config=config)
    quantizer.process()
    quantizer.model.save_model_to_file(str(quantised), False)


def _quantise_by_row(source: Path, quantised: Path, kept: list[str]) -> None:
    model = onnx.load(source)
    graph = model.graph
    weights = {tensor.name: tensor for tensor in graph.initializer}
    constants = {"row.steps": np.float32(127), "row.least": np.float32(1e-30), "row.one": np.float32(1)}
    constants |= {"row.zero": np.uint8(128), "row.axis": np.array([-1])}
    graph.initializer.extend(numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items())
    nodes: list[NodeProto] = []
    rows: set[str] = set()
    for node in list(graph.node):
        if node.op_type != PRODUCT or node.input[1] not in weights or node.name in kept:
            nodes.append(node)
            continue
        activations, weight = node.input
        if activations not in rows:
            rows.add(activations)
            nodes += _row_scaled(activations)
        matrix = numpy_helper.to_array(weights[weight])
        scales = np.maximum(np.abs(matrix).max(0), np.float32(1e-30)) / np.float32(127)
        graph.initializer.append(numpy_helper.from_array(np.rint(matrix / scales).astype(np.int8), f"{node.name}.int8"))
        graph.initializer.append(numpy_helper.from_array(scales, f"{node.name}.scales"))
        scaled = [f"{activations}.uint8", f"{node.name}.int8", "row.one", f"{node.name}.scales", "row.zero"]
        nodes.append(helper.make_node("MatMulIntegerToFloat", scaled, [f"{node.name}.out"], domain="com.microsoft"))
        nodes.append(helper.make_node("Mul", [f"{node.name}.out", f"{activations}.scale"], node.output, node.name))
    del graph.node[:]
    graph.node.extend(nodes)
    model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    onnx.save(model, quantised)


def _row_scaled(name: str) -> list[NodeProto]:
    """Returns nodes that make `name` uint8 around 128, with a scale for each row."""
    size, most, scale = f"{name}.size", f"{name}.most", f"{name}.scale"
    return [
        helper.make_node("Abs", [name], [size]),
        helper.make_node("ReduceMax", [size, "row.axis"], [most]),
        helper.make_node("Max", [most, "row.least"], [f"{most}.positive"]),
        helper.make_node("Div", [f"{most}.positive", "row.steps"], [scale]),
        helper.make_node("Div", [name, scale], [f"{name}.steps"]),
        helper.make_node("QuantizeLinear", [f"{name}.steps", "row.one", "row.zero"], [f"{name}.uint8"]),
    ]
