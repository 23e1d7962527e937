"""Every operator of every graph we export is one that TensorRT's parser is published to take."""

from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

from model_build.checkpoint import resolve
from model_build.encoder import export as encoder
from model_build.tensorrt.precision import T5_CACHES, to_fp16
from model_build.text2text import export as text2text
from tests.model_build.tensorrt.operators import table, unsupported
from tests.model_build.tensorrt.tensorrt_graphs import GRAPHS, graph
from workloads import ROOT, TextToText, load_workload, workload_names

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64


def one_node(
    op_type: str, kind: int = FLOAT, *, opset: int = 18, domain: str = "", output: int | None = None, inputs: int = 1
) -> onnx.ModelProto:
    names = [f"x{i}" for i in range(inputs)]
    graph = helper.make_graph(
        [helper.make_node(op_type, names, ["y"], name="it", domain=domain)],
        "one",
        [helper.make_tensor_value_info(name, INT64 if i else kind, None) for i, name in enumerate(names)],
        [helper.make_tensor_value_info("y", kind if output is None else output, None)],
    )
    opsets = [helper.make_opsetid("", opset), *([helper.make_opsetid(domain, 1)] if domain else [])]
    return helper.make_model(graph, opset_imports=opsets)


@pytest.mark.parametrize("name", GRAPHS)
def test_every_exported_graph_is_taken_in_fp32(name: str) -> None:
    assert unsupported(graph(name)) == []


@pytest.mark.parametrize("name", GRAPHS)
def test_every_exported_graph_is_taken_in_fp16(name: str) -> None:
    model = graph(name)
    assert unsupported(to_fp16(model, half=T5_CACHES)) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", workload_names(ROOT / "workloads"))
def test_every_graph_of_every_workload_is_taken_in_fp32_and_in_fp16(name: str, tmp_path: Path) -> None:
    """The real checkpoints, whether or not the workload has a target for TensorRT."""
    source = load_workload(name)
    checkpoint = resolve(source, tmp_path / "cache")
    model = source.workload.model
    if isinstance(model, TextToText):
        limits = {"max_input_tokens": model.max_input_tokens, "max_output_tokens": model.max_output_tokens}
        text2text.export(text2text.load(checkpoint.folder), tmp_path, **limits, static=True)
    else:
        encoder.export_checkpoint(checkpoint, model, tmp_path)
    files = sorted(tmp_path.glob("*.onnx"))
    assert files
    for file in files:
        exported = onnx.load(file)
        assert unsupported(exported) == []
        assert unsupported(to_fp16(exported, half=T5_CACHES)) == []


def test_an_operator_that_is_published_as_unsupported_is_reported() -> None:
    assert unsupported(one_node("Unique")) == ["Unique it: is not supported by TensorRT 10.15."]


def test_an_operator_outside_the_table_is_reported() -> None:
    assert unsupported(one_node("Warp")) == [
        "Warp it: is not in operators.toml; look it up in onnx/onnx-tensorrt's docs/operators.md and add it."
    ]


def test_an_operator_of_another_domain_is_reported() -> None:
    assert unsupported(one_node("FusedMatMul", domain="com.microsoft")) == [
        "FusedMatMul it: is of com.microsoft, not one of ONNX's own operators."
    ]


def test_an_unpublished_type_of_an_operator_is_reported() -> None:
    assert unsupported(one_node("NonZero", output=INT64)) == []
    assert unsupported(one_node("NonZero", INT64, output=INT64)) == [
        "NonZero it: x0 is INT64; TensorRT 10.15 takes FP32, FP16."
    ]


def test_an_unknown_type_is_reported() -> None:
    assert unsupported(one_node("Relu", TensorProto.DOUBLE)) == [
        "Relu it: x0 is DOUBLE; TensorRT 10.15 takes FP32, FP16, BF16, INT32, INT64.",
        "Relu it: y is DOUBLE; TensorRT 10.15 takes FP32, FP16, BF16, INT32, INT64.",
    ]


def test_axes_known_only_from_requests_are_reported() -> None:
    assert unsupported(one_node("ReduceMean", inputs=2)) == ["ReduceMean it: x1 must be a constant."]


def test_an_opset_out_of_range_is_reported() -> None:
    assert unsupported(one_node("Relu", opset=8)) == ["The graph is of opset 8; TensorRT 10.15 takes 9 to 24."]


def test_the_table_names_its_source() -> None:
    source = table().source
    assert (source.project, source.file, source.version) == (
        "onnx/onnx-tensorrt",
        "docs/operators.md",
        "TensorRT 10.15",
    )


def test_every_operator_of_the_table_is_one_of_onnx() -> None:
    known = {schema.name for schema in onnx.defs.get_all_schemas()}
    assert set(table().operators) <= known
