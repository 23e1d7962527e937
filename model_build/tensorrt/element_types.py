"""The element type of every value of a graph, by onnx's own inference and without its weights in memory twice."""

import onnx
from onnx import helper


def element_types(model: onnx.ModelProto) -> dict[str, int]:
    """TensorProto types by value name; a value whose type cannot be told is not in it."""
    inferred = onnx.shape_inference.infer_shapes(_skeleton(model)).graph
    values = (*inferred.input, *inferred.value_info, *inferred.output)
    return {value.name: value.type.tensor_type.elem_type for value in values if value.type.tensor_type.elem_type}


def _skeleton(model: onnx.ModelProto) -> onnx.ModelProto:
    """The graph with an input in place of every weight."""
    weights = [helper.make_tensor_value_info(t.name, t.data_type, t.dims) for t in model.graph.initializer]
    graph = helper.make_graph(
        list(model.graph.node), "skeleton", [*model.graph.input, *weights], list(model.graph.output)
    )
    return helper.make_model(graph, opset_imports=list(model.opset_import), ir_version=model.ir_version)
