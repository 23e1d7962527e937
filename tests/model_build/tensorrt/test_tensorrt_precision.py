"""fp16 graphs are valid, agree with fp32 within fp16's reach, and kept layers mend an overflow."""

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, numpy_helper
from onnx.reference import ReferenceEvaluator

from model_build import layers
from model_build.tensorrt.precision import T5_CACHES, element_types, to_fp16
from model_build.text2text.t5 import SCALE
from tests.model_build.tensorrt.tensorrt_graphs import GRAPHS, VOCABULARY, graph

SIZES = {"batch": 3, "sequence": 7, "source": 7}
LETTERS = 28  # ids of the tiny T5 below this one are letters
Feeds = dict[str, NDArray[Any]]


def feeds(model: onnx.ModelProto) -> Feeds:
    rng = np.random.default_rng(7)
    made: Feeds = {}
    for value in model.graph.input:
        shape = [SIZES.get(d.dim_param, d.dim_value) for d in value.type.tensor_type.shape.dim]
        kind = value.type.tensor_type.elem_type
        made[value.name] = rng.standard_normal(shape).astype(np.float16 if kind == TensorProto.FLOAT16 else np.float32)
        if kind == TensorProto.INT64:
            made[value.name] = rng.integers(0, min(LETTERS, VOCABULARY), shape)
    wholes = {"attention_mask": 1, "token_type_ids": 0, "position_ids": 3, "valid_length": 5, "position": 4}
    for name, whole in wholes.items():
        if name in made:
            made[name] = np.full_like(made[name], whole)
    if "attention_mask" in made:
        made["attention_mask"][1:, -2:] = 0
    if "cross_bias" in made:
        made["cross_bias"] = np.zeros_like(made["cross_bias"])
    return made


def run(model: onnx.ModelProto) -> dict[str, NDArray[Any]]:
    """Runs onnx's reference, which computes in the types as they are written.

    ONNX Runtime on CPU would not: it computes fp16 in fp32 and takes out the casts between two nodes, and with them the
    overflow.
    """
    names = [value.name for value in model.graph.output]
    with np.errstate(all="ignore"):
        return dict(zip(names, ReferenceEvaluator(model).run(names, feeds(model)), strict=True))


def run_served(model: onnx.ModelProto) -> dict[str, NDArray[Any]]:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    names = [value.name for value in model.graph.output]
    return dict(zip(names, session.run(names, feeds(model)), strict=True))


def agree(expected: dict[str, NDArray[Any]], got: dict[str, NDArray[Any]]) -> bool:
    """Compares to seven of fp16's eleven bits of the largest value; masks need only be very negative."""
    for output, values in expected.items():
        masked = values < -6e4
        largest = np.abs(values[~masked]).max(initial=1.0)
        if not (np.abs(got[output] - values)[~masked] < largest / 2**7).all() or (got[output][masked] > -6e4).any():
            return False
    return True


def enlarge(model: onnx.ModelProto, weight: str, factor: float) -> onnx.ModelProto:
    """A copy whose weight, called so or used by the layer called so, is larger."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    used = {
        name
        for node, layer in zip(model.graph.node, layers.by_node(model), strict=True)
        if layer == weight and node.op_type in layers.PRODUCTS
        for name in node.input
    }
    (tensor,) = [tensor for tensor in copy.graph.initializer if tensor.name in used and len(tensor.dims) > 1]
    tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor) * np.float32(factor), tensor.name))
    return copy


def largest_sum(model: onnx.ModelProto) -> float:
    """The largest value of a residual stream."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    sums = [node.output[0] for node in model.graph.node if node.op_type == "Add"]
    floats = [name for name in sums if element_types(model).get(name) == TensorProto.FLOAT]
    copy.graph.output.extend(onnx.helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in floats)
    outputs = run(copy)
    return max(float(np.abs(outputs[name]).max()) for name in floats if outputs[name].shape[-1] == 32)


@pytest.mark.parametrize("name", GRAPHS)
def test_a_valid_graph_with_fp16_products_agrees_with_fp32(name: str) -> None:
    model = graph(name)
    half = to_fp16(model)
    onnx.checker.check_model(half, full_check=True)
    types = element_types(half)
    products = [value for node in half.graph.node if node.op_type in layers.PRODUCTS for value in node.input]
    assert {types[value] for value in products} == {TensorProto.FLOAT16}
    assert list(half.graph.input) == list(model.graph.input)
    assert list(half.graph.output) == list(model.graph.output)
    assert agree(run(model), run(half))
    assert agree(run_served(model), run_served(half))


@pytest.mark.parametrize("name", GRAPHS)
def test_keeping_everything_gives_the_original_answers(name: str) -> None:
    model = graph(name)
    kept = run(to_fp16(model, layers.names(model)))
    assert all(np.array_equal(kept[output], values) for output, values in run(model).items())


def test_caches_can_pass_the_border_in_fp16() -> None:
    model = graph("t5-decoder")
    half = to_fp16(model, half=T5_CACHES)
    onnx.checker.check_model(half, full_check=True)
    types = {value.name: value.type.tensor_type.elem_type for value in (*half.graph.input, *half.graph.output)}
    assert {name for name, kind in types.items() if kind == TensorProto.FLOAT16} == {"cross", "past", "present"}
    assert not [
        n for n in half.graph.node if n.op_type == "Cast" and {*n.input, *n.output} & {"cross", "past", "present"}
    ]
    difference = run(half)["logits"] - run(model)["logits"]
    assert np.abs(difference).max() < 1e-1


@pytest.mark.parametrize("name", ["t5-encoder", "t5-decoder", "gated-t5-encoder", "gated-t5-decoder"])
def test_a_t5_with_a_residual_above_65504_needs_no_layer_in_fp32(name: str) -> None:
    """Unscaled, the sums behind `wo` would be infinite. Scaled, every product is in fp16, and only squares are not."""
    model = enlarge(graph(name), "layers.0.feed_forward.out", 1e4)
    assert 65504 < largest_sum(model) / SCALE < 2e6
    half = to_fp16(model)
    assert agree(run(model), run(half))
    types = element_types(half)
    products = [node for node in half.graph.node if node.op_type in layers.PRODUCTS]
    assert {types[value] for node in products for value in (*node.input, *node.output)} == {TensorProto.FLOAT16}


def test_a_residual_that_left_fp16s_range_in_one_layer_stays_in_fp32_behind_it() -> None:
    """The layer behind the planted one is not kept: the sum it adds to is."""
    model = enlarge(graph("t5-encoder"), "layers.0.feed_forward.out", 3e4 / SCALE)
    half = to_fp16(model, ["layers.0.feed_forward.out"])
    types = element_types(half)
    sums = [
        types[node.output[0]]
        for node, layer in zip(half.graph.node, layers.by_node(half), strict=True)
        if layer in ("layers.1.own", "layers.1.feed_forward.own") and node.op_type == "Add"
    ]
    assert sums == [TensorProto.FLOAT16, TensorProto.FLOAT, TensorProto.FLOAT]  # the scores' bias, two residuals
    assert agree(run(model), run(half))


@pytest.mark.parametrize("size", [1, 3])
@pytest.mark.parametrize("number", [0.0, 1.5, -1e-9, 1e-7, 65504.0, 3e38, -np.inf])
def test_every_constant_becomes_the_nearest_that_fp16_has(number: float, size: int) -> None:
    constant = numpy_helper.from_array(np.full(size, number, np.float32), "constant")
    node = onnx.helper.make_node("Add", ["x", "constant"], ["y"])
    ends = [onnx.helper.make_tensor_value_info(name, TensorProto.FLOAT, [size]) for name in ("x", "y")]
    graph = onnx.helper.make_graph([node], "one", ends[:1], ends[1:], [constant])
    half = to_fp16(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 18)]))
    (made,) = numpy_helper.to_array(half.graph.initializer[0])[:1]
    assert np.isfinite(made)
    assert abs(float(made) - np.clip(number, -65504, 65504)) <= max(2e-3 * abs(number), 6e-8)
    assert size > 1 or (made == 0) == (number == 0)
