"""Replaces LayerNormalization by smaller nodes, which ONNX Runtime runs faster on a CPU.

    mean = ReduceMean(x),  c = x - mean,  y = c · 1 / sqrt(ReduceMean(c · c) + epsilon) · weight + bias    (last axis)

ONNX Runtime's kernel of the whole adds one number after the other; those of the parts use the CPU's vectors. With 128
features per token its norms took as long as the products. `c · c` and the reciprocal are written so that its own
optimiser does not put the pattern together again.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

NORM = "LayerNormalization"
AXIS, EPSILON = "norm.axis", "norm.epsilon"


def spell_out(model: onnx.ModelProto) -> None:
    """Replaces, in place, every LayerNormalization over the last axis that has a bias."""
    graph = model.graph
    nodes, epsilons = list(graph.node), set[float]()
    del graph.node[:]
    for node in nodes:
        attributes = {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}
        if node.op_type == NORM and attributes.get("axis", -1) == -1 and len(node.input) == 3 == 2 + len(node.output):
            epsilon = attributes.get("epsilon", 1e-5)
            epsilons.add(epsilon)
            graph.node.extend(_parts(node, f"{EPSILON}.{epsilon:g}"))
        else:
            graph.node.append(node)
    if epsilons:
        graph.initializer.append(numpy_helper.from_array(np.array([-1], np.int64), AXIS))
    for epsilon in sorted(epsilons):
        name = f"{EPSILON}.{epsilon:g}"
        graph.initializer.append(numpy_helper.from_array(np.array(epsilon, np.float32), name))


def _parts(norm: onnx.NodeProto, epsilon: str) -> Iterator[onnx.NodeProto]:
    hidden, weight, bias = norm.input
    (normed,) = norm.output

    def part(op: str, inputs: list[str], output: str, **attributes: Any) -> onnx.NodeProto:
        return helper.make_node(op, inputs, [output], name=f"{norm.name}.{output.rpartition('.')[2]}", **attributes)

    def inside(name: str) -> str:
        return f"{normed}.{name}"

    yield part("ReduceMean", [hidden, AXIS], inside("mean"), keepdims=1)
    yield part("Sub", [hidden, inside("mean")], inside("centred"))
    yield part("Mul", [inside("centred"), inside("centred")], inside("squares"))
    yield part("ReduceMean", [inside("squares"), AXIS], inside("variance"), keepdims=1)
    yield part("Add", [inside("variance"), epsilon], inside("above_zero"))
    yield part("Sqrt", [inside("above_zero")], inside("deviation"))
    yield part("Reciprocal", [inside("deviation")], inside("scale"))
    yield part("Mul", [inside("centred"), inside("scale")], inside("standard"))
    yield part("Mul", [inside("standard"), weight], inside("weighted"))
    yield part("Add", [inside("weighted"), bias], normed)
