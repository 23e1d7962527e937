"""int8 for TensorRT: ModelOpt's graphs, the gate and whole builds. NVIDIA's builder takes every family."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import model_build.__main__ as command_line
from containers.text2text.generator import TextGenerator
from containers.text2text.static_cache import cache_places
from model_build import layers
from model_build.backends import backend
from model_build.checkpoint.families import FAMILIES
from model_build.execute import build
from model_build.matrix import BEAMS, GENERATION, network_refusal, rows
from model_build.plan import BuildPlan, plan
from model_build.progress import silent
from model_build.tensorrt import int8, rtx
from model_build.tensorrt.engines import check_graphs
from model_build.tensorrt.profiles import Range
from model_build.text2text import repository, static_onnx
from tests.builders import known, message_of
from tests.containers import fake_tensorrt
from tests.model_build.miniatures import tiny_bert, tiny_t5
from tests.model_build.miniatures.tiny_rows import make_workload
from tests.model_build.tensorrt.gpu_machine import T4, install_all
from tests.model_build.tensorrt.tensorrt_graphs import PRECISIONS, fp32_products, needs_modelopt, needs_rtx
from workloads import TensorRtTarget, Unavailable, UsageError, load_workload

TARGET = """
[targets.tensorrt-int8]
runtime = "tensorrt"
precision = "int8"
instance_types = ["ml.g4dn.xlarge", "ml.g5.xlarge"]
parity = { max_metric_drop = 1.0 }
"""
BERT, T5 = "text-classification", "text2text-generation"
Q, DQ = "QuantizeLinear", "DequantizeLinear"
Make = Callable[..., BuildPlan]
Capture = pytest.CaptureFixture[str]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """Returns the plan of a tiny workload of a task, with these replacements in the target."""

    def of(task: str, old: str = "", new: str = "") -> BuildPlan:
        miniature = tmp_path / "workloads"
        if not miniature.exists():
            tiny_t5.make_workload(miniature) if task == T5 else tiny_bert.make_workload(miniature, task)
        file = miniature / "tiny" / "workload.toml"
        without = file.read_text().partition("\n[targets.tensorrt-int8]")[0]
        file.write_text(without + TARGET.replace(old, new) if old else without + TARGET)
        return plan(load_workload("tiny", miniature), "tensorrt-int8", tmp_path)

    return of


def quantised(planned: BuildPlan, folder: Path) -> dict[str, onnx.ModelProto]:
    (folder / "scratch").mkdir(exist_ok=True)
    typed = backend(planned).typed_graphs(planned.compile_inputs, folder / "typed", folder / "scratch", silent)
    return {name: onnx.load(file) for name, file in typed.items()}


def quantised_products(model: onnx.ModelProto) -> set[str]:
    """Returns the products with a DQ node at both inputs, by name."""
    makers = {output: node.op_type for node in model.graph.node for output in node.output}
    return {
        node.name
        for node in model.graph.node
        if node.op_type == "MatMul" and all(makers.get(name) == DQ for name in node.input)
    }


@needs_modelopt
@pytest.mark.parametrize("task", [BERT, T5])
def test_products_of_weights_are_symmetric_int8_by_channel_and_no_others(make: Make, task: str, tmp_path: Path) -> None:
    for name, model in quantised(make(task), tmp_path).items():
        onnx.checker.check_model(model, full_check=True)
        portable = next((tmp_path / "scratch").rglob(f"{name}.onnx"))
        assert quantised_products(model) == set(layers.products(portable))
        values = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
        for node in (each for each in model.graph.node if each.op_type in (Q, DQ)):
            scale, zero = values[node.input[1]], values[node.input[2]]
            assert scale.dtype == np.float16
            assert zero.dtype == np.int8
            assert not zero.any()
            assert (scale > 0).all()
            if node.op_type == Q:
                weight = values.get(node.input[0])
                assert scale.shape == (() if weight is None else weight.shape[1:])


@needs_modelopt
def test_a_layer_in_fp32_is_not_quantised(make: Make, tmp_path: Path) -> None:
    planned = make(BERT, "[targets.tensorrt-int8]", '[targets.tensorrt-int8]\nfp32_layers = ["layers.0.out"]')
    model = quantised(planned, tmp_path)["model"]
    of_node = layers.products(tmp_path / "scratch" / "model.onnx")
    assert {of_node[name] for name in of_node.keys() - quantised_products(model)} == {"layers.0.out"}


@pytest.mark.parametrize("graph", ["encoder", "decoder"])
def test_a_t5_is_calibrated_on_its_rows_and_on_the_steps_of_its_own_answers(
    make: Make, graph: str, tmp_path: Path
) -> None:
    planned = make(T5, '"int8"', '"fp16"')
    inputs = replace(planned.compile_inputs, calibration=planned.compile_inputs.calibration[:3])
    typed = backend(planned).typed_graphs(inputs, tmp_path / "typed", tmp_path, silent)
    feeds = [dict(each) for each in static_onnx.calibration(inputs, typed)[graph]]
    (tmp_path / "typed" / "tokenizer.json").write_bytes(planned.checkpoint.tokenizer.read_bytes())
    known = replace(repository.settings(inputs.text2text, planned.target, planned.checkpoint), max_batch_size=4)
    served: TextGenerator = static_onnx.generator(tmp_path / "typed", known)
    rows = [served.tokenise(row["text"].encode()) for row in inputs.calibration]
    if graph == "encoder":
        (only,) = feeds
        assert [list(ids[: sum(mask)]) for ids, mask in zip(*only.values(), strict=True)] == rows
        return
    answers = served.generate(rows, known.generation)  # type: ignore[arg-type]
    assert len(feeds) == max(map(len, answers))
    assert feeds[0]["past"].shape[2] == cache_places(12)
    for row, answer in enumerate(answers):
        fed = [int(each["tokens"][row, 0]) for each in feeds]
        assert fed[: len(answer)] == [known.decoder_start_token_id, *answer[:-1]]
    assert [int(each["position"][0]) for each in feeds] == list(range(len(feeds)))


@needs_modelopt
@pytest.mark.parametrize(("task", "graphs"), [(BERT, 1), (T5, 2)])
def test_a_build_on_a_t4_quantises_and_passes_the_gate(
    make: Make, task: str, graphs: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tools := tmp_path / "bin").mkdir()
    install_all(tools, gpu=T4)
    monkeypatch.setenv("PATH", str(tools))
    fake_tensorrt.install(monkeypatch, fake_tensorrt.Gpu())
    planned = make(task)
    artifact = build(planned)
    assert (artifact.precision, artifact.toolchain["nvidia-modelopt"]) == ("int8", int8.record()["nvidia-modelopt"])
    assert 1e-3 < known(artifact.parity).max_logit_difference < 2
    plans = [
        file.read_bytes()[fake_tensorrt.HEADER_BYTES :].partition(b"\n")[2]
        for file in planned.repository.rglob("*.plan")
    ]
    assert len(plans) == graphs
    assert all(quantised_products(onnx.load_from_string(each)) for each in plans)


@needs_modelopt
@pytest.mark.parametrize("task", [BERT, T5])
def test_the_gate_judges_the_graphs_on_this_cpu(
    make: Make, task: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.setattr(command_line, "ROOT", tmp_path)
    make(task)
    capsys.readouterr()
    verify = ["verify", "tiny", "--target", "tensorrt-int8", "--builder", "onnxruntime", "--json"]
    assert command_line.main(verify) == 0
    figures = json.loads(capsys.readouterr().out)
    assert figures["examples"] == (40 if task == T5 else 24)
    assert 1e-3 < figures["max_logit_difference"] < 2
    assert not list(tmp_path.rglob("artifact.json"))


@needs_modelopt
@pytest.mark.slow
def test_a_gate_that_int8_misses_names_the_layers_to_keep(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.setattr(command_line, "ROOT", tmp_path)
    make(BERT, "max_metric_drop = 1.0", "max_logit_difference = 1e-3, max_metric_drop = 1.0")
    assert command_line.main(["verify", "tiny", "--target", "tensorrt-int8", "--builder", "onnxruntime"]) == 1
    assert "Or keep these layers in fp32, with which it passes: fp32_layers = [" in capsys.readouterr().err


@needs_modelopt
@needs_rtx
@pytest.mark.parametrize("capability", ["7.5", "8.6", "8.9"])
def test_nvidias_builder_takes_the_weights_in_int8(capability: str, tmp_path: Path) -> None:
    """Half the bytes of the fp16 engine: the pairs of nodes became an int8 product."""
    size, rng, half = 1024, np.random.default_rng(0), TensorProto.FLOAT16
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"], name="it")],
        "one",
        [helper.make_tensor_value_info("x", half, ["rows", size])],
        [helper.make_tensor_value_info("y", half, ["rows", size])],
        [numpy_helper.from_array(rng.standard_normal((size, size)).astype(np.float16), "w")],
    )
    files = {"fp16": tmp_path / "fp16.onnx", "int8": tmp_path / "int8.onnx"}
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10), files["fp16"])
    int8.quantise(files["fp16"], files["int8"], ["it"], [{"x": rng.standard_normal((4, size)).astype(np.float16)}])
    target = TensorRtTarget(runtime="tensorrt", precision="int8", instance_types=("ml.g5.xlarge",))
    profile = {"x": Range(min=(1, size), opt=(16, size), max=(32, size))}
    plans = {
        name: rtx.check(file, [profile], target, graph=name, compute_capability=capability).plan_bytes or 0
        for name, file in files.items()
    }
    assert 0.4 < (plans["int8"] / plans["fp16"]) < 0.7


@pytest.mark.parametrize("task", [BERT, T5])
def test_without_rows_to_calibrate_with_it_is_refused(make: Make, task: str, tmp_path: Path) -> None:
    planned = make(task)
    inputs = replace(planned.compile_inputs, calibration=())
    typed_graphs = backend(planned).typed_graphs
    assert message_of(UsageError, typed_graphs, inputs, tmp_path / "t", tmp_path, silent) == (
        "targets.tensorrt-int8.precision: int8 needs rows to calibrate with, and evaluation.jsonl has none. Add rows "
        "as users send them, 128 or more, or set precision to fp16."
    )


def test_a_network_of_convolutions_is_refused() -> None:
    target = TensorRtTarget(runtime="tensorrt", precision="int8", instance_types=("ml.g5.xlarge",))
    assert network_refusal(FAMILIES["squeezebert"], target) == (
        "int8 would not change it: its layers are convolutions, and the quantiser takes products of matrices. "
        "Allowed: fp32, fp16."
    )
    assert network_refusal(FAMILIES["bert"], target) is None


def test_without_modelopt_one_sentence_says_how_to_install_it(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(int8, "find_spec", lambda name: None)
    assert message_of(Unavailable, quantised, make(BERT), tmp_path) == (
        "NVIDIA ModelOpt, which quantises graphs to int8 for TensorRT, is not installed. Install it with "
        "`pip install -e '.[modelopt]'`, or set precision to fp16."
    )


def test_other_rows_to_calibrate_with_compile_the_graphs_again(make: Make) -> None:
    inputs = make(BERT).compile_inputs
    other = replace(inputs, calibration=inputs.calibration[1:])
    assert inputs.facts() != other.facts()
    half = make(BERT, '"int8"', '"fp16"').compile_inputs
    assert half.facts() == replace(half, calibration=()).facts()


def test_trtexec_takes_the_types_of_the_graph(make: Make) -> None:
    steps = make(BERT).document()["compiler"]
    assert "modelopt.onnx.quantization.quantize: static quantisation to int8" in steps
    commands = {step.partition(",")[0]: step for step in steps if "trtexec" in step}
    assert "--stronglyTyped" in commands["# TensorRT 10"]
    assert "--stronglyTyped" not in commands["# TensorRT 11"]
    assert not any("--int8" in step or "--fp16" in step for step in steps)


@needs_modelopt
def test_a_quantiser_that_fails_is_an_error_with_its_exit_status(tmp_path: Path) -> None:
    (graph := tmp_path / "broken.onnx").write_bytes(b"broken")
    with pytest.raises(RuntimeError, match=r"^ModelOpt could not quantise broken\.onnx: it ended with 1\.$"):
        int8.quantise(graph, tmp_path / "made.onnx", ["it"], [{"x": np.zeros(2**20, np.float32)}] * 9)


CELLS = [(row.model_type, row.task) for row in rows() if "tensorrt" in row.targets and row.task != BEAMS]
TYPES = ("ml.g4dn.xlarge", "ml.g5.xlarge", "ml.g6.xlarge")
QUICK = ("roberta", "text-classification")
FULLY = {QUICK, ("bert", "text-classification"), ("modernbert", "text-classification"), ("t5", GENERATION)}
"""Built in each precision for each GPU. A builder takes seconds an engine, and the other families' graphs are alike."""
ALL = [pytest.param(*each, marks=() if each == QUICK else pytest.mark.slow) for each in CELLS]


@needs_rtx
@pytest.mark.parametrize(("family", "task"), ALL)
def test_nvidias_builder_makes_engines_for_t4_a10g_and_l4(family: str, task: str, tmp_path: Path) -> None:
    """Refused are products in fp32 for a T4, which this builder alone has not."""
    made = plan(make_workload(tmp_path / "workloads", family, task), "tensorrt", tmp_path)
    assert isinstance(made.target, TensorRtTarget)
    each_type = [(precision, TYPES) for precision in PRECISIONS]
    spread = [("fp32", TYPES[1:2]), ("fp16", (TYPES[0], TYPES[2]))]
    for precision, types in each_type if (family, task) in FULLY else spread:
        target = made.target.model_copy(update={"precision": precision, "instance_types": types})
        inputs = replace(made.compile_inputs, target=target)
        typed = backend(made).typed_graphs(inputs, tmp_path / precision, tmp_path, silent)
        checked = check_graphs(inputs, typed, silent)
        assert len(checked) == len(types) * (2 if task == GENERATION else 1)
        for each in checked:
            refused = each.compute_capability == "7.5" and fp32_products(typed[each.graph])
            assert not each.failed, (precision, each)
            assert (each.plan_bytes is None) == refused, (precision, each)
