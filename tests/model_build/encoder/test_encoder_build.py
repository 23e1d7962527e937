"""Every encoder task is built for what runs here, and the archive answers as the original does."""

import errno
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import pytest
import torch

from model_build import archive
from model_build.compiled import compile_key
from model_build.execute import build, verify_built
from model_build.parity import GateFailed
from model_build.plan import BuildPlan
from model_build.torch_threads import threads_kept
from tests.builders import known, message_of
from tests.model_build.miniatures import edited, plan_of, tiny_t5
from tests.model_build.miniatures.tiny_bert import LABELS, make_workload
from workloads import ParityReport, UsageError, WorkloadFolder

TASKS = ["text-classification", "text-pair-scoring", "question-answering"]
Make = Callable[..., WorkloadFolder]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """A workload of a task in a repository of its own."""
    return lambda task="text-classification", **options: make_workload(tmp_path / "workloads", task, **options)


def parity_of(planned: BuildPlan) -> ParityReport:
    return known(build(planned).parity)


ENGINES = {
    "cpu": {"model.onnx", "onnx_engine.py"},
    "cpu-torchscript": {"model.pt", "torchscript_engine.py"},
    "openvino": {"model.xml", "model.bin", "openvino_engine.py"},
}
"""Files of each fp32 target's model."""


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("target", ENGINES)
def test_in_fp32_every_answer_is_the_originals(make: Make, task: str, target: str) -> None:
    """A TorchScript engine sets the number of threads of the process; the build restores it."""
    planned = plan_of(make(task), target)
    with threads_kept():
        torch.set_num_threads(3)
        parity = parity_of(planned)
        assert torch.get_num_threads() == 3
    assert (parity.examples, parity.identical_answers) == (24, 24)
    assert 0 < parity.max_logit_difference < 1e-4
    assert parity.original == pytest.approx(parity.compiled, abs=1e-6)
    assert verify_built(planned) == parity
    assert ENGINES[target] <= {file.name for file in (planned.repository / "tiny_model" / "1").rglob("*")}


@pytest.mark.parametrize("task", ["text-classification", "text-pair-scoring"])
def test_a_head_on_a_shared_encoder_answers_as_the_whole_model_does(make: Make, task: str, tmp_path: Path) -> None:
    whole = parity_of(plan_of(make(task), "cpu"))
    apart = parity_of(plan_of(make_workload(tmp_path / "other" / "workloads", task, shared=True), "cpu"))
    assert whole.compiled == apart.compiled


def test_int8_is_near(make: Make) -> None:
    planned = plan_of(make(), "cpu-int8")
    assert 1e-4 < parity_of(planned).mean_logit_difference < 0.5
    graph = onnx.load(planned.repository / "tiny_model" / "1" / "model.onnx").graph
    weights = {tensor.name for tensor in graph.initializer}
    in_fp32 = [node for node in graph.node if node.op_type in ("MatMul", "FusedMatMul") and weights & set(node.input)]
    assert not in_fp32


@pytest.mark.parametrize(("target", "allowed"), [("cpu-int8", 0.02), ("openvino-int8", 0.005)])
def test_int8_that_fails_parity_names_the_layers_to_keep_in_fp32(make: Make, target: str, allowed: float) -> None:
    loose, strict = "max_metric_drop = 1.0 }", f"max_metric_drop = 1.0, max_logit_difference = {allowed} }}"
    workload = edited(make(), loose, strict)
    message = message_of(GateFailed, build, plan_of(workload, target))
    advice = re.search(r"Or keep these layers in fp32, with which it passes: (fp32_layers = \[.+\])", message)
    assert advice is not None, message
    mended = edited(workload, f"[targets.{target}]", f"[targets.{target}]\n{advice[1]}")
    assert parity_of(plan_of(mended, target)).max_logit_difference < allowed


def test_variants_of_a_target_share_one_compile(make: Make) -> None:
    workload = make()
    steps: list[str] = []
    archives = {name: build(plan_of(workload, name), steps.append) for name in ("cpu", "alone", "twice", "cached")}
    assert sum(step.startswith("Exporting") for step in steps) == 1
    assert len({artifact.archive_sha256 for artifact in archives.values()}) == 4
    assert {artifact.target for artifact in archives.values()} == {"cpu"}
    assert [artifact.variant for artifact in archives.values()] == [*archives]
    extra = "SAGEMAKER_TRITON_ADDITIONAL_ARGS"
    assert archives["cached"].environment[extra] == "--cache-config=local,size=4194304"
    assert extra not in archives["cpu"].environment


@pytest.mark.parametrize("task", TASKS)
def test_another_label_in_the_evaluation_changes_no_archive(make: Make, task: str) -> None:
    """Labels are neither packed nor compiled, also not in golden rows and calibration."""
    workload = make(task)
    names = ("cpu", "openvino-int8", "inf1", "tensorrt")

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
    assert parity_of(planned).identical_answers == 24
    assert (planned.repository / "tiny_model" / "1" / "model.onnx.data").stat().st_size > 10_000


def config(**changes: Any) -> Callable[[WorkloadFolder], WorkloadFolder]:
    def change(workload: WorkloadFolder) -> WorkloadFolder:
        file = workload.path / "checkpoint" / "config.json"
        file.write_text(json.dumps(json.loads(file.read_text()) | changes))
        return workload

    return change


CONFIG = "checkpoint/config.json"
REFUSALS: dict[str, tuple[Callable[[WorkloadFolder], WorkloadFolder], str]] = {
    "another architecture": (
        config(architectures=["RobertaForSequenceClassification"]),
        f'{CONFIG}: architectures: got ["RobertaForSequenceClassification"], allowed is BertForSequenceClassification.',
    ),
    "other labels": (
        config(id2label={"0": "buy", "1": "navigate", "2": "ask"}),
        f'{CONFIG}: id2label: the head answers ["buy", "navigate", "ask"], but model.labels in workload.toml is '
        '["buy", "ask", "navigate"]. Write the head\'s labels there, in its order.',
    ),
    "longer than the model": (
        lambda workload: edited(workload, "max_input_tokens = 32", "max_input_tokens = 65"),
        f"{CONFIG}: max_position_embeddings: got 64, but model.max_input_tokens in workload.toml is 65. Lower it, or "
        "take a model of longer inputs.",
    ),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_a_checkpoint_that_does_not_fit_the_workload_is_refused(make: Make, name: str) -> None:
    change, message = REFUSALS[name]
    workload = change(make())
    assert message_of(UsageError, plan_of, workload, "cpu") == f"{workload.path / message}"


def test_a_task_that_a_runtime_is_not_built_for(tmp_path: Path) -> None:
    workload = tiny_t5.make_workload(tmp_path / "workloads")
    target = '[targets.cpu-int8]\nruntime = "onnxruntime"\nprecision = "int8"'
    workload = edited(workload, target, '[targets.cpu-int8]\nruntime = "torchscript"')
    assert message_of(UsageError, plan_of, workload, "cpu-int8") == (
        f"{workload.file}: targets.cpu-int8.runtime: 'torchscript' is not built for text2text-generation. "
        "A decoder with a cache has no plain trace, and no static graph for Neuron. Allowed: onnxruntime, cuda, "
        "tensorrt."
    )


def test_a_full_disk_leaves_no_incomplete_files(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    planned = plan_of(make(), "cpu")

    def full(folder: Path, file: Path) -> None:
        file.write_bytes(b"half")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(archive, "pack", full)
    with pytest.raises(OSError, match="No space left on device"):
        build(planned)
    assert not list(planned.folder.iterdir())
