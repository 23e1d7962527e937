"""Replaces products with weights by int8 products. Weights are read one at a time, to need little memory.

Weights are scaled by output: scale[n] = max |W[:, n]| / 127, and int8 W[:, n] = round(W[:, n] / scale[n]). Activations
are scaled as they come, by ONNX Runtime's DynamicQuantizeMatMul, which also adds the bias. ONNX Runtime's own quantiser
gives the same numbers and holds the model several times.
"""

from collections.abc import Collection, Mapping
from pathlib import Path

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import numpy_helper
from onnx.external_data_helper import load_external_data_for_tensor

INT8_PRODUCT, MICROSOFT = "DynamicQuantizeMatMul", "com.microsoft"
LARGEST = 127


def quantise(model: onnx.ModelProto, folder: Path, nodes: Collection[str]) -> None:
    """Replaces, in place, the products of these names. `folder` holds the model's external data, if it has any; the
    model imports Microsoft's operators."""
    graph = model.graph
    tensors = {tensor.name: tensor for tensor in graph.initializer}
    consumers = _consumers(graph)
    absorbed: dict[str, str] = {}
    """The bias additions that become part of their product, by the name of the product's output."""
    quantised: dict[str, None] = {}
    for node in graph.node:
        if node.name in nodes:
            weight = node.input[1]
            bias, output = _bias(node, consumers, tensors, {value.name for value in graph.output})
            node.op_type, node.domain = INT8_PRODUCT, MICROSOFT
            del node.input[1:]
            node.input.extend([f"{weight}.int8", f"{weight}.scale", "", *([bias] if bias else [])])
            if output is not None:
                absorbed[node.output[0]] = output
                node.output[0] = output
            quantised[weight] = None
    _drop_additions(graph, absorbed)
    for weight in quantised:
        _replace(graph, tensors[weight], folder)


def scaled(weight: NDArray[np.float32]) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """Returns a weight [inputs, outputs] as int8 of that shape, and scales [outputs]; a column of zeros has scale 1."""
    largest = np.abs(weight).max(axis=0)
    scale = np.where(largest > 0, largest / LARGEST, 1).astype(np.float32)
    return np.rint(weight / scale).astype(np.int8), scale


def inline(model: onnx.ModelProto, folder: Path) -> None:
    """Reads the rest of the external data, so that the model is one file."""
    for tensor in model.graph.initializer:
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            load_external_data_for_tensor(tensor, str(folder))
            tensor.data_location = onnx.TensorProto.DEFAULT
            del tensor.external_data[:]


def _consumers(graph: onnx.GraphProto) -> Mapping[str, list[onnx.NodeProto]]:
    consumers: dict[str, list[onnx.NodeProto]] = {}
    for node in graph.node:
        for value in node.input:
            consumers.setdefault(value, []).append(node)
    return consumers


def _bias(
    product: onnx.NodeProto,
    consumers: Mapping[str, list[onnx.NodeProto]],
    tensors: Mapping[str, onnx.TensorProto],
    outputs: Collection[str],
) -> tuple[str | None, str | None]:
    """Returns the bias that is added to a product and to nothing else, and the name of the sum."""
    match consumers.get(product.output[0], []):
        case [addition] if addition.op_type == "Add" and product.output[0] not in outputs:
            other = next((value for value in addition.input if value != product.output[0]), "")
            if other in tensors and len(tensors[other].dims) == 1:
                return other, addition.output[0]
    return None, None


def _drop_additions(graph: onnx.GraphProto, absorbed: Mapping[str, str]) -> None:
    for node in [node for node in graph.node if node.op_type == "Add" and absorbed.keys() & set(node.input)]:
        graph.node.remove(node)


def _replace(graph: onnx.GraphProto, tensor: onnx.TensorProto, folder: Path) -> None:
    external = tensor.data_location == onnx.TensorProto.EXTERNAL
    if external:
        load_external_data_for_tensor(tensor, str(folder))
        tensor.data_location = onnx.TensorProto.DEFAULT
    values, scale = scaled(numpy_helper.to_array(tensor))
    graph.initializer.extend(
        [numpy_helper.from_array(values, f"{tensor.name}.int8"), numpy_helper.from_array(scale, f"{tensor.name}.scale")]
    )
    graph.initializer.remove(tensor)
