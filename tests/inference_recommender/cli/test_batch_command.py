"""`batch`: shards, costs and a saving from the batch program's reports, or from a figure that is stated."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from containers.batch.job import Summary
from inference_recommender.__main__ import main
from inference_recommender.cli import batch
from inference_recommender.sizing.batch import measured
from tests.artifacts import an_artifact
from workloads import ROOT, BatchRecommendation, NoVerdict, UsageError, WorkloadFolder

ARCHIVE, CPU_ARCHIVE = "a" * 64, "c" * 64
STATED = ["batch", "duplicates", "--rows-per-second", "4380", "--source", "a table of 2024, of BERT-base"]
Report = Callable[..., Path]


@pytest.fixture
def report(tmp_path: Path) -> Report:
    """Writes a report, as a shard's run on the stack of 100,000 rows at 4,000 a second but for the changes."""

    def write(name: str = "shard-1-of-2.json", **changes: object) -> Path:
        values: dict[str, object] = {
            "rows": 100_000,
            "answered": 100_000,
            "bad": 0,
            "bad_share": 0.0,
            "load_seconds": 20.0,
            "rows_per_second": 4000.0,
            "archive_sha256": ARCHIVE,
            "stack": "DuplicatesStack",
        }
        (tmp_path / "summaries").mkdir(exist_ok=True)
        file = tmp_path / "summaries" / name
        file.write_text(json.dumps({**values, **changes}))
        return file

    return write


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> WorkloadFolder:
    """The workload `duplicates`, built for Inf1 and for CPUs, in a folder that a test may write to."""
    path = tmp_path / "workloads" / "duplicates"
    shutil.copytree(ROOT / "workloads" / "duplicates", path, ignore=shutil.ignore_patterns("*.py", "*.jsonl"))
    copy = WorkloadFolder(path)
    for target, sha256 in (("inf1", ARCHIVE), ("cpu-int8", CPU_ARCHIVE)):
        built = an_artifact(workload="duplicates", variant=target, target=target, archive_sha256=sha256)
        (tmp_path / "build" / "duplicates" / target).mkdir(parents=True)
        built.write_json(tmp_path / "build" / "duplicates" / target / "artifact.json")
    monkeypatch.setattr(batch, "ROOT", tmp_path)
    monkeypatch.setattr(batch, "load_workload", lambda name: copy)
    monkeypatch.setattr(
        batch,
        "load_artifact",
        lambda root, workload, target: batch._built(copy)[ARCHIVE if target == "inf1" else CPU_ARCHIVE],
    )
    return copy


def _ran(capsys: pytest.CaptureFixture[str], *arguments: object) -> dict[str, Any]:
    assert main([*map(str, arguments), "--json"]) == 0
    return dict(json.loads(capsys.readouterr().out))


def test_shards_follow_from_the_reports_the_objective_and_the_headroom(
    folder: WorkloadFolder, report: Report, capsys: pytest.CaptureFixture[str]
) -> None:
    """8,800 rows a second and a fifth more, over 4,400 of the mean report, are 2.4; without headroom 2."""
    report(), report("shard-2-of-2.json", rows_per_second=4800.0, load_seconds=40.0)
    found = _ran(capsys, "batch", "duplicates", "--from", report().parent, "--rows-per-run", 100_000_000)
    fleet = found["recommended"]
    assert (fleet["instance_type"], fleet["rows_per_second"], fleet["measured"]) == ("inf1.6xlarge", 4400, [4000, 4800])
    assert (fleet["shards"], fleet["shard_parts"]["peak"], fleet["shard_parts"]["headroom"]) == (3, 2, 1)
    assert (fleet["known_by"], fleet["source"]) == ("stack", "2 reports of a run of DuplicatesStack")
    assert fleet["run_s"] == pytest.approx(100e6 / 13_200 + 30)
    assert fleet["cost_per_hour_usd"] == pytest.approx(3 * 1.18)
    assert fleet["cost_per_run_usd"] == pytest.approx(3.54 * (100e6 / 13_200 + 30) / 3600)
    assert fleet["cost_per_million_rows_usd"] == pytest.approx(1.18 / (4400 * 3600) * 1e6)
    assert (found["archive_sha256"], found["saving_percent"]) == (ARCHIVE, None)


def test_a_report_is_what_the_batch_program_writes(tmp_path: Path) -> None:
    written = Summary(
        rows=50_000,
        answered=50_000,
        bad=0,
        rows_done_before=0,
        workers=16,
        load_seconds=20.0,
        seconds=40.0,
        rows_per_second=2500.0,
        padding_share=0.1,
        manifest=None,
        archive_sha256=ARCHIVE,
        stack=None,
    )
    (tmp_path / "summary.json").write_text(json.dumps(written.document()))
    found = measured([tmp_path], 0.01, "2 cores")
    assert (found.rows_per_second, found.rows, found.load_s, found.archive_sha256) == (2500, 50_000, 20, ARCHIVE)
    assert (found.known_by, found.source) == ("local", "1 report of this project's batch program on 2 cores")


def test_the_saving_is_per_row_against_a_fleet_of_the_same_checkpoint(
    folder: WorkloadFolder, report: Report, capsys: pytest.CaptureFixture[str]
) -> None:
    cpu = report("cpu.json", rows_per_second=500.0, archive_sha256=CPU_ARCHIVE, stack=None)
    baseline = ["--baseline", cpu, "--baseline-instance-type", "c5.xlarge"]
    found = _ran(capsys, "batch", "duplicates", "--from", report(), *baseline)
    assert found["baseline"]["shards"] == 22  # 10,560 / 500, rounded up
    assert found["baseline"]["known_by"] == "local"
    assert found["saving_percent"] == pytest.approx(100 * (1 - (1.18 / 4000) / (0.17 / 500)))
    assert found["reason"] == "Both rates are of the same checkpoint."


def test_a_recommendation_is_written_for_review_and_read_by_the_stack(
    folder: WorkloadFolder, report: Report, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["batch", "duplicates", "--from", str(report()), "--recommend"]) == 0
    shown = capsys.readouterr()
    assert shown.err == f"Written: {folder.recommendation_file}. The next `cdk deploy` uses it.\n"
    (row,) = (line.split() for line in shown.out.splitlines() if line.startswith("  recommended"))
    assert row[1:] == ["inf1.6xlarge", "measured,", "stack", "4,000", "3", "28", "3.540", "0.0279", "0.0819"]
    written = folder.batch_recommendation()
    assert isinstance(written, BatchRecommendation)
    assert (written.recommended.shards, written.rows_per_run, folder.recommendation()) == (3, 100_000, None)


def test_a_stated_rate_is_a_scenario_that_names_its_inputs(capsys: pytest.CaptureFixture[str]) -> None:
    other = ["--baseline-rows-per-second", "94.6", "--baseline-source", "a run elsewhere"]
    assert main([*STATED, *other, "--baseline-instance-type", "c5.xlarge"]) == 0
    shown = capsys.readouterr().out
    for sentence in (
        "Recommended: 4,380 rows/s on inf1.6xlarge: a table of 2024, of BERT-base. Price: Amazon EC2 pricing, ",
        "Baseline: 94.6 rows/s on c5.xlarge: a run elsewhere. Price: Amazon EC2 pricing, ",
        "A row costs 85.0 % less than on the baseline.",
        "The rate on inf1.6xlarge and on c5.xlarge is stated and not measured: this is a scenario, and holds where "
        "both rates are of one model.",
    ):
        assert sentence in shown


def test_a_type_without_a_price_is_sized_and_says_why_it_costs_nothing_known(
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = _ran(capsys, *STATED, "--instance-type", "ml.inf1.xlarge")["recommended"]
    assert (found["shards"], found["cost_per_hour_usd"]) == (3, None)
    assert found["cost_reason"].startswith(
        "Of no known price: prices.json has none for ml.inf1.xlarge in us-east-1: public lists of 2023 to 2026 disagree"
    )


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        (
            {"rows": 1000},
            "too few rows: 1,000 were answered in 0.2 s, and 10 s are the least. Give the batch more rows.",
        ),
        (
            {"bad_share": 0.02},
            "2.0% of the rows are bad, more than max_bad_share 0.01: such a run has failed. Mend the input and measure "
            "again.",
        ),
    ],
)
def test_a_report_that_shows_too_little_is_no_verdict(report: Report, changes: dict[str, object], problem: str) -> None:
    file = report(**changes)
    with pytest.raises(NoVerdict) as raised:
        measured([file], 0.01, "here")
    assert str(raised.value) == f"{file}: {problem}"


def test_reports_of_shards_that_found_all_rows_answered_are_left_out(report: Report) -> None:
    found = measured([report(), report("2.json", rows=0, rows_per_second=None)], 0.01, "here")
    assert found.measured == (4000,)
    with pytest.raises(NoVerdict) as raised:
        measured([file := report(rows=0, rows_per_second=None)], 0.01, "here")
    assert str(raised.value) == f"{file}: no report of a run that answered any row. Give those of a whole run."


def _refusal(*files: Path) -> str:
    with pytest.raises(UsageError) as raised:
        measured(files, 0.01, "here")
    return str(raised.value)


def test_what_is_no_report_and_reports_of_several_archives_are_refused(report: Report, tmp_path: Path) -> None:
    other = tmp_path / "other.json"
    other.write_text('{"rows": "many"}')
    wrote = "`python -m containers.batch --summary FILE` wrote."
    assert _refusal(other) == f"{other}: is no report of the batch program. Give what {wrote}"
    one, two = report(), report("2.json", archive_sha256=CPU_ARCHIVE)
    assert _refusal(one, two) == f"{one}, {two}: are of 2 archives. Give the reports of one."
    assert _refusal(report(archive_sha256=None)) == (
        f"{one}: archive_sha256: is null, for the model was a folder. Run the batch with the archive that is deployed: "
        "--model build/WORKLOAD/TARGET/model.tar.gz."
    )


def test_reports_of_another_archive_than_the_built_one_are_refused(
    folder: WorkloadFolder, report: Report, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["batch", "duplicates", "--from", str(report(archive_sha256="d" * 64))]) == 2
    assert capsys.readouterr().err == (
        "--from: was measured on the archive dddddddddddd…, but build/duplicates/inf1 has aaaaaaaaaaaa…. Measure that "
        "one, or name the --target that was measured.\n"
    )


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (STATED[:4], "--rows-per-second X and --source TEXT go together: give both."),
        (
            [*STATED, "--baseline-instance-type", "c5.xlarge"],
            "A baseline has --baseline PATH, or --baseline-rows-per-second X, and --baseline-instance-type TYPE: give "
            "both.",
        ),
        (
            [*STATED, "--recommend"],
            "--recommend: a recommendation is of what was measured: give --from REPORTS. Shards by a stated figure go "
            "into workload.toml, hosting.shards, with their source.",
        ),
        (
            ["batch", "spellcheck", *STATED[2:]],
            f"{ROOT}/workloads/spellcheck/workload.toml: hosting.kind: is no scheduled-batch. Measure it with `python "
            "-m inference_recommender run spellcheck`.",
        ),
    ],
)
def test_what_does_not_go_together_is_refused(
    arguments: list[str], problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    assert capsys.readouterr().err == f"{problem}\n"
