"""int8 products: near the fp32 ones, the very ones of ONNX Runtime's own quantiser, and made one weight at a time."""

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization import QuantType, quantize_dynamic

from model_build.encoder import quantise

INPUTS, OUTPUTS = 32, 8
RNG = np.random.default_rng(3)
WEIGHT = RNG.normal(size=(INPUTS, OUTPUTS)).astype(np.float32)
BIAS = RNG.normal(size=OUTPUTS).astype(np.float32)
X = RNG.normal(size=(4, INPUTS)).astype(np.float32)


def graph(*, product_is_an_output: bool = False) -> onnx.ModelProto:
    outputs = ["sum", *(["product"] if product_is_an_output else [])]
    return helper.make_model(
        helper.make_graph(
            [
                helper.make_node("MatMul", ["x", "w"], ["product"], name="multiply"),
                helper.make_node("Add", ["b", "product"], ["sum"], name="add"),
            ],
            "one",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["rows", INPUTS])],
            [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["rows", OUTPUTS]) for name in outputs],
            [numpy_helper.from_array(WEIGHT, "w"), numpy_helper.from_array(BIAS, "b")],
        ),
        opset_imports=[helper.make_opsetid("", 18), helper.make_opsetid(quantise.MICROSOFT, 1)],
        ir_version=10,
    )


def answer(model: onnx.ModelProto) -> "np.typing.NDArray[np.float32]":
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return np.asarray(session.run(["sum"], {"x": X})[0])


def test_the_product_takes_its_bias_and_equals_onnx_runtimes_quantiser(tmp_path: Path) -> None:
    model = graph()
    quantise.quantise(model, tmp_path, {"multiply"})
    assert [node.op_type for node in model.graph.node] == ["DynamicQuantizeMatMul"]
    assert {tensor.name for tensor in model.graph.initializer} == {"w.int8", "w.scale", "b"}
    onnx.save(graph(), tmp_path / "fp32.onnx")
    quantize_dynamic(tmp_path / "fp32.onnx", tmp_path / "theirs.onnx", per_channel=True, weight_type=QuantType.QInt8)
    np.testing.assert_allclose(answer(model), answer(onnx.load(tmp_path / "theirs.onnx")), atol=1e-5)
    assert np.abs(answer(model) - (X @ WEIGHT + BIAS)).max() < 0.2


def test_a_product_that_others_read_keeps_its_addition(tmp_path: Path) -> None:
    model = graph(product_is_an_output=True)
    quantise.quantise(model, tmp_path, {"multiply"})
    assert [node.op_type for node in model.graph.node] == ["DynamicQuantizeMatMul", "Add"]
    assert np.abs(answer(model) - (X @ WEIGHT + BIAS)).max() < 0.2


def test_products_that_are_not_named_stay_as_they_are(tmp_path: Path) -> None:
    model = graph()
    quantise.quantise(model, tmp_path, set())
    np.testing.assert_allclose(answer(model), X @ WEIGHT + BIAS, atol=1e-5)


def test_external_weights_are_read_from_beside_the_graph(tmp_path: Path) -> None:
    onnx.save(graph(), tmp_path / "large.onnx", save_as_external_data=True, location="large.data", size_threshold=0)
    model = onnx.load(tmp_path / "large.onnx", load_external_data=False)
    quantise.quantise(model, tmp_path, {"multiply"})
    quantise.inline(model, tmp_path)
    whole = graph()
    quantise.quantise(whole, tmp_path, {"multiply"})
    np.testing.assert_array_equal(answer(model), answer(whole))


@settings(max_examples=50, deadline=None)
@given(seed=st.integers(0, 999), scale=st.sampled_from([1e-6, 1.0, 1e4]), zero_column=st.booleans())
def test_no_weight_is_further_than_half_a_step_from_its_own(seed: int, scale: float, zero_column: bool) -> None:
    weight = (np.random.default_rng(seed).normal(size=(5, 3)) * scale).astype(np.float32)
    if zero_column:
        weight[:, 1] = 0
    values, steps = quantise.scaled(weight)
    assert values.dtype == np.int8
    assert np.abs(values).max() <= quantise.LARGEST
    assert (np.abs(values * steps - weight) <= steps * 0.5001).all()
