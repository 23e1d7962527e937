"""The table of families is whole, stands in docs/families.md, and says of every cell what a plan of a build says."""

import json
from pathlib import Path

import pytest

import model_build.__main__ as command_line
from model_build import matrix
from model_build.checkpoint.families import FAMILIES, HEADS, NOT_BUILT
from model_build.checkpoint.text2text import FAMILIES as TEXT2TEXT
from model_build.plan import plan
from tests.model_build.miniatures.tiny_rows import make_workload
from workloads import ROOT, UsageError, WorkloadFolder

PAGE = ROOT / "docs" / "families.md"
BEGIN, END = "<!-- families -->\n", "<!-- /families -->\n"
ROWS = {(row.model_type, row.task): row for row in matrix.rows()}
QUICK = {("roberta", "token-classification"), ("albert", "text-classification"), ("bart", matrix.BEAMS)}
"""Rows whose cells differ in their reasons; the slow test plans all."""
Capture = pytest.CaptureFixture[str]


def printed(capsys: Capture, *flags: str) -> str:
    assert command_line.main(["plan", "--families", *flags]) == 0
    return capsys.readouterr().out


def test_every_family_and_task_has_a_row_and_every_target_a_cell_with_a_reason_where_it_takes_none(
    capsys: Capture,
) -> None:
    document = json.loads(printed(capsys, "--json"))
    encoders = {(family, task) for family in (*FAMILIES, *NOT_BUILT) for task in HEADS}
    decoders = {(family, task) for family in TEXT2TEXT for task in (matrix.GENERATION, matrix.BEAMS)}
    assert {(row["model_type"], row["task"]) for row in document["families"]} == encoders | decoders
    for row in document["families"]:
        assert sorted([*row["targets"], *row["left_out"]]) == sorted(document["targets"])
        assert all(reason.endswith(".") for reason in row["left_out"].values())


def test_the_page_on_families_has_the_table_that_the_command_prints(capsys: Capture) -> None:
    table, text = printed(capsys), PAGE.read_text("utf-8")
    before, _, rest = text.partition(BEGIN)
    stands, _, behind = rest.partition(END)
    if stands != table:
        PAGE.write_text(f"{before}{BEGIN}{table}{END}{behind}", "utf-8")
        pytest.fail(f"{PAGE} was rewritten: look at the difference and run again")


@pytest.mark.parametrize(
    "cell", [pytest.param(each, marks=() if each in QUICK else pytest.mark.slow, id=" ".join(each)) for each in ROWS]
)
def test_a_build_is_planned_where_the_table_says_yes_and_refused_with_its_reason_elsewhere(
    cell: tuple[str, str], tmp_path: Path
) -> None:
    row, (model_type, task) = ROWS[cell], cell
    workload = workload_of(model_type, task, tmp_path)
    for name in matrix.TARGETS:
        if name in row.targets:
            assert plan(workload, name, tmp_path).variant.target == name
        else:
            with pytest.raises(UsageError) as refused:
                plan(workload, name, tmp_path)
            assert row.left_out[name].rstrip(".") in str(refused.value), name


def workload_of(model_type: str, task: str, folder: Path) -> WorkloadFolder:
    """A workload of the family; of one that is not built for the task, a BERT that says it is of the family."""
    lacks = model_type in NOT_BUILT or (model_type in FAMILIES and FAMILIES[model_type].lacks_head(task))
    workload = make_workload(folder / "workloads", "bert" if lacks else model_type, task)
    if lacks:
        file = workload.path / "checkpoint" / "config.json"
        file.write_text(json.dumps(json.loads(file.read_text()) | {"model_type": model_type}))
    return workload
