"""NVIDIA's own parser and builder take the graphs that trtexec would get, with the profiles that it would get."""

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

import model_build.__main__ as command_line
from model_build.backends import backend
from model_build.plan import plan
from model_build.progress import silent
from model_build.tensorrt import rtx
from model_build.tensorrt.profiles import Profile, Range, text2text_profiles
from model_build.tensorrt.trtexec import command
from tests.model_build.miniatures import tiny_bert, tiny_t5
from tests.model_build.tensorrt.tensorrt_graphs import PRECISIONS, T5, T5_CHANNELS, T5_D_KV, fp32_products, needs_rtx
from workloads import ROOT, Serving, TensorRtTarget, Unavailable, load_workload, workload_names

T4_AND_A10G = TensorRtTarget(runtime="tensorrt", instance_types=("ml.g4dn.xlarge", "ml.g5.xlarge"))
T5_TOML = tiny_t5.WORKLOAD_TOML.replace(
    "[serving]",
    '[targets.tensorrt]\nruntime = "tensorrt"\nprecision = "fp16"\ninstance_types = ["ml.g5.xlarge"]\n\n[serving]',
)
Capture = pytest.CaptureFixture[str]
Run = Callable[[str, str], int]


def asked(graph: Path, *profiles: Profile) -> list[str]:
    plan_file, cache = Path("model.plan"), Path("timing.cache")
    return command(graph, plan_file, profiles, T4_AND_A10G, tensorrt="10", timing_cache=cache)


@pytest.fixture
def verify(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> Run:
    """Runs `verify tiny` over a workload of this task."""
    monkeypatch.setattr(command_line, "ROOT", tmp_path)

    def run(task: str, target: str) -> int:
        if task == "text2text-generation":
            tiny_t5.make_workload(tmp_path / "workloads", T5_TOML)
        else:
            tiny_bert.make_workload(tmp_path / "workloads", task)
        capsys.readouterr()  # making a checkpoint shows a progress bar
        return command_line.main(["verify", "tiny", "--target", target, "--builder", "rtx", "--json"])

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


@pytest.mark.slow
@needs_rtx
@pytest.mark.parametrize("name", workload_names(ROOT / "workloads"))
def test_every_graph_of_every_workload_is_built_for_t4_and_a10g(name: str, tmp_path: Path) -> None:
    """For all TensorRT targets, in both precisions; a workload without one gets one.

    The refusals are exactly those of `RTX_ALONE`: products with fp32 operands on a T4.
    """
    source = load_workload(name)
    targets = {name: each for name, each in source.workload.targets.items() if isinstance(each, TensorRtTarget)}
    made = plan(source, next(iter(targets or source.workload.targets)), tmp_path)
    for target in targets.values() or [T4_AND_A10G]:
        assert target.compute_capabilities in (("7.5", "8.6"), ("8.6", "7.5")), "T4 and A10G"
        for precision in PRECISIONS:
            wanted = target.model_copy(update={"precision": precision})
            inputs = replace(made.compile_inputs, target=wanted)
            scratch = tmp_path / "scratch"
            scratch.mkdir(exist_ok=True)
            for each in backend(made).check_engines(inputs, scratch, silent):
                suffix = ".fp16.onnx" if precision == "fp16" else ".onnx"
                (graph,) = scratch.rglob(f"{each.graph}{suffix}")
                refused = each.compute_capability == "7.5" and fp32_products(graph)
                assert (each.plan_bytes is None) == refused, (precision, each)
                assert not each.failed, (precision, each)


@needs_rtx
def test_fp32_on_a_t4_is_refused_by_this_builder_alone_and_says_who_says_so(tmp_path: Path) -> None:
    graph = one_node(tmp_path, "MatMul", "x", "w")
    refused = rtx.check(asked(graph, {"x": Range(min=(1, 8), opt=(2, 8), max=(4, 8))}), "model", "7.5")
    assert refused.plan_bytes is None
    assert "FP32 GEMM is not supported" in str(refused.refusal)
    assert "Tesla T4" in str(refused.evidence)
    assert not refused.failed
    assert rtx.check(asked(graph, {"x": Range(min=(1, 8), opt=(2, 8), max=(4, 8))}), "model", "8.6").plan_bytes


@needs_rtx
@pytest.mark.parametrize(
    ("profile", "says"),
    [
        ({"y": Range(min=(1, 8), opt=(2, 8), max=(4, 8))}, "profile 0 has shapes for y; those of x vary"),
        ({"x": Range(min=(1, 9), opt=(2, 9), max=(4, 9))}, "Dimension mismatch for tensor x and profile 0"),
    ],
)
def test_a_profile_that_does_not_fit_the_graph_is_refused(tmp_path: Path, profile: Profile, says: str) -> None:
    refused = rtx.check(asked(one_node(tmp_path, "MatMul", "x", "w"), profile), "model", "8.6")
    assert refused.failed
    assert says in str(refused.refusal)


@needs_rtx
def test_a_profile_need_not_name_an_input_whose_shape_is_fixed(tmp_path: Path) -> None:
    graph = one_node(tmp_path, "Add", "x", "p")
    assert rtx.check(asked(graph, {"x": Range(min=(1, 8), opt=(2, 8), max=(4, 8))}), "model", "8.6").plan_bytes


@needs_rtx
def test_an_operator_that_nvidias_parser_does_not_know_fails_the_check_and_is_named(tmp_path: Path) -> None:
    graph = one_node(tmp_path, "Unique", "x")
    refused = rtx.check(asked(graph, {"x": Range(min=(1, 8), opt=(2, 8), max=(4, 8))}), "model", "8.6")
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


def fails(command: list[str], graph: str, compute_capability: str) -> rtx.Checked:
    return rtx.Checked(graph=graph, compute_capability=compute_capability, refusal="no kernel for it")


def test_a_refusal_without_evidence_fails_the_verification(
    verify: Run, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.setattr(rtx, "check", fails)
    monkeypatch.setattr("model_build.build.builder_name", lambda: "TensorRT for RTX 1.7.1.116")
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


def test_a_target_without_engines_is_a_usage_error(verify: Run, capsys: Capture) -> None:
    assert verify("text-classification", "cpu") == 2
    assert capsys.readouterr().err == (
        "--builder rtx builds engines of TensorRT, and tiny for cpu is onnxruntime. Leave it out, or name a target "
        'with runtime = "tensorrt".\n'
    )


@pytest.mark.parametrize("graph", ["encoder", "decoder"])
def test_the_profiles_are_those_of_the_builds_own_command(graph: str) -> None:
    serving = Serving(max_batch_size=16, preferred_batch_sizes=(4, 8))
    profiles = text2text_profiles(T5, serving, channels=T5_CHANNELS, d_kv=T5_D_KV)[graph]
    read = rtx.parse(asked(Path("a.onnx"), *profiles))
    assert len(profiles) == 2
    assert read.profiles == dict(enumerate(profiles))
    assert (read.onnx, read.tf32, read.optimization_level) == (Path("a.onnx"), False, 3)


def test_shapes_belong_to_the_profile_named_before_them() -> None:
    shapes = ["--minShapes=x:1x2", "--optShapes=x:1x2", "--maxShapes=x:1x2"]
    wider = [argument.replace("1x2", "8x64") for argument in shapes]
    read = rtx.parse(["trtexec", "--profile=0", *shapes, "--profile=1", *wider])
    assert {number: ranges["x"].max for number, ranges in read.profiles.items()} == {0: (1, 2), 1: (8, 64)}


def test_an_unknown_flag_is_refused() -> None:
    with pytest.raises(ValueError, match="what --int8 asks of trtexec cannot be asked of TensorRT for RTX yet"):
        rtx.parse(["trtexec", "--onnx=a.onnx", "--int8"])
