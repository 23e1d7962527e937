"""Sums of products of 8 bits are exact on every CPU: by its own instructions, or by ONNX Runtime's slower kernels."""

from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from containers.encoder.engines import onnx_engine
from containers.text2text import engine

KEY = "session.x64quantprecision"


def session(module: ModuleType, file: Path) -> onnxruntime.InferenceSession:
    if module is engine:
        return engine.session(file, threads=1)
    made: Any = onnx_engine.OnnxEngine(file, threads=1)
    return made._session


@pytest.fixture
def product(tmp_path: Path) -> Path:
    """A product of uint8 activations and int8 weights, all as large as they can be."""
    weights = numpy_helper.from_array(np.full((64, 4), 127, np.int8), "weights")
    node = helper.make_node("MatMulInteger", ["hidden", "weights"], ["sums"])
    hidden = helper.make_tensor_value_info("hidden", TensorProto.UINT8, [1, 64])
    sums = helper.make_tensor_value_info("sums", TensorProto.INT32, [1, 4])
    graph = helper.make_graph([node], "product", [hidden], [sums], [weights])
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), tmp_path / "model.onnx"
    )
    return tmp_path / "model.onnx"


@pytest.mark.parametrize("module", [engine, onnx_engine])
@pytest.mark.parametrize(("flags", "slower"), [("avx2 avx512f", True), ("avx512_vnni", False), ("avx_vnni", False)])
def test_only_a_cpu_without_vnni_takes_the_slower_kernels(
    module: ModuleType, flags: str, slower: bool, product: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text(f"model name\t: stand-in\nflags\t\t: fpu {flags}\n", "utf-8")
    monkeypatch.setattr(module, "CPUINFO", cpuinfo)
    options = session(module, product).get_session_options()
    if slower:
        assert options.get_session_config_entry(KEY) == "1"
    else:
        with pytest.raises(RuntimeError, match="does not have configuration"):
            options.get_session_config_entry(KEY)


@pytest.mark.parametrize("module", [engine, onnx_engine])
def test_the_largest_sums_are_exact_on_this_cpu(module: ModuleType, product: Path) -> None:
    (sums,) = session(module, product).run(None, {"hidden": np.full((1, 64), 255, np.uint8)})
    assert sums.tolist() == [[64 * 255 * 127] * 4]
