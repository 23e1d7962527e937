"""`plan` of every workload for every target and variant, verbatim: the compiler's command or call, what is packed."""

import shutil
from pathlib import Path

import pytest

from model_build import render
from model_build.plan import plan
from workloads import ROOT, NeuronTarget, load_workload, workload_names

GOLDENS = Path(__file__).parent / "goldens" / "plan"
BUILDS = [
    (name, deployable)
    for name in workload_names(ROOT / "workloads")
    for deployable in load_workload(name).workload.deployables
]


@pytest.mark.parametrize(("workload", "name"), BUILDS)
def test_the_plan_is_the_golden_file(workload: str, name: str) -> None:
    text = render.text("plan", plan(load_workload(workload), name, ROOT).document()) + "\n"
    text = text.replace(str(ROOT), ".")
    golden = GOLDENS / f"{workload}.{name}.txt"
    if not golden.exists() or golden.read_text("utf-8") != text:
        golden.parent.mkdir(exist_ok=True)
        golden.write_text(text, "utf-8")
        pytest.fail(f"{golden} was rewritten: look at the difference and run again")


def test_every_golden_plan_is_of_a_build_that_exists() -> None:
    assert {file.stem for file in GOLDENS.glob("*.txt")} == {f"{workload}.{name}" for workload, name in BUILDS}


def test_what_is_for_inf1_is_for_inf2_too_and_both_are_held_to_the_same_numbers() -> None:
    """Golden rows are compared with the target's parity: without a limit on numbers only places would count."""
    for workload in map(load_workload, workload_names(ROOT / "workloads")):
        targets = [each for each in workload.workload.targets.values() if isinstance(each, NeuronTarget)]
        assert {each.runtime for each in targets} in (set(), {"neuron", "neuronx"}), workload.file
        assert len({each.parity for each in targets}) <= 1, workload.file
        assert all(each.parity.max_logit_difference for each in targets), workload.file


def test_moving_from_inf1_to_inf2_is_one_line(workloads_copy: Path) -> None:
    shutil.copytree(ROOT / "workloads" / "query_intent", workloads_copy / "query_intent")
    file = workloads_copy / "query_intent" / "workload.toml"
    before = file.read_text("utf-8")
    after = before.replace('\ntarget = "inf1" ', '\ntarget = "inf2" ')
    assert sum(a != b for a, b in zip(before.splitlines(), after.splitlines(), strict=True)) == 1
    file.write_text(after, "utf-8")
    workload = load_workload("query_intent", workloads_copy).workload
    assert workload.instance_types == ("inf2.xlarge",)
    assert workload.targets[workload.hosting.target].runtime == "neuronx"
