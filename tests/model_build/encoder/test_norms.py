"""A norm in small nodes gives what the one node gives."""

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from model_build.encoder import norms

FEATURES = 8


def graph(*, axis: int = -1, bias: bool = True) -> onnx.ModelProto:
    rng = np.random.default_rng(5)
    weights = {"w": rng.normal(size=FEATURES), "b": rng.normal(size=FEATURES)}
    shape: list[str | int | None] = ["rows", "tokens", FEATURES]
    node = helper.make_node(
        norms.NORM, ["x", "w", *(["b"] if bias else [])], ["y"], name="norm", axis=axis, epsilon=1e-6
    )
    return helper.make_model(
        helper.make_graph(
            [node],
            "one",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)],
            [numpy_helper.from_array(value.astype(np.float32), name) for name, value in weights.items()],
        ),
        opset_imports=[helper.make_opsetid("", 18)],
        ir_version=10,
    )


def answers(model: onnx.ModelProto, x: "np.typing.NDArray[np.float32]") -> "np.typing.NDArray[np.float32]":
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, {"x": x})[0])


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
def test_the_parts_give_the_result_of_the_whole_and_stay_apart(scale: float, tmp_path: Path) -> None:
    """ONNX Runtime's optimiser does not fuse the parts into one norm again."""
    whole, parts = graph(), graph()
    norms.spell_out(parts)
    onnx.checker.check_model(parts)
    x = (np.random.default_rng(1).normal(size=(3, 5, FEATURES)) * scale).astype(np.float32)
    np.testing.assert_allclose(answers(parts, x), answers(whole, x), rtol=1e-4, atol=1e-4)
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "fused.onnx")
    onnxruntime.InferenceSession(parts.SerializeToString(), options, providers=["CPUExecutionProvider"])
    operators = {node.op_type for node in onnx.load(tmp_path / "fused.onnx").graph.node}
    assert "ReduceMean" in operators
    assert not any(name.endswith(norms.NORM) for name in operators)


@pytest.mark.parametrize("left", [graph(axis=1), graph(bias=False)], ids=["over two axes", "without a bias"])
def test_another_kind_of_norm_is_left_alone(left: onnx.ModelProto) -> None:
    before = left.SerializeToString()
    norms.spell_out(left)
    assert left.SerializeToString() == before
