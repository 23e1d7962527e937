"""An archive for Neuron carries golden rows of the original, by which a core that multiplies in bf16 can be judged."""

from pathlib import Path

import numpy as np
import pytest

from containers.encoder.golden_check import check
from containers.encoder.goldens import GOLDENS, PARITY, Golden, Limits, load, to_json
from containers.encoder.load_engine import load as load_engine
from containers.encoder.settings import Settings
from containers.errors import Unavailable
from model_build.build import build
from model_build.encoder.reference import Reference
from model_build.plan import BuildPlan, plan
from tests import fake_neuron
from tests.model_build.tiny_bert import make_workload
from workloads import Parity

TASKS = ("text-classification", "text-pair-scoring", "question-answering")


def build_for_inf1(folder: Path, task: str, monkeypatch: pytest.MonkeyPatch, *, bf16: bool = False) -> BuildPlan:
    fake_neuron.install(monkeypatch, "torch_neuron", folder / "site", bf16=bf16)
    planned = plan(make_workload(folder / "workloads", task), "inf1", folder)
    build(planned)
    return planned


@pytest.mark.parametrize("task", TASKS)
def test_the_golden_rows_are_those_of_the_reference_that_the_parity_gate_uses(
    task: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned = build_for_inf1(tmp_path, task, monkeypatch)
    goldens, limits = load(planned.repository)
    assert limits == Limits(**Parity().model_dump())
    assert [sum(golden.length == length for golden in goldens) for length in (16, 32)] == [4, 4]
    asked = Reference(planned.checkpoint, planned.compile_inputs.encoder)
    for golden in goldens:
        [wanted] = asked.outputs([planned.examples[golden.row - 1].row])
        assert golden.outputs.keys() == wanted.keys()
        for name, output in wanted.items():
            np.testing.assert_allclose(golden.outputs[name], np.atleast_1d(output), atol=1e-4)


def test_a_cast_to_bf16_passes_the_limits_it_was_given_and_no_tighter_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned = build_for_inf1(tmp_path, "text-classification", monkeypatch, bf16=True)
    folder, known = planned.repository, Settings.load(planned.repository / "settings.json")
    engine = load_engine(folder, known)
    check(engine, known, folder)
    (folder / "parity.json").write_text(Limits(1e-4, None, 0.01).to_json())
    with pytest.raises(Unavailable, match=r"off, at most 0.0001 is allowed \(parity.max_logit_difference\)"):
        check(engine, known, folder)


def test_other_evaluation_rows_are_other_golden_rows(tmp_path: Path) -> None:
    planned = plan(make_workload(tmp_path / "workloads", "text-classification"), "inf1", tmp_path)
    before = planned.compiled_key
    evaluation = planned.source.path / "evaluation.jsonl"
    evaluation.write_text("".join(evaluation.read_text().splitlines(keepends=True)[1:]))
    assert plan(planned.source, "inf1", tmp_path).compiled_key != before


def test_a_golden_row_is_written_as_it_is_read(tmp_path: Path) -> None:
    golden = Golden(row=3, length=8, token_ids=(2, 7, 3), type_ids=(0, 0, 0), outputs={"logits": [0.5, -1.0]})
    (tmp_path / GOLDENS).write_text(to_json([golden, golden]))
    (tmp_path / PARITY).write_text(Limits(None, 0.1, 0.01).to_json())
    assert load(tmp_path) == ([golden, golden], Limits(None, 0.1, 0.01))
