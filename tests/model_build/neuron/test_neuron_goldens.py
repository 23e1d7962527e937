"""An archive for Neuron carries golden rows of the original, and what a chip gave for all rows is held to it here."""

import dataclasses
import json
import shutil
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import containers.batch.record as recording
from containers.container_errors import ContainerError, Unavailable
from containers.encoder.engines.load_engine import load as load_engine
from containers.encoder.goldens import PARITY, ParityLimits, RecordedOutputs, check, load
from containers.encoder.settings import Settings
from model_build.encoder.reference import Reference
from model_build.execute import build, verify_outputs, verify_recorded
from model_build.parity import GateFailed, ParityFailed
from model_build.plan import BuildPlan, plan
from tests import fake_neuron
from tests.builders import message_of
from tests.model_build.miniatures.tiny_bert import make_workload
from workloads import Parity, UsageError, load_artifact, load_workload

TASKS = ("text-classification", "text-pair-scoring", "question-answering")
LIMITS = "parity = { max_logit_difference = 5.0, max_metric_drop = 0.5 }"
INF2 = f"""\
[targets.inf2]
runtime = "neuronx"
instance_types = ["inf2.xlarge"]
sequence_lengths = [16, 32]
{LIMITS}
"""
BUILDS = [(TASKS[0], "inf1"), (TASKS[1], "inf1"), (TASKS[2], "inf1"), (TASKS[2], "inf2")]
Built = Callable[..., BuildPlan]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Built]:
    """Builds of tiny workloads for Inf1 and Inf2, by a fake whose products are in bf16. Not to be changed."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        for package in ("torch_neuron", "torch_neuronx"):
            fake_neuron.install(monkeypatch, package, tmp_path_factory.mktemp("site"), bf16=True)

        @cache
        def built_for(task: str, target: str = "inf1") -> BuildPlan:
            root = tmp_path_factory.mktemp(task)
            workload = make_workload(root / "workloads", task)
            text = workload.file.read_text().replace('runtime = "neuron"', f'runtime = "neuron"\n{LIMITS}')
            workload.file.write_text(text.replace("[serving]", f"{INF2}\n[serving]"))
            planned = plan(load_workload("tiny", root / "workloads"), target, root)
            build(planned)
            return planned

        yield built_for


@pytest.mark.parametrize(("task", "target"), BUILDS)
def test_the_golden_rows_are_those_of_the_reference_that_the_parity_gate_uses(
    task: str, target: str, built: Built
) -> None:
    planned = built(task, target)
    goldens, limits = load(planned.repository)
    assert limits == ParityLimits(5.0, None, 0.5)
    assert [sum(golden.length == length for golden in goldens) for length in (16, 32)] == [4, 4]
    asked = Reference(planned.checkpoint, planned.compile_inputs.encoder)
    for golden in goldens:
        [[wanted]] = asked.outputs([planned.examples[golden.row - 1].row])
        assert golden.outputs.keys() == wanted.keys()
        for name, output in wanted.items():
            np.testing.assert_allclose(golden.outputs[name], np.atleast_1d(output), atol=1e-4)


def test_a_cast_to_bf16_passes_the_limits_of_its_target_and_no_tighter_ones(built: Built, tmp_path: Path) -> None:
    folder = shutil.copytree(built("text-classification").repository, tmp_path / "model")
    known = Settings.load(folder / "settings.json")
    assert known.precision == "fp32", "OpenVINO alone reads it"
    engine = load_engine(folder, known)
    check(engine, known, folder)
    (folder / PARITY).write_text(ParityLimits(1e-4, None, 0.5).to_json())
    with pytest.raises(Unavailable, match=r"\(parity.max_logit_difference 0.0001\)"):
        check(engine, known, folder)


def test_other_evaluation_rows_are_other_golden_rows(built: Built) -> None:
    inputs = built("text-classification").compile_inputs
    assert dataclasses.replace(inputs, calibration=inputs.calibration[1:]).facts() != inputs.facts()


@pytest.fixture
def copied(built: Built, tmp_path: Path) -> Built:
    """A copy of a build, to verify: that writes into it."""

    def copied_for(task: str, target: str = "inf1") -> BuildPlan:
        root = shutil.copytree(built(task, target).root, tmp_path / "root")
        return plan(load_workload("tiny", root / "workloads"), target, root)

    return copied_for


def record(planned: BuildPlan) -> Path:
    """Runs the program of a verification job on the fake's chip, and returns the file that it writes."""
    outputs = planned.root / "outputs.json"
    evaluation = planned.source.path / "evaluation.jsonl"
    words = ["--model", planned.archive, "--input", evaluation, "--output", outputs]
    assert recording.main([str(word) for word in words]) == 0
    return outputs


@pytest.mark.parametrize(("task", "target"), BUILDS)
def test_outputs_of_a_chip_are_compared_with_the_original_and_pass_the_gate(
    task: str, target: str, copied: Built
) -> None:
    planned = copied(task, target)
    with pytest.raises(GateFailed, match="the build compared nothing"):
        verify_recorded(planned)
    figures = verify_outputs(planned, record(planned))
    assert figures.examples == 24
    assert 1e-4 < figures.max_logit_difference < 5
    assert load_artifact(planned.root, "tiny", target).parity == figures
    assert verify_recorded(planned) == figures


def test_a_chip_that_is_too_far_off_is_not_released(copied: Built) -> None:
    planned = copied("text-classification")
    outputs = record(planned)
    target = planned.target.model_copy(update={"parity": Parity(max_logit_difference=1e-4, max_metric_drop=0.5)})
    with pytest.raises(ParityFailed, match=r"at most 0.0001 is allowed \(parity.max_logit_difference\)"):
        verify_outputs(dataclasses.replace(planned, target=target), outputs)
    assert not planned.artifact.exists()


def refusal(planned: BuildPlan, outputs: Path) -> str:
    return message_of(UsageError, verify_outputs, planned, outputs)


def test_outputs_that_are_not_of_this_build_are_refused(copied: Built, tmp_path: Path) -> None:
    planned = copied("text-classification")
    outputs = record(planned)
    recorded = RecordedOutputs.from_json(outputs.read_text())
    outputs.write_text(dataclasses.replace(recorded, model_sha256="0" * 64).to_json())
    assert refusal(planned, outputs) == (
        f"{outputs}: was recorded with another build of tiny for inf1 than {planned.archive}. Record it again with "
        "that archive."
    )
    outputs.write_text(dataclasses.replace(recorded, rows=recorded.rows[:-1]).to_json())
    assert refusal(planned, outputs) == (
        f"{outputs}: lacks rows of the current evaluation.jsonl. Record them again on the target's hardware with "
        "`python -m containers.batch.record`."
    )
    assert refusal(planned, tmp_path / "none").endswith(
        "cannot be read: No such file or directory. Name the file that containers.batch.record wrote."
    )
    assert planned.artifact.exists()


def test_a_row_that_cannot_be_asked_is_named(built: Built) -> None:
    lines = [json.dumps({"text": "a lamp"}), json.dumps({"text": ""})]
    with pytest.raises(ContainerError) as caught:
        recording.record(built("text-classification").repository, lines, "evaluation.jsonl")
    assert (str(caught.value), caught.value.exit_code) == ("--input evaluation.jsonl: row 2 has no text in text.", 2)
