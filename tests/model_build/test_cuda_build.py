"""A target for any NVIDIA GPU: built anywhere, compared and served where there is one, refused where there is none."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

import model_build.__main__ as command_line
from containers.encoder.engines import cuda_engine, torchscript_engine
from containers.encoder.engines.cuda_engine import CudaEngine
from containers.text2text import torch_engine
from inference_recommender.payloads import request_body
from local_aws import machine
from local_aws.process.model_server import ModelDidNotLoad
from model_build import archive
from model_build.execute import build, verify_built, verify_recorded
from model_build.lint.check import lint
from model_build.lint.finding import RuntimeContext
from model_build.matrix import BEAMS, GENERATION, rows
from model_build.parity import GateFailed
from model_build.plan import BuildPlan, plan
from tests.builders import known, message_of
from tests.model_build.miniatures import edited, plan_of, tiny_bert, tiny_t5
from tests.model_build.miniatures.tiny_rows import make_workload
from tests.quick_triton import start_triton
from workloads import Row, UsageError, WorkloadFolder

jit: Any = torch.jit
CELLS = [(row.model_type, row.task) for row in rows() if "cuda" in row.targets and row.task != BEAMS]
TASKS = ["text2text-generation", "text-pair-scoring", "question-answering"]
TARGET = """
[targets.cuda]
runtime = "cuda"
instance_types = ["ml.g5.xlarge"]
parity = { max_logit_difference = 1e-4 }

[serving]"""


def workload(folder: Path, task: str, more: str = "") -> WorkloadFolder:
    """Makes a workload with a target for any NVIDIA GPU; `more` are further keys of it."""
    target = TARGET.replace('"cuda"', f'"cuda"{more}')
    if task == "text2text-generation":
        return tiny_t5.make_workload(folder / "workloads", tiny_t5.WORKLOAD_TOML.replace("\n[serving]", target))
    return edited(tiny_bert.make_workload(folder / "workloads", task), "\n[serving]", target)


@pytest.fixture(params=TASKS)
def planned(request: pytest.FixtureRequest, tmp_path: Path) -> BuildPlan:
    return plan(workload(tmp_path, request.param), "cuda", tmp_path)


@pytest.fixture
def without_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)


@pytest.fixture
def cpu_for_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Says that there is a GPU, and puts onto the CPU what goes to it: the same calls, with no launches to capture."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    load = torch_engine.load
    monkeypatch.setattr(torch_engine, "load", lambda folder, device, **sizes: load(folder, "cpu", **sizes))
    monkeypatch.setattr(cuda_engine, "CudaEngine", lambda file, known, device: CudaEngine(file, known, "cpu"))
    plain = torchscript_engine.TorchScriptEngine
    monkeypatch.setattr(torchscript_engine, "TorchScriptEngine", lambda file, known, device: plain(file, known, "cpu"))


@pytest.mark.usefixtures("without_gpu")
def test_an_archive_is_built_without_a_gpu_and_says_that_nothing_was_compared(
    planned: BuildPlan, tmp_path: Path
) -> None:
    artifact = build(planned)
    assert (artifact.runtime, artifact.precision, artifact.parity) == ("cuda", "fp32", None)
    archive.unpack(planned.archive, tmp_path / "unpacked", artifact.archive_sha256)
    files = {file.relative_to(tmp_path / "unpacked").as_posix() for file in (tmp_path / "unpacked").rglob("*.*")}
    encoder = {f"tiny_model/1/{name}" for name in ("model.cuda.pt", "engines/cuda_engine.py", "engines/load_engine.py")}
    t5 = {f"tiny/1/{name}" for name in ("encoder.pt", "decoder.pt", "torch_engine.py", "static_cache.py")}
    assert (t5 if "tiny/1/tokenizer.json" in files else encoder) <= files
    assert not [name for name in files if name.endswith((".onnx", ".plan"))]
    running = [file for file in (tmp_path / "unpacked").rglob("config.pbtxt") if (file.parent / "1").glob("*.pt")]
    kinds = {file.parent.name: "KIND_GPU" in file.read_text() for file in running}
    assert kinds.get("tiny_model", kinds["tiny"])
    assert build(planned).archive_sha256 == artifact.archive_sha256


@pytest.mark.usefixtures("cpu_for_a_gpu")
def test_where_there_is_a_gpu_every_answer_is_compared(planned: BuildPlan) -> None:
    parity = known(build(planned).parity)
    assert parity.identical_answers == parity.examples == len(planned.examples)
    assert parity.max_logit_difference < 1e-4
    assert verify_built(planned) == verify_recorded(planned) == parity


@pytest.mark.usefixtures("cpu_for_a_gpu")
def test_guided_answers_are_compared_with_greedys(tmp_path: Path) -> None:
    toml = tiny_t5.WORKLOAD_TOML.replace("\n[serving]", TARGET)
    toml = toml.replace("[quality]", '[model.generation]\nguided = "input"\n\n[quality]')
    planned = plan(tiny_t5.make_workload(tmp_path / "workloads", toml), "cuda", tmp_path)
    parity = known(build(planned).parity)
    assert (known(parity.guided).differing_answers, parity.identical_answers) == (0, 40)
    assert known(parity.guided).tokens_per_pass > 1


def devices_of_outputs(planned: BuildPlan, file: str) -> set[str]:
    """Runs a graph on the device `meta`, which refuses an operand that stayed on the CPU, as a GPU refuses it."""
    graph = torchscript_engine.load_graph(planned.repository / "tiny_model" / "1" / file, "meta")
    names = planned.compile_inputs.encoder.inputs
    shapes = [(3,) if name == "valid_length" else (3, 9) for name in names]
    with torch.inference_mode(), jit.optimized_execution(False):
        outputs = graph(*[torch.ones(shape, dtype=torch.int64, device="meta") for shape in shapes])
    return {each.device.type for each in outputs}


@pytest.mark.usefixtures("cpu_for_a_gpu")
@pytest.mark.parametrize(
    ("family", "task"), [pytest.param(*cell, marks=() if cell[0] == "bart" else pytest.mark.slow) for cell in CELLS]
)
def test_every_family_that_the_table_says_is_taken_answers_as_the_original(
    family: str, task: str, tmp_path: Path
) -> None:
    planned = plan(make_workload(tmp_path / "workloads", family, task), "cuda", tmp_path)
    parity = known(build(planned).parity)
    assert parity.identical_answers == parity.examples == 24
    if task != GENERATION:
        assert devices_of_outputs(planned, "model.cuda.pt") == {"meta"}


@pytest.mark.usefixtures("cpu_for_a_gpu")
@pytest.mark.parametrize(("execution", "file"), [("traced", "model.traced.pt"), ("eager", "model.eager.pt2")])
def test_an_encoder_runs_traced_or_eager_for_comparison(execution: str, file: str, tmp_path: Path) -> None:
    source = workload(tmp_path, "question-answering", f'\nexecution = "{execution}"')
    planned = plan_of(source, "cuda")
    parity = known(build(planned).parity)
    assert parity.identical_answers == parity.examples
    assert {each.name for each in planned.repository.rglob("model.*.pt*")} == {file}
    assert devices_of_outputs(planned, file) == {"meta"}
    context = RuntimeContext(
        environment={"SAGEMAKER_TRITON_DEFAULT_MODEL_NAME": "tiny", "SAGEMAKER_TRITON_LOG_VERBOSE": "false"},
        instance_types=("ml.g5.xlarge",),
    )
    assert lint(planned.archive, context) == []


def test_a_decoder_always_runs_as_cuda_graphs(tmp_path: Path) -> None:
    source = workload(tmp_path, "text2text-generation", '\nexecution = "traced"')
    assert message_of(UsageError, plan_of, source, "cuda") == (
        f"{source.file}: targets.cuda.runtime: 'cuda' is not built for text2text-generation. Its execution is "
        "'traced', and a decoder runs as CUDA graphs. Leave execution out."
    )


@pytest.mark.usefixtures("without_gpu")
def test_without_a_gpu_it_cannot_be_verified(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command_line, "ROOT", tmp_path)
    planned = plan(workload(tmp_path, "text-pair-scoring"), "cuda", tmp_path)
    capsys.readouterr()
    assert command_line.main(["verify", "tiny", "--target", "cuda"]) == 3
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines()[0] == (
        f"tiny for cuda runs on an NVIDIA GPU, and PyTorch {torch.__version__} finds none here, so it cannot be "
        "compared with the original. Build it on a machine that has one, with PyPI's PyTorch."
    )
    assert command_line.main(["build", "tiny", "--target", "cuda", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["parity"] is None
    assert message_of(GateFailed, verify_recorded, planned) == (
        f"{planned.artifact}: parity: the build compared nothing, because its machine could not run the model. "
        "Build it on a machine with an NVIDIA GPU: `python -m model_build build tiny --target cuda`."
    )


@pytest.mark.slow
@pytest.mark.integration
@pytest.mark.usefixtures("without_gpu")
def test_a_real_triton_answers_as_with_the_target_for_cpu(planned: BuildPlan, tmp_path: Path) -> None:
    """In its code a CPU takes the GPU's place; as it was built, Triton refuses it where there is no GPU."""
    build(planned)
    rows = [example.row for example in planned.examples]
    if not machine.gpus():
        with pytest.raises(ModelDidNotLoad, match="has kind KIND_GPU but no GPUs are available"):
            asked(planned, planned.repository, rows)
    on_cpu = tmp_path / "on_cpu"
    shutil.copytree(planned.repository, on_cpu)
    for file in on_cpu.rglob("*.p*"):
        if file.suffix in (".py", ".pbtxt"):
            file.write_text(file.read_text().replace('f"cuda:{device}"', '"cpu"').replace("KIND_GPU", "KIND_CPU"))
    other = plan_of(planned.source, "cpu")
    build(other)
    given, wanted = asked(planned, on_cpu, rows), asked(other, other.repository, rows)
    for one, another in zip(given, wanted, strict=True):
        assert {name: value for name, value in one.items() if isinstance(value, str)} == {
            name: value for name, value in another.items() if isinstance(value, str)
        }


def asked(planned: BuildPlan, repository: Path, rows: list[Row]) -> list[dict[str, Any]]:
    """Returns each row's answer by output."""
    with start_triton(repository, "tiny", planned.environment) as server:
        answers = []
        for row in rows:
            answer = server.invoke(request_body(row), {"Content-Type": "application/json"})
            answers.append({output["name"]: output["data"][0] for output in json.loads(answer.body)["outputs"]})
        return answers
