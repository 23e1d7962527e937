"""`size` with a batch: shards, costs and a saving from the batch program's reports, or from a stated rate."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import tomllib

from inference_recommender.__main__ import main
from inference_recommender.cli import size
from inference_recommender.sizing.batch import read_throughput
from tests.builders import an_artifact, message_of
from tests.inference_recommender.conftest import Cli
from tests.inference_recommender.sizing.builders import ARCHIVE, CPU_ARCHIVE, batch_report, job_result, job_text
from workloads import ROOT, BatchRecommendation, NoVerdict, ProjectError, WorkloadFolder

REPORTS = tomllib.loads(Path(__file__).with_name("size_refusals.toml").read_text("utf-8"))["report"]
STATED = {"rows_per_second": 4380, "source": "a table of 2024, of BERT-base"}
ON_CPU = {"rows_per_second": 94.6, "source": "a run elsewhere", "instance_type": "c5.xlarge"}


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
    monkeypatch.setattr(size, "ROOT", tmp_path)
    monkeypatch.setattr(size, "load_workload", lambda name: copy)
    return copy


def stated(tmp_path: Path, **keys: object) -> Path:
    file = tmp_path / "stated.json"
    file.write_text(json.dumps({**STATED, **keys}))
    return file


def sized(cli: Cli, *arguments: object) -> dict[str, Any]:
    return dict(cli.json("size", "--workload", "duplicates", *map(str, arguments), "--json"))


def test_shards_follow_from_the_reports_the_objective_and_the_headroom(
    folder: WorkloadFolder, tmp_path: Path, cli: Cli
) -> None:
    """The objective of 8,800 rows/s and a fifth more, over the mean of 4,400, is 2.4; without headroom 2."""
    batch_report(tmp_path / "summaries" / "1.json")
    batch_report(tmp_path / "summaries" / "2.json", rows_per_second=4800.0, load_seconds=40.0)
    batch_report(tmp_path / "summaries" / "nothing-left.json", rows=0, rows_per_second=None)
    found = sized(cli, "--from", tmp_path / "summaries", "--rows-per-run", 100_000_000)
    fleet = found["recommended"]
    assert (fleet["instance_type"], fleet["rows_per_second"], fleet["measured"]) == ("inf1.6xlarge", 4400, [4000, 4800])
    assert (fleet["shards"], fleet["shard_parts"]["peak"], fleet["shard_parts"]["headroom"]) == (3, 2, 1)
    assert (fleet["known_by"], fleet["source"]) == ("stack", "2 reports of a run of DuplicatesStack")
    assert fleet["run_s"] == pytest.approx(100e6 / 13_200 + 30)
    assert fleet["cost_per_hour_usd"] == pytest.approx(3 * 1.18)
    assert fleet["cost_per_run_usd"] == pytest.approx(3.54 * (100e6 / 13_200 + 30) / 3600)
    assert fleet["cost_per_million_rows_usd"] == pytest.approx(1.18 / (4400 * 3600) * 1e6)
    assert (found["archive_sha256"], found["target"], found["saving_percent"]) == (ARCHIVE, "inf1", None)


def test_a_report_that_no_stack_made_is_of_this_machine(tmp_path: Path) -> None:
    file = batch_report(tmp_path / "summary.json", rows=50_000, rows_per_second=2500.0, stack=None)
    found = read_throughput([file], 0.01, "2 cores")
    assert (found.rows_per_second, found.rows, found.load_s, found.archive_sha256) == (2500, 50_000, 20, ARCHIVE)
    assert (found.known_by, found.source) == ("local", "1 report of the batch program on 2 cores")


def test_the_saving_is_per_row_against_a_fleet_of_the_same_checkpoint(
    folder: WorkloadFolder, tmp_path: Path, cli: Cli
) -> None:
    cpu = batch_report(tmp_path / "cpu.json", rows_per_second=500.0, archive_sha256=CPU_ARCHIVE, stack=None)
    inf1 = batch_report(tmp_path / "inf1.json")
    found = sized(cli, "--from", inf1, "--baseline", f"c5.xlarge={cpu}")
    assert found["baseline"]["shards"] == 22  # 10,560 / 500, rounded up
    assert (found["baseline"]["known_by"], found["baseline"]["instance_type"]) == ("local", "c5.xlarge")
    assert found["saving_percent"] == pytest.approx(100 * (1 - (1.18 / 4000) / (0.17 / 500)))
    assert found["reason"] == "Both rates are of the same checkpoint."


def test_a_recommendation_is_written_for_review_and_read_by_the_stack(
    folder: WorkloadFolder, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = batch_report(tmp_path / "inf1.json")
    assert main(["size", "--workload", "duplicates", "--from", str(file), "--recommend"]) == 0
    shown = capsys.readouterr()
    assert shown.err == f"Written: {folder.recommendation_file}. The next `cdk deploy` uses it.\n"
    (row,) = (line.split() for line in shown.out.splitlines() if "inf1.6xlarge" in line and "measured," in line)
    assert row[1:] == ["inf1.6xlarge", "measured,", "stack", "4,000", "3", "28", "3.540", "0.0279", "0.0819"]
    written = folder.batch_recommendation()
    assert isinstance(written, BatchRecommendation)
    assert (written.recommended.shards, written.rows_per_run, folder.recommendation()) == (3, 100_000, None)


def test_a_stated_rate_is_a_scenario_that_names_its_inputs(tmp_path: Path, cli: Cli) -> None:
    (tmp_path / "cpu.json").write_text(json.dumps(ON_CPU))
    arguments = ["--from", str(stated(tmp_path)), "--baseline", str(tmp_path / "cpu.json"), "--explain"]
    shown = cli.out("size", "--workload", "duplicates", *arguments)
    for sentence in (
        "4,380 rows/s on inf1.6xlarge: a table of 2024, of BERT-base. Price: Amazon EC2 pricing, ",
        "94.6 rows/s on c5.xlarge: a run elsewhere. Price: Amazon EC2 pricing, ",
        "A row costs 85.0 % less than on the baseline.",
        "The rate on inf1.6xlarge and on c5.xlarge is stated, not measured. The saving is a scenario: it holds if both "
        "rates are of one model.",
    ):
        assert sentence in shown


def test_a_type_without_a_price_is_sized_and_its_cost_has_a_reason(tmp_path: Path, cli: Cli) -> None:
    found = sized(cli, "--from", f"ml.inf1.xlarge={stated(tmp_path)}")["recommended"]
    assert (found["shards"], found["cost_per_hour_usd"]) == (3, None)
    assert found["cost_reason"].startswith(
        "No price: prices.json has none for ml.inf1.xlarge in us-east-1: public lists of 2023 to 2026 disagree"
    )
    priced = sized(cli, "--from", stated(tmp_path, price_per_hour_usd=2.0))["recommended"]
    assert (priced["cost_per_hour_usd"], priced["cost_reason"]) == (6.0, "Stated: a table of 2024, of BERT-base.")


@pytest.mark.parametrize("case", REPORTS, ids=lambda case: case["problem"][:40])
def test_an_unusable_report_is_refused(tmp_path: Path, case: dict[str, Any]) -> None:
    changes = {key: None if value == "none" else value for key, value in case["keys"].items()}
    problem, file = case["problem"], batch_report(tmp_path / "report.json", **changes)
    with pytest.raises(ProjectError) as raised:
        read_throughput([file], 0.01, "here")
    assert str(raised.value) == f"{file}: {problem}"
    assert isinstance(raised.value, NoVerdict) == (not problem.startswith(("archive_sha256", "is neither")))


def test_files_that_do_not_fit_together_are_refused(tmp_path: Path) -> None:
    one, two = batch_report(tmp_path / "1.json"), batch_report(tmp_path / "2.json", archive_sha256=CPU_ARCHIVE)
    for second, problem in (
        (two, "has reports of 2 archives. Give the reports of one."),
        (stated(tmp_path), "has a stated rate among 2 files. Give only the stated rate."),
    ):
        assert message_of(ProjectError, read_throughput, [one, second], 0.01, "here") == f"{one}, {second}: {problem}"


def test_a_baseline_of_another_checkpoint_is_refused(folder: WorkloadFolder, tmp_path: Path, cli: Cli) -> None:
    built = an_artifact(
        workload="duplicates", variant="cpu-int8", archive_sha256=CPU_ARCHIVE, checkpoint_sha256="9" * 64
    )
    built.write_json(tmp_path / "build" / "duplicates" / "cpu-int8" / "artifact.json")
    files = (batch_report(tmp_path / "1.json"), batch_report(tmp_path / "2.json", archive_sha256=CPU_ARCHIVE))
    arguments = ["--from", str(files[0]), "--baseline", f"c5.xlarge={files[1]}"]
    assert cli.err("size", "--workload", "duplicates", *arguments) == (
        "--baseline: was measured on cpu-int8, which was built of another checkpoint. Build both of one.\n"
    )


TABLE = tomllib.loads(Path(__file__).with_name("size_refusals.toml").read_text("utf-8"))


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A job, a report of an unknown archive and a stated rate, in the working folder."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "job.json").write_text(job_text(job_result(MaxInvocations=9_000, ModelLatency=120)))
    batch_report(tmp_path / "report.json", archive_sha256="d" * 64)
    (tmp_path / "rate.json").write_text(json.dumps({"rows_per_second": 4380, "source": "a table"}))
    return tmp_path


@pytest.mark.parametrize("case", TABLE["case"], ids=lambda case: case["message"][:40])
def test_options_that_do_not_fit_the_evidence_are_refused(files: Path, cli: Cli, case: dict[str, Any]) -> None:
    assert cli.err("size", *case["arguments"]) == f"{case['message']}\n".replace("{root}", str(ROOT))


@pytest.mark.parametrize("case", TABLE["file"], ids=lambda case: case["why"][:40])
def test_a_file_without_a_job_is_refused(files: Path, cli: Cli, case: dict[str, str]) -> None:
    (files / "other.json").write_text(case["text"], "utf-8")
    assert cli.err("size", "--from", "other.json", "--peak-invocations-per-minute", "30000") == (
        f"other.json is not a usable response of DescribeInferenceRecommendationsJob: {case['why']}.\n"
    )
