"""Converts an fp32 graph to a strongly typed fp16 graph, with layers kept in fp32 where the parity gate asks for it.

In: a graph of torch's exporter, the layers to keep by their names (`layers.py`). Out: a new graph in which every
product has fp16 operands; TensorRT takes the types as they are written. What runs in fp32, and why:

- layers that are kept;
- sums of squares and their roots (Pow, ReduceMean, Sqrt, …): fp16 ends at 65504, the square of 256. A
  LayerNormalization sums in fp32 by its own definition (`stash_type`) whatever its input is;
- values that depend on such a value, until the next product, or until something bounds it: an activation with values up
  to 1, a softmax, a norm. So a residual stream that has left fp16's range in one layer stays in fp32, as it does in
  transformers, instead of becoming infinite in the next sum.

No layer of a T5 needs to be kept for its range: transformers keeps the second product of the feed-forward, `wo`, in
fp32 (`_keep_in_fp32_modules`), because the residual it is added to goes beyond 65504; here the export scales it.

Constants beyond fp16's range, such as the least fp32 number in a mask, become the nearest that fp16 has. Inputs and
outputs keep their types but for those named in `half`: a cache that goes out and comes in again need not be cast.
Weights stay what they were wherever fp32 needs them. It does not know whether the answers are still right: that is for
the gate. Graphs within nodes (If, Loop) are refused.
"""

from collections.abc import Collection, Sequence

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from model_build import layers

FP32, FP16 = TensorProto.FLOAT, TensorProto.FLOAT16
SUFFIX: dict[int, str] = {FP32: "fp32", FP16: "fp16"}
PRODUCTS = frozenset({"MatMul", "Gemm", "Einsum"})
WIDE = frozenset({"Pow", "ReduceMean", "ReduceSum", "ReduceSumSquare", "Sqrt", "Exp", "Log", "CumSum"})
BOUNDED = frozenset({"LayerNormalization", "RMSNormalization", "Softmax", "Tanh", "Sigmoid", "Erf"})
UNTYPED = frozenset({"Shape", "Size"})
LARGEST, LEAST = float(np.finfo(np.float16).max), float(np.finfo(np.float16).smallest_subnormal)
T5_CACHES = ("cross", "past", "present")


def to_fp16(model: onnx.ModelProto, keep_fp32: Sequence[str] = (), *, half: Collection[str] = ()) -> onnx.ModelProto:
    """Returns a new model and leaves `model` unchanged. Raises `UsageError` for a layer that it has not."""
    if any(attribute.HasField("g") for node in model.graph.node for attribute in node.attribute):
        raise ValueError("a graph within a node cannot be converted")
    return _Conversion(model, layers.chosen(layers.names(model), keep_fp32), half).run()


class _Conversion:
    """One pass over the nodes. `typed` has the type of each float value so far; other values are no floats."""

    def __init__(self, model: onnx.ModelProto, kept: frozenset[str], half: Collection[str]) -> None:
        self.model, self.kept, self.half = model, kept, half
        self.floats = {name for name, kind in element_types(model).items() if kind == FP32}
        self.weights = {tensor.name: tensor for tensor in model.graph.initializer}
        self.typed = {value.name: self._border(value.name) for value in model.graph.input if value.name in self.floats}
        self.bounded = set(self.typed)
        self.outputs = {value.name for value in model.graph.output if value.name in self.floats}
        self.used: dict[str, TensorProto] = {}
        self.nodes: list[onnx.NodeProto] = []
        self.casts: dict[tuple[str, int], str] = {}

    def run(self) -> onnx.ModelProto:
        for node, layer in zip(self.model.graph.node, layers.by_node(self.model), strict=True):
            self._convert(node, layer)
        for name in sorted(self.outputs):
            self.nodes += self._output(name)
        graph = helper.make_graph(
            self.nodes,
            self.model.graph.name,
            [self._value(value) for value in self.model.graph.input],
            [self._value(value) for value in self.model.graph.output],
            list(self.used.values()),
        )
        return helper.make_model(graph, opset_imports=list(self.model.opset_import), ir_version=self.model.ir_version)

    def _convert(self, node: onnx.NodeProto, layer: str) -> None:
        copy = onnx.NodeProto()
        copy.CopyFrom(node)
        kind = self._kind(node, layer)
        copy.input[:] = [self._input(name, kind, node.op_type) for name in node.input]
        made = [name for name in node.output if name in self.floats]
        self.typed |= dict.fromkeys(made, kind)
        copy.output[:] = [self._inner(name) for name in node.output]
        if node.op_type in BOUNDED and layer not in self.kept:
            self.bounded |= set(made)
        if made and kind == FP16:
            _make_half(copy)
        self.nodes.append(copy)

    def _kind(self, node: onnx.NodeProto, layer: str) -> int:
        if layer in self.kept or node.op_type in WIDE:
            return FP32
        if node.op_type in PRODUCTS:
            return FP16
        spreads = any(self.typed.get(name) == FP32 and name not in self.bounded for name in node.input)
        return FP32 if spreads else FP16

    def _input(self, name: str, kind: int, op_type: str) -> str:
        if name in self.weights:
            return self._weight(name, kind)
        if name not in self.floats or op_type in UNTYPED or self.typed[name] == kind:
            return self._inner(name)
        if (name, kind) not in self.casts:
            self.casts[name, kind] = cast = f"{name}_{SUFFIX[kind]}"
            self.nodes.append(helper.make_node("Cast", [self._inner(name)], [cast], f"{cast}_cast", to=kind))
        return self.casts[name, kind]

    def _weight(self, name: str, kind: int) -> str:
        """Adds the weight once for each type that it is needed in, and returns its name."""
        tensor = self.weights[name]
        if tensor.data_type != FP32 or kind == FP32:
            self.used[name] = tensor
            return name
        half = f"{name}_fp16"
        if half not in self.used:
            self.used[half] = numpy_helper.from_array(_halved(numpy_helper.to_array(tensor)), half)
        return half

    def _border(self, name: str) -> int:
        return FP16 if name in self.half else FP32

    def _inner(self, name: str) -> str:
        """Names a value; an output of another type than the graph promises gets another name and is cast at the end."""
        typed = name in self.outputs and name in self.typed and self.typed[name] != self._border(name)
        return f"{name}_inner" if typed else name

    def _output(self, name: str) -> list[onnx.NodeProto]:
        inner, kind = self._inner(name), self._border(name)
        return [] if inner == name else [helper.make_node("Cast", [inner], [name], f"{name}_cast", to=kind)]

    def _value(self, value: onnx.ValueInfoProto) -> onnx.ValueInfoProto:
        copy = onnx.ValueInfoProto()
        copy.CopyFrom(value)
        if value.name in self.floats:
            copy.type.tensor_type.elem_type = self._border(value.name)
        return copy


def _make_half(node: onnx.NodeProto) -> None:
    """Changes the attributes that name the type of a node's output."""
    for attribute in node.attribute:
        if attribute.name in ("to", "dtype") and attribute.i == FP32:
            attribute.i = FP16
        if attribute.name == "value" and attribute.t.data_type == FP32:
            attribute.t.CopyFrom(numpy_helper.from_array(_halved(numpy_helper.to_array(attribute.t))))


def _halved(array: NDArray[np.float32]) -> NDArray[np.float16]:
    """Returns the nearest fp16 numbers. A lone tiny constant keeps its sign and is not 0: something divides by it."""
    clipped = np.clip(array, -LARGEST, LARGEST)
    if array.size == 1 and array.item() and abs(array.item()) < LEAST:
        clipped = np.copysign(np.full_like(clipped, LEAST), array)
    return clipped.astype(np.float16)


def element_types(model: onnx.ModelProto) -> dict[str, int]:
    """Infers the TensorProto types by value name; a value whose type cannot be told is left out."""
    inferred = onnx.shape_inference.infer_shapes(_skeleton(model)).graph
    values = (*inferred.input, *inferred.value_info, *inferred.output)
    return {value.name: value.type.tensor_type.elem_type for value in values if value.type.tensor_type.elem_type}


def _skeleton(model: onnx.ModelProto) -> onnx.ModelProto:
    """Returns the graph with an input in place of every weight: inference would copy the weights."""
    weights = [helper.make_tensor_value_info(t.name, t.data_type, t.dims) for t in model.graph.initializer]
    graph = helper.make_graph(
        list(model.graph.node), "skeleton", [*model.graph.input, *weights], list(model.graph.output)
    )
    return helper.make_model(graph, opset_imports=list(model.opset_import), ir_version=model.ir_version)
