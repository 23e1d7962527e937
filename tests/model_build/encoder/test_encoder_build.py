"""Every encoder task is built for what runs here, and the archive answers as the original does."""

import json
import re
import resource
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import pytest
import torch

import model_build.__main__ as command_line
from model_build import archive
from model_build.build import build
from model_build.compiled import compile_key
from model_build.encoder import export
from model_build.parity import GateFailed
from model_build.plan import BuildPlan, plan
from model_build.torch_threads import threads_kept
from tests.model_build.miniatures import tiny_t5
from tests.model_build.miniatures.tiny_bert import LABELS, make_workload
from tests.model_build.shared_exports import SharedExports
from workloads import TextClassification, UsageError, WorkloadFolder, file_sha256, load_workload

TASKS = ["text-classification", "text-pair-scoring", "question-answering"]
Make = Callable[..., WorkloadFolder]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """A workload of a task in a repository of its own."""
    return lambda task="text-classification", **options: make_workload(tmp_path / "workloads", task, **options)


def plan_of(workload: WorkloadFolder, name: str) -> BuildPlan:
    return plan(workload, name, workload.path.parent.parent)


def edited(workload: WorkloadFolder, old: str, new: str) -> WorkloadFolder:
    text = workload.file.read_text()
    assert old in text
    workload.file.write_text(text.replace(old, new))
    return load_workload("tiny", workload.path.parent)


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("target", ["cpu", "cpu-torchscript"])
def test_in_fp32_every_answer_is_the_originals(make: Make, task: str, target: str) -> None:
    artifact = build(plan_of(make(task), target))
    assert artifact.parity is not None
    assert (artifact.parity.examples, artifact.parity.identical_answers) == (24, 24)
    assert 0 < artifact.parity.max_logit_difference < 1e-4
    assert artifact.parity.original == pytest.approx(artifact.parity.compiled, abs=1e-6)


def test_a_build_leaves_the_process_as_it_found_it_to_the_next_one(make: Make) -> None:
    """A TorchScript engine sets the number of threads for all of it."""
    with threads_kept():
        torch.set_num_threads(3)
        build(plan_of(make(), "cpu-torchscript"))
        assert torch.get_num_threads() == 3


@pytest.mark.parametrize("task", ["text-classification", "text-pair-scoring"])
def test_a_head_on_a_shared_encoder_answers_as_the_whole_model_does(make: Make, task: str, tmp_path: Path) -> None:
    whole = build(plan_of(make(task), "cpu"))
    apart = build(plan_of(make_workload(tmp_path / "other" / "workloads", task, shared=True), "cpu"))
    assert whole.parity is not None
    assert apart.parity is not None
    assert whole.parity.compiled == apart.parity.compiled


@pytest.mark.parametrize("target", ["cpu-int8", "cpu-int8-static"])
def test_int8_is_near(make: Make, target: str) -> None:
    planned = plan_of(make(), target)
    artifact = build(planned)
    assert artifact.parity is not None
    assert 1e-4 < artifact.parity.mean_logit_difference < 0.5
    products = {node.op_type for node in onnx.load(planned.repository / "tiny_model" / "1" / "model.onnx").graph.node}
    assert products & {"MatMulInteger", "DynamicQuantizeMatMul", "QLinearMatMul", "MatMulIntegerToFloat", "QGemm"}


def test_layers_kept_in_fp32_are_not_quantised(make: Make) -> None:
    kept = [f"layers.{layer}.{part}" for layer in (0, 1) for part in ("qkv", "joined", "into", "out")]
    workload = edited(make(), 'precision = "int8"\nparity', f'precision = "int8"\nfp32_layers = {kept}\nparity')
    artifact = build(plan_of(workload, "cpu-int8"))
    everything = build(plan_of(edited(workload, f"fp32_layers = {kept}\n", ""), "cpu-int8"))
    assert artifact.parity is not None
    assert everything.parity is not None
    assert artifact.parity.mean_logit_difference < everything.parity.mean_logit_difference / 2


def test_int8_that_fails_parity_names_the_layers_to_keep_in_fp32(make: Make) -> None:
    limits = "parity = { max_metric_drop = 1.0, max_logit_difference = 0.02 }"
    workload = edited(make(), 'precision = "int8"\nparity = { max_metric_drop = 1.0 }', f'precision = "int8"\n{limits}')
    with pytest.raises(GateFailed) as caught:
        build(plan_of(workload, "cpu-int8"))
    told = re.search(r"Or keep these layers in fp32, with which it passes: (fp32_layers = \[.+\])", str(caught.value))
    assert told is not None, str(caught.value)
    mended = edited(workload, f'precision = "int8"\n{limits}', f'precision = "int8"\n{told[1]}\n{limits}')
    assert build(plan_of(mended, "cpu-int8")).parity is not None


def test_variants_of_a_target_share_one_compile(make: Make) -> None:
    workload = make()
    steps: list[str] = []
    archives = {name: build(plan_of(workload, name), steps.append) for name in ("cpu", "alone", "twice", "cached")}
    assert sum(step.startswith("Exporting") for step in steps) == 1
    assert len({artifact.archive_sha256 for artifact in archives.values()}) == 4
    assert {(artifact.target, artifact.variant) for artifact in archives.values()} == {
        ("cpu", "cpu"),
        ("cpu", "alone"),
        ("cpu", "twice"),
        ("cpu", "cached"),
    }
    extra = "SAGEMAKER_TRITON_ADDITIONAL_ARGS"
    assert archives["cached"].environment[extra] == "--cache-config=local,size=4194304"
    assert extra not in archives["cpu"].environment


def test_two_builds_have_one_hash(shared_exports: SharedExports, make: Make) -> None:
    """The first may have its export from another process; the second exports again."""
    planned = plan_of(make("question-answering"), "cpu")
    build(planned)
    before = file_sha256(planned.archive)
    shutil.rmtree(planned.root / "build")
    with shared_exports.off():
        build(planned)
    assert file_sha256(planned.archive) == before


@pytest.mark.parametrize("task", TASKS)
def test_another_label_in_the_evaluation_changes_no_archive(make: Make, task: str) -> None:
    """Labels are neither packed nor compiled, also not in golden rows and calibration."""
    workload = make(task)
    names = ("cpu", "cpu-int8-static", "inf1", "tensorrt")

    def planned() -> dict[str, Any]:
        plans = {name: plan_of(workload, name) for name in names if name != "inf1" or task != "text-pair-scoring"}
        return {
            name: (compile_key(each.compile_inputs), each.contents(each.compiled / "graphs"))
            for name, each in plans.items()
        }

    before = planned()
    file = workload.path / "evaluation.jsonl"
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    other = dict(zip(LABELS, LABELS[1:] + LABELS[:1], strict=True))
    changed = [line | {"label": other.get(line["label"], "another")} for line in lines]
    file.write_text("".join(json.dumps(line) + "\n" for line in changed))
    assert planned() == before


def test_another_label_in_the_evaluation_leaves_the_archives_hash(make: Make) -> None:
    workload = make()
    before = build(plan_of(workload, "cpu"))
    file = workload.path / "evaluation.jsonl"
    file.write_text(file.read_text().replace('"label": "buy"', '"label": "ask"', 1))
    after = build(plan_of(workload, "cpu"))
    assert after.archive_sha256 == before.archive_sha256
    assert after.parity != before.parity


@pytest.mark.parametrize(
    "modules",
    [
        pytest.param(("graphs", "optimise"), id="exported-here"),
        pytest.param(("graphs", "optimise", "export"), id="exported-by-a-process", marks=pytest.mark.slow),
    ],
)
def test_a_graph_above_the_inline_limit_keeps_its_weights_beside_it(
    make: Make, monkeypatch: pytest.MonkeyPatch, modules: tuple[str, ...]
) -> None:
    for module in modules:
        monkeypatch.setattr(f"model_build.encoder.{module}.INLINE_LIMIT", 1000)
    planned = plan_of(make(), "cpu")
    artifact = build(planned)
    version = planned.repository / "tiny_model" / "1"
    assert (version / "model.onnx.data").stat().st_size > 10_000 > 0
    assert artifact.parity is not None
    assert artifact.parity.identical_answers == 24


def test_a_checkpoint_above_the_limit_is_traced_by_a_process_of_its_own(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned = plan_of(make(), "cpu")
    model = planned.model
    assert isinstance(model, TextClassification)
    here, there = tmp_path / "here", tmp_path / "there"
    for folder in (here, there):
        folder.mkdir()
    export.trace_checkpoint(planned.checkpoint, model, here)
    monkeypatch.setattr(export, "INLINE_LIMIT", 1000)
    monkeypatch.setattr(torch.jit, "trace", None)
    file = export.trace_checkpoint(planned.checkpoint, model, there)
    assert file == there / "model.pt"
    inputs = export.example(export.load(planned.checkpoint, model), 2, 8)
    (expected,), (given,) = (torch.jit.load(folder / "model.pt")(*inputs) for folder in (here, there))  # type: ignore[no-untyped-call]
    assert torch.equal(given, expected)


def refusal(workload: WorkloadFolder, kind: type[Exception] = UsageError) -> str:
    with pytest.raises(kind) as caught:
        plan_of(workload, "cpu")
    return str(caught.value)


def edit_config(workload: WorkloadFolder, **changes: Any) -> Path:
    file = workload.path / "checkpoint" / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))
    return file


def test_a_checkpoint_of_another_architecture(make: Make) -> None:
    workload = make()
    file = edit_config(workload, architectures=["RobertaForSequenceClassification"])
    assert refusal(workload) == (
        f'{file}: architectures: got ["RobertaForSequenceClassification"], allowed is BertForSequenceClassification.'
    )


def test_labels_that_do_not_match_the_head(make: Make) -> None:
    workload = make()
    file = edit_config(workload, id2label={"0": "buy", "1": "navigate", "2": "ask"})
    assert refusal(workload) == (
        f'{file}: id2label: the head answers ["buy", "navigate", "ask"], but model.labels in workload.toml is '
        '["buy", "ask", "navigate"]. Write the head\'s labels there, in its order.'
    )


def test_a_sequence_longer_than_the_model(make: Make) -> None:
    workload = edited(make(), "max_input_tokens = 32", "max_input_tokens = 65")
    assert refusal(workload) == (
        f"{workload.path / 'checkpoint' / 'config.json'}: max_position_embeddings: got 64, but model.max_input_tokens "
        "in workload.toml is 65. Lower it, or take a model of longer inputs."
    )


def test_a_task_that_a_runtime_is_not_built_for(tmp_path: Path) -> None:
    workload = tiny_t5.make_workload(tmp_path / "workloads")
    workload = edited(
        workload,
        '[targets.cpu-int8]\nruntime = "onnxruntime"\nprecision = "int8"',
        '[targets.cpu-int8]\nruntime = "torchscript"',
    )
    with pytest.raises(UsageError) as caught:
        plan_of(workload, "cpu-int8")
    assert str(caught.value) == (
        f"{workload.file}: targets.cpu-int8.runtime: 'torchscript' is not built for text2text-generation. "
        "A decoder with a cache has no plain trace, and no static graph for Neuron. Allowed: onnxruntime, cuda, "
        "tensorrt."
    )


def test_a_disk_that_is_full_while_packing_leaves_nothing_half_written(
    make: Make, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """No file may be longer than a thousand bytes while the archive is written."""

    def cramped(folder: Path, file: Path) -> None:
        usual = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, usual[1]))
        try:
            pack(folder, file)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, usual)

    pack = archive.pack
    root = make().path.parent.parent
    capsys.readouterr()  # transformers' progress
    monkeypatch.setattr(archive, "pack", cramped)
    monkeypatch.setattr(command_line, "ROOT", root)
    assert command_line.main(["build", "tiny", "--target", "cpu"]) == 3
    folder = root / "build" / "tiny" / "cpu"
    out, err = capsys.readouterr()
    assert out == ""
    assert err == "A file or standard output cannot be written: File too large. Free some space, then try again.\n"
    assert not list(folder.iterdir())
