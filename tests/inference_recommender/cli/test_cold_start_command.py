"""`cold-start` makes endpoints like the deployed one, keeps the medians of their starts, and deletes them."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from inference_recommender.__main__ import main
from inference_recommender.cli import cold_start
from inference_recommender.measure import first_answer, temporary_endpoint
from inference_recommender.measure.start_stages import LogLine
from inference_recommender.measure.target import Described
from tests.inference_recommender.measure.prove.recommended import a_candidate, a_recommendation
from tests.inference_recommender.measure.recorded_log import OWN, QUIET, VERBOSE, at, lines
from workloads import Recommendation, WorkloadFolder, load_workload

ARCHIVE = "b" * 64
VARIANT = {
    "VariantName": "Deployed",
    "ModelName": "served",
    "InstanceType": "ml.g5.xlarge",
    "InitialInstanceCount": 7,
    "InferenceAmiVersion": "al2023-ami-sagemaker-inference-gpu-4-1",
}


class Account:
    """Has a deployed endpoint, and starts others like it, whose logs are those of recorded starts."""

    region = "us-east-1"

    def __init__(self, *logs: str, variants: tuple[Mapping[str, Any], ...] = (VARIANT,)) -> None:
        self.made: list[Mapping[str, Any]] = []
        self.deleted: list[str] = []
        self._logs = [lines(log) for log in logs]
        self._variants = variants

    def hosted_target(self, stack: str, endpoint: str | None = None) -> str | None:
        return None

    def endpoint_name(self, stack: str) -> str:
        return "deployed"

    def is_on_this_machine(self) -> bool:
        return True

    def described(self, name: str) -> Described:
        model = {"PrimaryContainer": {"ModelDataUrl": f"s3://assets/{ARCHIVE}.tar.gz"}}
        config = {"ProductionVariants": list(self._variants)}
        return Described(endpoint={"EndpointName": name}, config=config, model=model, tags=[], scalable_targets=[{}])

    def make_endpoint(self, config: Mapping[str, Any], endpoint: Mapping[str, Any]) -> None:
        self.made += config["ProductionVariants"]

    def endpoint_status(self, name: str) -> tuple[str, str | None]:
        return "InService", None

    def delete_endpoint(self, name: str) -> None:
        self.deleted.append(name)

    def invocations_url(self, endpoint: str) -> str | None:
        return "http://127.0.0.1:1/key/invocations"

    def endpoint_times(self, name: str) -> tuple[datetime, datetime]:
        return datetime.fromtimestamp(at(40.0), UTC), datetime.fromtimestamp(at(43.7), UTC)

    def endpoint_log(self, name: str) -> list[list[LogLine]]:
        return self._logs if name == "deployed" else [self._logs[len(self.made) - 1]]


@pytest.fixture
def folder(workloads_copy: Path, monkeypatch: pytest.MonkeyPatch) -> WorkloadFolder:
    found = load_workload("spellcheck", workloads_copy)
    monkeypatch.setattr(cold_start, "deployed_workload", lambda *_: found)
    return found


def run(account: Account, monkeypatch: pytest.MonkeyPatch, runs: Path, *more: str) -> int:
    monkeypatch.setattr(cold_start, "ExperimentAws", lambda: account)
    monkeypatch.setattr(cold_start, "TargetAws", lambda: account)
    monkeypatch.setattr(first_answer, "ask_url", lambda url: lambda body: True)
    return main(["cold-start", "spellcheck", "--runs", str(runs), *more])


def test_the_medians_of_starts_like_the_deployed_one_go_into_the_recommendation(
    folder: WorkloadFolder, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recommendation = a_recommendation(a_candidate(2, 600.0)).model_copy(update={"archive_sha256": ARCHIVE})
    origin = recommendation.provenance.model_copy(update={"measured_on": "local"})
    recommendation.model_copy(update={"provenance": origin}).write_json(folder.recommendation_file)
    slower = OWN.replace("09:16:40.1", "09:16:40.0")
    account = Account(OWN + QUIET, slower + QUIET)
    assert run(account, monkeypatch, tmp_path, "--starts", "2", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert told["fetch_s"] == pytest.approx((0.025 + 0.025) / 2, abs=1e-5)
    assert told["unpack_s"] == pytest.approx((0.075 + 0.175) / 2, abs=1e-5)
    assert told["ranges_s"]["unpack_s"] == pytest.approx([0.075, 0.175], abs=1e-5)
    assert (told["starts"], told["instance_type"], told["archive_sha256"]) == (2, "ml.g5.xlarge", ARCHIVE)
    assert [(each["ModelName"], each["InitialInstanceCount"]) for each in account.made] == [("served", 1)] * 2
    assert account.made[0]["InferenceAmiVersion"] == VARIANT["InferenceAmiVersion"]
    assert len(account.deleted) == 2
    assert Recommendation.from_json(folder.recommendation_file).cold_start is not None


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        (None, "does not exist"),
        ({"archive_sha256": "c" * 64}, "is of another archive"),
        ({"archive_sha256": ARCHIVE}, "was measured elsewhere (sagemaker, and this on local)"),
    ],
)
def test_a_recommendation_of_something_else_stays_as_it_is(
    changes: Mapping[str, Any] | None,
    why: str,
    folder: WorkloadFolder,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    file = folder.recommendation_file
    if changes is not None:
        plain = a_recommendation(a_candidate(2, 600.0)).model_copy(update=changes)
        origin = plain.provenance.model_copy(update={"measured_on": "sagemaker"})
        plain.model_copy(update={"provenance": origin}).write_json(file)
    before = file.read_bytes() if changes is not None else b""
    assert run(Account(OWN + QUIET), monkeypatch, tmp_path, "--starts", "1") == 0
    shown = capsys.readouterr()
    assert "first answer within the objective" in shown.out
    assert "A new server answers within the objective after 3.6 s: 1 start of ml.g5.xlarge on " in shown.out
    assert shown.err.splitlines() == [
        "Start 1 of 1: an endpoint of 1 × ml.g5.xlarge",
        f"Nothing was written: {file} {why}.",
    ]
    assert (file.read_bytes() if file.exists() else b"") == before


def test_the_servers_of_an_endpoint_are_read_and_nothing_is_made(
    folder: WorkloadFolder, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    account = Account(QUIET, VERBOSE, "no line of Triton's")
    assert run(account, monkeypatch, tmp_path, "--endpoint", "deployed", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["starts"], told["total_s"], told["first_answer_s"]) == (2, None, None)
    assert told["warm_up_s"] == pytest.approx(0.127916, abs=1e-5)
    assert account.made == []


def test_a_log_without_tritons_lines_is_refused_in_a_sentence(
    folder: WorkloadFolder, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(Account("Booting worker"), monkeypatch, tmp_path, "--endpoint", "deployed") == 3
    assert capsys.readouterr().err.strip() == (
        "deployed: no line of its log in CloudWatch Logs tells when a server loaded its models. Triton's log must have "
        "its information lines: leave SAGEMAKER_TRITON_LOG_INFO as it is."
    )


def test_an_endpoint_of_several_variants_is_refused(
    folder: WorkloadFolder, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(Account(QUIET, variants=(VARIANT, VARIANT)), monkeypatch, tmp_path) == 3
    assert capsys.readouterr().err.strip() == (
        "deployed: a start is timed of one variant, on instances of one type. Name such an endpoint."
    )


def test_ctrl_c_deletes_the_endpoint_under_way_and_writes_nothing(
    folder: WorkloadFolder, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    account = Account(QUIET)

    def interrupted(name: str) -> tuple[str, str | None]:
        raise KeyboardInterrupt

    monkeypatch.setattr(account, "endpoint_status", interrupted)
    monkeypatch.setattr(temporary_endpoint, "POLL_S", 0.0)
    assert run(account, monkeypatch, tmp_path) == 130
    assert len(account.deleted) == 1
    assert (
        capsys.readouterr()
        .err.strip()
        .endswith(
            "Interrupted: 0 of 3 starts were measured, and nothing was written. The endpoint under way is deleted; "
            "`python -m inference_recommender sweep` deletes it later if it is not."
        )
    )


def test_ctrl_c_keeps_the_starts_that_were_measured(
    folder: WorkloadFolder, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    account = Account(OWN + QUIET, OWN + QUIET)
    status = account.endpoint_status

    def interrupted(name: str) -> tuple[str, str | None]:
        if len(account.made) == 2:
            raise KeyboardInterrupt
        return status(name)

    monkeypatch.setattr(account, "endpoint_status", interrupted)
    assert run(account, monkeypatch, tmp_path, "--json") == 130
    shown = capsys.readouterr()
    assert json.loads(shown.out)["starts"] == 1
    assert "Interrupted: 1 of 3 starts were measured. The endpoint under way is deleted; " in shown.err
    assert len(account.deleted) == 2
