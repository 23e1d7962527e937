"""`size` refuses wrong options and files; each row is a whole message."""

import json
from pathlib import Path
from typing import Any

import pytest
import tomllib

from inference_recommender.__main__ import main
from tests.inference_recommender.sizing.builders import batch_report, job_result, job_text
from workloads import ROOT

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
def test_options_that_do_not_fit_the_evidence_are_refused(
    files: Path, capsys: pytest.CaptureFixture[str], case: dict[str, Any]
) -> None:
    assert main(["size", *case["arguments"]]) == 2
    assert capsys.readouterr().err == f"{case['message']}\n".replace("{root}", str(ROOT))


@pytest.mark.parametrize("case", TABLE["file"], ids=lambda case: case["why"][:40])
def test_a_file_without_a_job_is_refused(files: Path, capsys: pytest.CaptureFixture[str], case: dict[str, str]) -> None:
    (files / "other.json").write_text(case["text"], "utf-8")
    assert main(["size", "--from", "other.json", "--peak-invocations-per-minute", "30000"]) == 2
    assert capsys.readouterr().err == (
        f"other.json is not a usable response of DescribeInferenceRecommendationsJob: {case['why']}.\n"
    )
