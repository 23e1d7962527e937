"""`size` refuses wrong options and files; each row is a whole message."""

import json
from pathlib import Path

import pytest

from inference_recommender.__main__ import main
from tests.inference_recommender.sizing.builders import batch_report, job_result, job_text
from workloads import ROOT

PEAK = ("--peak-invocations-per-minute", "30000")
GONE = (
    "gone.json cannot be read: [Errno 2] No such file or directory: 'gone.json'. Allowed: the JSON of "
    "DescribeInferenceRecommendationsJob, or the folder of a run or an experiment."
)


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A job, a report of an unknown archive and a stated rate, in the working folder."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "job.json").write_text(job_text(job_result(MaxInvocations=9_000, ModelLatency=120)))
    batch_report(tmp_path / "report.json", archive_sha256="d" * 64)
    (tmp_path / "rate.json").write_text(json.dumps({"rows_per_second": 4380, "source": "a table"}))
    return tmp_path


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ((), "--from: is missing. Give evidence to size from, or --explain to print the price catalogue."),
        (("--from", "job.json", "job.json"), "--from: got 2 paths. Only the reports of a batch may be several."),
        (
            ("--from", "job.json", "--latency-limit-ms", "9", "--workload", "spellcheck"),
            "--latency-limit-ms, --workload: both give the objective. Leave one out.",
        ),
        (
            ("--from", "job.json"),
            "--peak-invocations-per-minute: is missing. Give it, or --workload NAME for its objective.",
        ),
        (
            ("--from", "job.json", *PEAK, "--set", "sizing.headroom=-1"),
            "--set sizing: headroom: got -1. Input should be greater than or equal to 0.",
        ),
        (("--from", "job.json", *PEAK, "--set", "headroom=1"), "--set: got 'headroom=1'. Allowed: sizing.KEY=VALUE."),
        (("--from", "job.json", *PEAK, "--recommend"), "--recommend: is only for a batch's reports or a rate."),
        (("--from", "rate.json", *PEAK), "--peak-invocations-per-minute: is only for a job, a run or a search."),
        (("--from", "rate.json"), "--workload: is missing. A batch's shards follow from the objective of a workload."),
        (
            ("--from", "rate.json", "--workload", "duplicates", "--baseline", "rate.json"),
            "--baseline: names no instance type. Give it as --baseline TYPE=PATH.",
        ),
        (
            ("--from", "rate.json", "--workload", "duplicates", "--recommend"),
            "--recommend: needs measured reports. Write shards from a stated rate into workload.toml, hosting.shards, "
            "with their source.",
        ),
        (
            ("--from", "rate.json", "--workload", "spellcheck"),
            f"{ROOT}/workloads/spellcheck/workload.toml: hosting.kind: is not scheduled-batch. Measure it with `python "
            "-m inference_recommender run spellcheck`.",
        ),
        (
            ("--from", "report.json", "--workload", "duplicates"),
            "--from: was measured on the archive dddddddddddd…, which is none of this machine's builds. Build it, or "
            "measure the archive that is built.",
        ),
        (("--from", "gone.json", *PEAK), GONE),
    ],
)
def test_options_that_do_not_fit_the_evidence_are_refused(
    files: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], problem: str
) -> None:
    assert main(["size", *arguments]) == 2
    assert capsys.readouterr().err == f"{problem}\n"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (
            "{'JobName': 'j'}",
            "it is not JSON (Expecting property name enclosed in double quotes: line 1 column 2 (char 1)); boto3's "
            "response becomes JSON with json.dumps(response, default=str)",
        ),
        ("[]", "it holds a list, not an object"),
        ("{}", "it has no InferenceRecommendations"),
        (
            '{"Status": "FAILED", "FailureReason": "No capacity."}',
            "it has no InferenceRecommendations. Its Status is FAILED. No capacity",
        ),
        ('{"InferenceRecommendations": [{"Metrics": {}}]}', "it is damaged (KeyError: 'EndpointConfiguration')"),
        (
            '{"InferenceRecommendations": [{"EndpointConfiguration": {"EndpointName": "e"}, "Metrics": '
            '{"ModelLatency": "slow"}}]}',
            "it is damaged (TypeError: must be real number, not str)",
        ),
    ],
)
def test_a_file_without_a_job_is_refused(files: Path, capsys: pytest.CaptureFixture[str], text: str, why: str) -> None:
    (files / "other.json").write_text(text, "utf-8")
    assert main(["size", "--from", "other.json", *PEAK]) == 2
    assert capsys.readouterr().err == (
        f"other.json is not a usable response of DescribeInferenceRecommendationsJob: {why}.\n"
    )
