"""NVIDIA's own parser and builder take the graphs that trtexec would get, with the profiles that it would get."""

import json
import sys
from collections.abc import Callable
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

import model_build.__main__ as command_line
from model_build.tensorrt import rtx
from model_build.tensorrt.profiles import Range
from tests.model_build.miniatures import tiny_bert, tiny_t5
from tests.model_build.tensorrt.tensorrt_graphs import needs_rtx
from workloads import TensorRtTarget, Unavailable

T4_AND_A10G = TensorRtTarget(runtime="tensorrt", instance_types=("ml.g4dn.xlarge", "ml.g5.xlarge"))
T5_TOML = tiny_t5.WORKLOAD_TOML.replace(
    "[serving]",
    '[targets.tensorrt]\nruntime = "tensorrt"\nprecision = "fp16"\ninstance_types = ["ml.g5.xlarge"]\n\n[serving]',
)
Capture = pytest.CaptureFixture[str]
Run = Callable[..., int]


def check(graph: Path, capability: str, **ranges: Range) -> rtx.Checked:
    """Builds a graph with one profile; without one, x has up to four rows."""
    profile = ranges or {"x": Range(min=(1, 8), opt=(2, 8), max=(4, 8))}
    return rtx.check(graph, [profile], T4_AND_A10G, graph="model", compute_capability=capability)


@pytest.fixture
def verify(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> Run:
    """Runs `verify tiny` over a workload of this task."""
    monkeypatch.setattr(command_line, "ROOT", tmp_path)

    def run(task: str, target: str, builder: str = "rtx") -> int:
        if task == "text2text-generation":
            tiny_t5.make_workload(tmp_path / "workloads", T5_TOML)
        else:
            tiny_bert.make_workload(tmp_path / "workloads", task)
        capsys.readouterr()  # making a checkpoint shows a progress bar
        return command_line.main(["verify", "tiny", "--target", target, "--builder", builder, "--json"])

    return run


@needs_rtx
@pytest.mark.parametrize(
    ("task", "plans"),
    [
        ("text2text-generation", [("encoder", "8.6"), ("decoder", "8.6")]),
        ("text-pair-scoring", [("model", "7.5"), ("model", "8.6")]),
    ],
)
def test_small_engines_are_built(verify: Run, task: str, plans: list[tuple[str, str]], capsys: Capture) -> None:
    assert verify(task, "tensorrt") == 0
    document = json.loads(capsys.readouterr().out)
    assert document["builder"].startswith("TensorRT for RTX 1.")
    assert [(each["graph"], each["compute_capability"]) for each in document["engines"]] == plans
    assert all(each["plan_bytes"] > 10_000 for each in document["engines"])


@needs_rtx
def test_fp32_on_a_t4_is_refused_by_this_builder_only_and_has_evidence(tmp_path: Path) -> None:
    graph = one_node(tmp_path, "MatMul", "x", "w")
    refused = check(graph, "7.5")
    assert refused.plan_bytes is None
    assert "FP32 GEMM is not supported" in str(refused.refusal)
    assert "Tesla T4" in str(refused.evidence)
    assert not refused.failed
    assert check(graph, "8.6").plan_bytes


@needs_rtx
@pytest.mark.parametrize(
    ("profile", "problem"),
    [
        ({"y": Range(min=(1, 8), opt=(2, 8), max=(4, 8))}, "profile 0 has shapes for y; those of x vary"),
        ({"x": Range(min=(1, 9), opt=(2, 9), max=(4, 9))}, "Dimension mismatch for tensor x and profile 0"),
    ],
)
def test_a_profile_that_does_not_fit_the_graph_is_refused(
    tmp_path: Path, profile: dict[str, Range], problem: str
) -> None:
    refused = check(one_node(tmp_path, "MatMul", "x", "w"), "8.6", **profile)
    assert refused.failed
    assert problem in str(refused.refusal)


@needs_rtx
def test_a_fixed_input_needs_no_range_and_an_unknown_operator_is_named(tmp_path: Path) -> None:
    assert check(one_node(tmp_path, "Add", "x", "p"), "8.6").plan_bytes
    refused = check(one_node(tmp_path, "Unique", "x"), "8.6")
    assert refused.failed
    assert str(refused.refusal).startswith("Unique it: ")


def one_node(folder: Path, op_type: str, *inputs: str) -> Path:
    """A graph whose inputs are x [rows, 8] and, where it is named, p [8]; w is a weight."""
    made = helper.make_graph(
        [helper.make_node(op_type, inputs, ["y"], name="it")],
        "one",
        [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, ["rows", 8] if name == "x" else [8])
            for name in inputs
            if name != "w"
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [helper.make_tensor("w", TensorProto.FLOAT, [8, 8], [0.5] * 64)] if "w" in inputs else [],
    )
    file = folder / "one.onnx"
    onnx.save(helper.make_model(made, opset_imports=[helper.make_opsetid("", 18)], ir_version=10), file)
    return file


def test_a_refusal_without_evidence_fails_the_verification(
    verify: Run, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.setattr(rtx, "check", lambda *_, **keys: rtx.Checked(refusal="no kernel for it", **keys))
    monkeypatch.setattr("model_build.execute.builder_name", lambda: "TensorRT for RTX 1.7.1.116")
    monkeypatch.setattr(rtx, "builder_name", lambda: "TensorRT for RTX 1.7.1.116")
    assert verify("text-pair-scoring", "tensorrt") == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines()[:2] == [
        f"tiny for tensorrt: TensorRT for RTX 1.7.1.116 cannot build model for compute capability {capability}, and "
        "trtexec most likely cannot either: no kernel for it"
        for capability in ("7.5", "8.6")
    ]


def test_where_it_is_not_installed_one_sentence_says_how_to_install_it(
    verify: Run, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.setitem(sys.modules, "tensorrt_rtx_bindings", None)
    assert verify("text-classification", "tensorrt") == Unavailable.exit_code == 3
    out, err = capsys.readouterr()
    assert out == ""
    assert err == (
        "TensorRT for RTX, which builds engines on a machine without a GPU, cannot be imported (import of "
        "tensorrt_rtx_bindings halted; None in sys.modules). Install it with `pip install -e '.[tensorrt-check]'`: 95 "
        "MB, under NVIDIA's own licence, for Linux on x86-64.\n"
    )


@pytest.mark.parametrize("builder", ["rtx", "onnxruntime"])
def test_a_target_without_engines_is_a_usage_error(verify: Run, builder: str, capsys: Capture) -> None:
    assert verify("text-classification", "cpu", builder) == 2
    assert capsys.readouterr().err == (
        f"--builder {builder} takes the graphs of TensorRT's engines, and tiny for cpu is onnxruntime. Leave it out, "
        'or name a target with runtime = "tensorrt".\n'
    )
