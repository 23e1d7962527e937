"""OpenVINO targets: parity in each precision, the archive, and the errors that users meet first."""

from collections.abc import Callable
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

from containers.encoder.engines.engine import LacksInstructionSet
from containers.encoder.engines.openvino_engine import CPUINFO, check_cpu
from containers.encoder.settings import Settings
from model_build import render
from model_build.encoder import openvino_graph
from model_build.execute import build
from tests.builders import known, message_of
from tests.model_build.encoder.test_encoder_build import Make, make, parity_of
from tests.model_build.miniatures import edited, plan_of, tiny_t5
from tests.model_build.miniatures.tiny_bert import make_workload
from workloads import OpenVinoTarget, Unavailable, UsageError, WorkloadFolder, file_sha256
from workloads.errors import InvalidDocument

__all__ = ["make"]  # the fixture

BF16 = ("amx_bf16", "avx512_bf16")
needs_bf16 = pytest.mark.skipif(
    not set(BF16) & set(CPUINFO.read_text().split()), reason=f"this CPU has none of {', '.join(BF16)}"
)


@needs_bf16
def test_a_bf16_archive_names_the_instruction_sets_that_it_needs(make: Make) -> None:
    planned = plan_of(make(), "openvino-bf16")
    artifact = build(planned)
    assert 1e-4 < known(artifact.parity).mean_logit_difference < 0.5
    assert artifact.instruction_sets == BF16
    served = Settings.load(planned.repository / "tiny_model" / "1" / "settings.json")
    assert (served.precision, served.instruction_sets) == ("bf16", BF16)


def test_int8_is_near_and_two_builds_give_the_same_bytes(make: Make, tmp_path: Path) -> None:
    workloads = make(), make_workload(tmp_path / "w" / "workloads", TASK)
    plans = [plan_of(each, "openvino-int8") for each in workloads]
    for planned in plans:
        assert 1e-4 < parity_of(planned).mean_logit_difference < 0.5
    assert len({file_sha256(planned.archive) for planned in plans}) == 1
    assert str(tmp_path) not in (plans[0].repository / "tiny_model" / "1" / "model.xml").read_text()


@pytest.mark.parametrize(("target", "runner_up"), [("cpu", "openvino fp32"), ("openvino-int8", "onnxruntime int8")])
def test_a_build_records_how_long_the_other_runtime_takes(make: Make, target: str, runner_up: str) -> None:
    timed = known(build(plan_of(make(), target), compare_runtimes=True).runner_up)
    assert f"{timed.runtime} {timed.precision}" == runner_up
    assert timed.times_as_long > 0
    assert timed.cpu in CPUINFO.read_text()


@pytest.mark.parametrize(
    ("ratio", "advice"), [(1.2, ""), (0.8, 'in [targets.cpu]:\n  runtime = "openvino"\n  precision = "int8"')]
)
def test_a_faster_runner_up_is_a_warning_with_the_lines_to_change(ratio: float, advice: str) -> None:
    runner_up = {"runtime": "openvino", "precision": "int8", "times_as_long": ratio, "cpu": "EPYC"}
    own = {"workload": "tiny", "variant": "cpu", "target": "cpu", "runtime": "onnxruntime", "precision": "int8"}
    text = render.runner_up({**own, "runner_up": runner_up})
    assert f"openvino int8 takes {ratio:.2f} times as long as onnxruntime int8 (EPYC)." in text
    assert (text.startswith("Warning: "), text.endswith(advice)) == (bool(advice), True)


def test_a_target_without_another_runtime_is_not_compared(make: Make) -> None:
    assert message_of(UsageError, build, plan_of(make(), "cpu-torchscript"), compare_runtimes=True) == (
        "--compare-runtimes: cpu-torchscript has no other runtime. Only encoders with runtime = onnxruntime or "
        "openvino have. Leave it out."
    )


TASK = "text-classification"


def few_rows(folder: Path) -> WorkloadFolder:
    return make_workload(folder, TASK, examples=15)


def decoder(folder: Path) -> WorkloadFolder:
    target = '[targets.cpu-int8]\nruntime = "onnxruntime"\nprecision = "int8"'
    return edited(tiny_t5.make_workload(folder), target, '[targets.openvino-int8]\nruntime = "openvino"')


REFUSALS: dict[str, tuple[Callable[[Path], WorkloadFolder], str]] = {
    "an evaluation too small to calibrate": (
        few_rows,
        "evaluation.jsonl: has 15 rows, and targets.openvino-int8 needs at least 16 to calibrate int8. Add rows, or "
        "choose another precision.",
    ),
    "a decoder": (
        decoder,
        "workload.toml: targets.openvino-int8.runtime: 'openvino' is not built for text2text-generation. Text-to-text "
        "models are not supported by this runtime yet. Allowed: onnxruntime, cuda, tensorrt.",
    ),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_a_target_that_cannot_be_built_is_refused(name: str, tmp_path: Path) -> None:
    make_it, message = REFUSALS[name]
    workload = make_it(tmp_path / "workloads")
    assert message_of((InvalidDocument, UsageError), plan_of, workload, "openvino-int8") == f"{workload.path}/{message}"


def test_an_operator_that_openvino_lacks_is_named(tmp_path: Path) -> None:
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in ("x", "y")]
    graph = helper.make_graph([helper.make_node("Spell", ["x"], ["y"], domain="own")], "graph", values[:1], values[1:])
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("own", 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets), tmp_path / "model.onnx")
    with pytest.raises(UsageError, match=r"lacks operators of this model: own\.Spell\. Build it with runtime ="):
        openvino_graph.compile_graph(tmp_path / "model.onnx", tmp_path, OpenVinoTarget(runtime="openvino"), ())


def test_a_cpu_without_the_instruction_set_is_refused_with_its_name(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text("model name\t: Old CPU\nflags\t\t: fpu avx512f\n")
    message = (
        "The CPU (Old CPU) has none of the instruction sets that this model needs: amx_bf16, avx512_bf16. Use an "
        'instance type that has one, such as ml.c7i.xlarge, or build the target with precision = "int8" or "fp32".'
    )
    assert message_of(LacksInstructionSet, check_cpu, BF16, cpuinfo) == message
    check_cpu((), cpuinfo)
    monkeypatch.setattr("containers.encoder.engines.openvino_engine.CPUINFO", cpuinfo)
    assert message_of(Unavailable, build, plan_of(make(), "openvino-bf16")) == (
        f"tiny for openvino-bf16 cannot be compared with the original here. {message}"
    )
