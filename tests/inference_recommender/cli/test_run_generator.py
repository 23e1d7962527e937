"""`run --url` and `run --endpoint`: the system, the plan and the result, from the command line's words."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import tomllib

from aws_api.errors import NO_REGION, AwsUnavailable
from aws_api.service_model import problems
from benchmarks.searches.simulated_service import MM1, SimulatedService
from inference_recommender import run as python_run
from inference_recommender.cli import run as run_command
from inference_recommender.load_generator.requests import read_payloads
from inference_recommender.measure import open_loop, workload_run
from inference_recommender.measure import run as measure_run
from inference_recommender.payloads import request_bodies
from tests.builders import an_artifact, known
from tests.inference_recommender.api import DeployedAccount
from tests.inference_recommender.conftest import Cli
from workloads import Recommendation, UsageError, WorkloadFolder, load_workload

REFUSALS = tomllib.loads(Path(__file__).with_name("run_refusals.toml").read_text("utf-8"))["case"]
ROLE = "arn:aws:iam::123456789012:role/Generators"
GENERATOR_ROLE = "arn:aws:iam::123456789012:role/SpellcheckStack-Generator"


class Nowhere(DeployedAccount):
    @property
    def region(self) -> str:  # type: ignore[override]
        raise AwsUnavailable(NO_REGION)


def an_account() -> DeployedAccount:
    """Two instances on AWS."""
    account = DeployedAccount(InstanceType="ml.g5.xlarge", InitialInstanceCount=2)
    account.url = None
    account.outputs = {"GeneratorRoleArn": GENERATOR_ROLE, "EndpointName": "spellcheck-1"}
    return account


Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def folder(workloads_copy: Path) -> WorkloadFolder:
    return load_workload("spellcheck", workloads_copy)


@pytest.fixture
def run(folder: WorkloadFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli) -> Command:
    """Runs the command against a simulated M/M/1 service."""
    for module in (measure_run, workload_run):
        monkeypatch.setattr(module, "load_artifact", lambda root, workload, target: an_artifact())
    monkeypatch.setattr(measure_run, "load_workload", lambda name: folder)
    monkeypatch.setattr(open_loop, "probe_of", lambda *_: SimulatedService(MM1, seed=0).probe)

    def run(*arguments: str, account: DeployedAccount | None = None) -> tuple[int, str, str]:
        monkeypatch.setattr(run_command, "SageMakerAccount", lambda: account or an_account())
        return cli("run", "spellcheck", "--runs", str(tmp_path / "runs"), *arguments)

    return run


def planned(run: Command, *arguments: str, account: DeployedAccount | None = None) -> Any:
    code, out, err = run(*arguments, "--dry-run", account=account)
    assert code == 0, err
    return json.loads(out)


def test_a_url_needs_no_aws_and_nothing_is_written(run: Command, tmp_path: Path) -> None:
    shown = planned(run, "--url", "http://h:8000", "--traffic", "quick", "--name", "run-1", account=Nowhere())
    assert list(shown) == ["plan"]
    assert shown["plan"]["url"] == "http://h:8000/v2/models/spellcheck/infer"
    assert shown["plan"]["payloads"] == str(tmp_path / "runs" / "run-1" / "payloads.tar.gz")
    assert not (tmp_path / "runs").exists()


def test_requests_of_another_form_are_measured_for_their_own_run(run: Command, tmp_path: Path) -> None:
    form = ("--url", "http://h", "--rows", "4", "--payload-format", "binary")
    plan = planned(run, *form, "--traffic", "quick")["plan"]
    assert plan["content_type"].startswith("application/vnd.sagemaker-triton.binary+json;json-header-size=")
    code, out, err = run(*form, "--instances", "ml.g5.xlarge", "--max-duration-s", "3600", "--json")
    assert code == 0, err
    objective = Recommendation.model_validate_json(out).objective
    assert (objective.rows_per_invocation, objective.payload_format) == (4, "binary")
    assert err.endswith("Not written to the workload's folder: other payloads or settings were measured.\n")
    (page,) = tmp_path.glob("runs/*/report.html")
    text = page.read_text("utf-8")
    assert objective.peak.replace("'", "&#39;") in text
    assert "rows/s." in text
    code, _, err = run("--url", "http://h", "--rows", "99")
    assert code == 2
    assert "objective.rows_per_invocation: got 99, and a request to 'cpu' has at most 16 rows" in err


def test_without_traffic_the_plan_is_a_search(run: Command) -> None:
    found = {"url": None, "endpoint": "e", "percentile": "P99", "limit_ms": 50, "max_duration_s": 270}
    assert planned(run, "--endpoint", "e") == {"search": found}


def test_several_generators_are_one_valid_processing_job(run: Command) -> None:
    settings = ("--set", "recommender.generators=4", "--traffic", "quick", "--name", "spellcheck-quick-1")
    request = planned(run, "--endpoint", "e", *settings)["processing_job"]
    assert problems("sagemaker", "CreateProcessingJob", request) == []
    assert request["ProcessingResources"]["ClusterConfig"]["InstanceCount"] == 4
    assert request["RoleArn"] == GENERATOR_ROLE
    base = "s3://sagemaker-us-east-1-123456789012/inference-recommender/spellcheck/load-test/spellcheck-quick-1"
    assert request["ProcessingInputs"][0]["S3Input"]["S3Uri"] == f"{base}/source"
    own = planned(run, "--endpoint", "e", *settings, "--set", f"recommender.role_arn={ROLE}")
    assert own["processing_job"]["RoleArn"] == ROLE


@pytest.mark.parametrize("case", REFUSALS, ids=lambda case: " ".join(case["options"]))
def test_options_that_do_not_belong_together_are_rejected(run: Command, tmp_path: Path, case: dict[str, Any]) -> None:
    code, out, err = run(*case["options"])
    assert (code, out, (tmp_path / "runs").exists()) == (2, "", False)
    assert err.startswith(case["message"])


def test_a_search_of_known_instances_becomes_a_recommendation_for_review(
    run: Command, folder: WorkloadFolder, tmp_path: Path
) -> None:
    arguments = ("--url", "http://h", "--instances", "2xml.g5.xlarge", "--max-duration-s", "3600", "--json")
    code, out, err = run(*arguments)
    assert code == 0, err
    found = Recommendation.model_validate_json(out)
    assert folder.recommendation() == found
    assert (known(found.recommended).instance_type, found.capacity_basis) == ("ml.g5.xlarge", "open-loop")
    assert (found.provenance.traffic, found.provenance.measured_on) == ("open-loop", "service")
    assert (tmp_path / found.provenance.run / "report.html").exists()


LONGER = '{"text": "waterproof winter jacket for dogs with a hood"}\n'


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ((), "Not written to the workload's folder: the instance type is unknown. State it with --instances.\n"),
        (
            ("--instances", "ml.g5.xlarge", "--payloads", "longer.jsonl"),
            "Not written to the workload's folder: other payloads or settings were measured.\n",
        ),
        (
            ("--instances", "ml.g5.xlarge", "--set", "objective.model_latency_ms=80.0"),
            "Not written to the workload's folder: other payloads or settings were measured.\n",
        ),
    ],
)
def test_other_measurements_are_only_in_the_runs_folder(
    run: Command, folder: WorkloadFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: Any, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("longer.jsonl").write_text(LONGER, "utf-8")
    code, _, err = run("--url", "http://h", "--max-duration-s", "3600", *more)
    assert code == 0, err
    assert err.endswith(message)
    assert not folder.recommendation_file.exists()
    (run_folder,) = (tmp_path / "runs").iterdir()
    rows: list[Mapping[str, str]] = [json.loads(LONGER)] if "--payloads" in more else [*folder.payloads()]
    assert read_payloads(run_folder / "payloads.tar.gz") == request_bodies([dict(row) for row in rows])


@pytest.mark.filterwarnings("ignore:The recommendation will not state payload lengths")
def test_a_server_is_measured_from_python_as_by_the_command(
    run: Command,
    folder: WorkloadFolder,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(workload_run, "SageMakerAccount", an_account)
    server = ("--url", "http://h", "--instances", "ml.g5.xlarge")
    code, out, _ = run(*server, "--max-duration-s", "3600", "--name", "first", "--json")
    assert code == 0
    runs, seconds = tmp_path / "runs", 3600.0
    measured = python_run("spellcheck", url="http://h", instances="ml.g5.xlarge", max_duration_s=seconds, runs=runs)
    assert measured.candidates == Recommendation.model_validate_json(out).candidates
    assert capsys.readouterr() == ("", "")
    with pytest.raises(UsageError, match="endpoint, url: the load generator measures them"):
        python_run(folder, url="http://h", job="default")
