"""TensorRT builds from workload to archive, on a machine whose GPU, trtexec and nvidia-smi are fakes that run."""

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import onnx
import pytest
from safetensors.torch import load_file, save_file

from model_build import archive
from model_build.execute import build, verify_built
from model_build.parity import GateFailed
from model_build.plan import BuildPlan, plan
from model_build.remote.fetch import FetchedBuild, combine
from tests.builders import known, message_of
from tests.containers import fake_tensorrt
from tests.model_build import miniatures
from tests.model_build.miniatures import plan_of, tiny_bert, tiny_t5
from tests.model_build.tensorrt.gpu_machine import A10G, T4, install_all
from workloads import Unavailable, UsageError, WorkloadFolder

TASKS = ["text-classification", "text-pair-scoring", "question-answering"]
T5_TARGET = """
[targets.tensorrt]
runtime = "tensorrt"
precision = "fp16"
instance_types = ["ml.g4dn.xlarge", "ml.g5.xlarge"]
parity = { max_logit_difference = 0.1, max_metric_drop = 1.0 }
"""
T5_TOML = tiny_t5.WORKLOAD_TOML.replace("[serving]", f"{T5_TARGET}\n[serving]")
BERT_LIMITS = 'instance_types = ["ml.g4dn.xlarge", "ml.g5.xlarge"]\n'
Make = Callable[..., BuildPlan]


@dataclass
class Machine:
    """All of PATH, and the GPU."""

    tools: Path
    gpu: fake_tensorrt.Gpu

    def becomes(self, gpu: str) -> None:
        install_all(self.tools, gpu=gpu)
        self.gpu.capability = gpu.split(", ")[1]


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """A machine with a T4."""
    made = Machine(tmp_path / "bin", fake_tensorrt.Gpu())
    made.tools.mkdir()
    made.becomes(T4)
    monkeypatch.setenv("PATH", str(made.tools))
    fake_tensorrt.install(monkeypatch, made.gpu)
    return made


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """The plan of a BERT's workload for TensorRT, with the gate as wide as fp16 of random weights needs it."""

    def of(
        task: str = "text-classification", limits: str = "max_logit_difference = 0.2, max_metric_drop = 1.0"
    ) -> BuildPlan:
        workload = tiny_bert.make_workload(tmp_path / "workloads", task)
        return edited(workload, BERT_LIMITS, f"{BERT_LIMITS}parity = {{ {limits} }}\n")

    return of


@pytest.fixture
def t5(tmp_path: Path) -> BuildPlan:
    return plan(tiny_t5.make_workload(tmp_path / "workloads", T5_TOML), "tensorrt", tmp_path)


def edited(workload: WorkloadFolder, old: str, new: str, name: str = "tensorrt") -> BuildPlan:
    return plan_of(miniatures.edited(workload, old, new), name)


def packed(planned: BuildPlan, folder: Path) -> list[str]:
    archive.unpack(planned.archive, folder)
    return sorted(file.relative_to(folder).as_posix() for file in folder.rglob("*") if file.is_file())


def engines_built(planned: BuildPlan, capability: str = "7.5") -> int:
    """Counts the engines: the fake trtexec adds a word to its timing cache for each."""
    return len((planned.root / "build" / "timing_caches" / f"{capability}.10.4.0.26.cache").read_text().split())


def plan_graph(planned: BuildPlan, name: str) -> onnx.ModelProto:
    built = (planned.repository / "tiny" / "1" / name).read_bytes()[fake_tensorrt.HEADER_BYTES :]
    return onnx.load_from_string(built.partition(b"\n")[2])


def test_a_t5_is_built_on_a_t4_and_its_archive_answers_as_the_original(
    machine: Machine, t5: BuildPlan, tmp_path: Path
) -> None:
    artifact = build(t5)
    parity = known(artifact.parity)
    assert parity.examples == 40
    assert parity.identical_answers >= 38
    assert 1e-5 < parity.max_logit_difference < 0.1
    assert verify_built(t5) == parity
    toolchain = artifact.toolchain
    assert (toolchain["tensorrt"], toolchain["gpu"]) == ("10.4.0.26", "Tesla T4")
    assert (toolchain["compute_capability"], toolchain["driver"]) == ("7.5", "535.104.05")
    types = {value.name: value.type.tensor_type.elem_type for value in plan_graph(t5, "decoder.7.5.plan").graph.input}
    assert {name for name, kind in types.items() if kind == onnx.TensorProto.FLOAT16} == {"cross", "past"}
    assert not machine.gpu.memory
    files = packed(t5, tmp_path / "unpacked")
    assert {"tiny/config.pbtxt", "tiny/warmup/text", "tiny/1/model.py", "tiny/1/tensorrt_engine.py"} <= set(files)
    assert [name for name in files if name.endswith((".plan", ".onnx"))] == [
        "tiny/1/decoder.7.5.plan",
        "tiny/1/encoder.7.5.plan",
    ]


@pytest.mark.parametrize("precision", ["fp16", "fp32"])
@pytest.mark.parametrize("task", TASKS)
def test_a_bert_is_built_on_a_t4_and_its_plan_answers_as_the_original(
    machine: Machine, make: Make, task: str, precision: str, tmp_path: Path
) -> None:
    planned = edited(make(task).source, 'precision = "fp16"', f'precision = "{precision}"')
    parity = known(build(planned).parity)
    assert parity.identical_answers >= (22 if precision == "fp16" else 24)
    low, high = (1e-5, 0.2) if precision == "fp16" else (0, 1e-4)
    assert low < parity.max_logit_difference < high
    assert verify_built(planned) == parity
    assert [name for name in packed(planned, tmp_path / "unpacked") if name.startswith("tiny_model/")] == [
        "tiny_model/1/model.7.5.plan",
        "tiny_model/config.pbtxt",
        *(f"tiny_model/warmup/{name}" for name in sorted(planned.model.model_dump()["inputs"])),
    ]


def test_engines_of_a_t4_and_an_a10g_are_joined_into_one_archive(machine: Machine, make: Make, tmp_path: Path) -> None:
    planned, built = make(), []
    for name, gpu in (("t4", T4), ("a10g", A10G)):
        machine.becomes(gpu)
        artifact = build(planned)
        built.append(
            FetchedBuild(job_name=name, artifact=artifact, archive=Path(shutil.copy(planned.archive, tmp_path / name)))
        )
    (tmp_path / "scratch").mkdir()
    joined = combine(built, tmp_path / "scratch")
    archive.unpack(joined.archive, tmp_path / "joined")
    version = tmp_path / "joined" / "tiny_model" / "1"
    assert sorted(file.name for file in version.iterdir()) == ["model.7.5.plan", "model.8.6.plan"]
    assert (tmp_path / "joined" / "tiny" / "1").is_dir()  # the ensemble's, which is empty
    assert joined.artifact.toolchain["gpu"] == "Tesla T4, NVIDIA A10G"
    assert joined.artifact.toolchain["compute_capability"] == "7.5, 8.6"
    assert joined.artifact.parity is not None


def test_engines_of_another_gpu_are_not_taken_from_an_earlier_build(machine: Machine, make: Make) -> None:
    planned = make()
    build(planned)
    build(planned)
    assert engines_built(planned) == 1
    machine.becomes(A10G)
    build(planned)
    assert engines_built(planned, "8.6") == 1


def test_each_variant_has_an_engine_timed_for_its_batches_and_those_of_the_same_batches_share_one(
    machine: Machine, make: Make
) -> None:
    variants = """[variants]
trt-base = { target = "tensorrt", serving = { dynamic_batching = false, preferred_batch_sizes = [] } }
trt-db = { target = "tensorrt", serving = { max_batch_size = 16, preferred_batch_sizes = [4, 8] } }
trt-db-ig = { target = "tensorrt", serving = { model_instances = 2, max_batch_size = 16, preferred_batch_sizes = [8] } }
"""
    source = edited(make().source, "[variants]\n", variants, "trt-base").source
    plans = [plan_of(source, name) for name in ("trt-base", "trt-db", "trt-db-ig")]
    archives = {build(planned).archive_sha256 for planned in plans}
    assert len(archives) == 3
    assert plans[0].compiled != plans[1].compiled == plans[2].compiled
    assert engines_built(plans[0]) == 2
    alone, batches = [(each.compiled / "graphs" / "model.7.5.plan").read_bytes() for each in plans[:2]]
    assert b'"input_ids": [[1, 1], [1, 32], [8, 32]]' in alone
    assert b'"input_ids": [[1, 1], [8, 32], [16, 32]]' in batches


def test_fp16_that_overflows_names_the_layer_to_keep_in_fp32(machine: Machine, make: Make) -> None:
    machine.gpu.exact = True
    planned = make()
    weights = planned.checkpoint.folder / "model.safetensors"
    tensors = load_file(weights)
    tensors["bert.encoder.layer.0.output.dense.weight"] *= 1e5
    save_file(tensors, weights, {"format": "pt"})
    planned = plan(planned.source, "tensorrt", planned.root)
    message = message_of(GateFailed, build, planned)
    assert "- some logits are not numbers (NaN)." in message
    advice = 'Or keep these layers in fp32, with which it passes: fp32_layers = ["layers.0.out"]'
    assert message.splitlines()[-1] == advice
    mended = edited(planned.source, 'precision = "fp16"', 'precision = "fp16"\nfp32_layers = ["layers.0.out"]')
    assert build(mended).parity is not None


def test_a_gate_that_no_layer_can_mend_says_so(machine: Machine, make: Make) -> None:
    with pytest.raises(GateFailed, match=r"The parity gate fails even with all \d+ layers in fp32"):
        build(make(limits="max_logit_difference = 1e-9"))


def test_a_layer_of_a_t5_that_names_no_graph_is_refused(machine: Machine, t5: BuildPlan) -> None:
    astray = edited(t5.source, 'precision = "fp16"', 'precision = "fp16"\nfp32_layers = ["layers.0"]')
    with pytest.raises(UsageError, match=r"the graph has no layers\.0\. .* Layers: encoder\.own, "):
        build(astray)


def test_a_machine_without_a_gpu_neither_builds_nor_verifies(machine: Machine, make: Make) -> None:
    planned = make()
    build(planned)
    before = planned.artifact.read_bytes()
    for tool in machine.tools.iterdir():
        tool.unlink()
    machine.gpu.capability = "9.0"
    with pytest.raises(Unavailable):
        build(planned)
    folder = planned.folder / ".scratch" / "repository" / "tiny_model" / "1"
    assert message_of(Unavailable, verify_built, planned) == (
        f"The engines of tiny for tensorrt cannot be run here: {folder}: this GPU has compute capability 9.0, and "
        "there is no model.9.0.plan. There: model.7.5.plan. Build the target for this GPU. They run on a machine "
        "with the GPU and the TensorRT they were built with."
    )
    assert planned.artifact.read_bytes() == before
