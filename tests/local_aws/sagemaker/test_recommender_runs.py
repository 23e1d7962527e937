"""The load generator and whole runs of the recommender against endpoints and jobs of the local account."""

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

import boto3
import pytest

import inference_recommender
from aws_api.sagemaker import SageMakerAccount
from inference_recommender.client import InferenceClient, LatencyMetric, SageMakerEndpoint
from inference_recommender.kserve import content_type
from inference_recommender.load_generator.load_plan import Arrivals, LoadPlan, NamedEndpoint
from inference_recommender.load_generator.process import generate
from inference_recommender.measure.job import JobSource, candidates_of
from inference_recommender.measure.job_requests import (
    SERVICE_DEFAULT,
    JobPlan,
    TestedModel,
    plan_default_job,
    plan_job,
)
from inference_recommender.measure.run import RunSubject, run
from inference_recommender.payloads import header_size
from inference_recommender.payloads import payload_archive as payloads_in_form
from inference_recommender.progress import Progress
from inference_recommender.run_folder import RunFolder
from local_aws.process.local_account import LocalAccount
from tests.builders import an_artifact, known
from tests.conftest import EditToml
from tests.local_aws.conftest import BUCKET, ROLE, Endpoints, payload_archive
from tests.quick_triton import start_triton, statistics
from workloads import LatencyObjective, Recommendation, UsageError, WorkloadFolder, load_workload
from workloads.artifact import artifact_file, file_sha256

pytestmark = pytest.mark.integration

TRAFFIC = """
[traffic.short]
type = "phases"
phases = [{ initial_users = 1, duration_s = 1 }, { initial_users = 2, duration_s = 2 }]
stop = { flat_invocations = "Continue" }

[traffic.staircase]
type = "stairs"
users_per_step = 1
steps = 2
duration_s = 4
stop = { flat_invocations = "Continue" }

[hosting]"""


@pytest.fixture(scope="module")
def model(sagemaker: Any) -> str:
    return Endpoints(sagemaker).model("echoes", DELAY_S="0.005")


@pytest.fixture
def folder(edit_toml: EditToml) -> WorkloadFolder:
    """Returns a workload that is judged by its median, far from the limit: these tests are not about statistics."""
    edit_toml('percentile = "P99"', 'percentile = "P50"')
    edit_toml("model_latency_ms = 50.0", "model_latency_ms = 2000.0")
    return load_workload("spellcheck", edit_toml("\n[hosting]", TRAFFIC))


@pytest.fixture
def run_folder(tmp_path: Path) -> RunFolder:
    return RunFolder(tmp_path / "runs" / "a-run")


def session(account: LocalAccount) -> boto3.Session:
    known = dict(account.client_arguments())
    del known["endpoint_url"]
    return boto3.Session(**known)


@pytest.fixture
def service(account: LocalAccount, monkeypatch: pytest.MonkeyPatch) -> SageMakerAccount:
    monkeypatch.setenv("AWS_ENDPOINT_URL", account.endpoint_url)
    return SageMakerAccount(session(account))


def subject(model: str, endpoint: str | None = None) -> TestedModel:
    url = f"s3://{BUCKET}/inference-recommender/spellcheck/payloads.tar.gz"
    return TestedModel(model=model, role_arn=ROLE, payload_url=url, endpoint_name=endpoint)


def advanced(folder: WorkloadFolder, name: str, tested: TestedModel, traffic: str = "short", **options: Any) -> JobPlan:
    settings = folder.workload.recommender.model_copy(update={"environment": {}})
    bare = folder.workload.model_copy(update={"recommender": settings})
    return plan_job(bare, traffic, folder.traffic(traffic), tested, name, **options)


def measured_by(
    plan: JobPlan, folder: WorkloadFolder, service: SageMakerAccount, run_folder: RunFolder, progress: Progress
) -> Recommendation:
    subject = RunSubject(
        workload=folder.workload,
        payloads=folder.payloads(),
        artifact=an_artifact(),
        traffic="short" if plan.traffic else SERVICE_DEFAULT,
    )
    return run(JobSource(plan=plan, account=service, sleep=soon), run_folder, progress, subject=subject)


def shortened(plan: JobPlan, seconds: int) -> JobPlan:
    """A default job that is over sooner than the traffic that the service chooses would be."""
    requests = [
        {**one, "InputConfig": {**one["InputConfig"], "JobDurationInSeconds": seconds}} for one in plan.requests
    ]
    return replace(plan, requests=tuple(requests))


def soon(seconds: float) -> None:
    time.sleep(min(seconds, 0.05))


def test_a_default_jobs_answer_is_tested_by_an_advanced_job_in_stairs(
    service: SageMakerAccount, folder: WorkloadFolder, run_folder: RunFolder, tmp_path: Path, model: str
) -> None:
    plan = shortened(plan_default_job(folder.workload, subject(model), "spellcheck-default-1"), 4)
    first = measured_by(plan, folder, service, run_folder, Progress())
    assert first.recommended is not None
    assert first.provenance.traffic == "service-default"
    assert "ml.c5.xlarge" in run_folder.report.read_text("utf-8")

    candidates = candidates_of(run_folder, "spellcheck")
    assert [one.instance_type for one in candidates] == ["ml.c5.xlarge"]
    planned = advanced(folder, "spellcheck-staircase-1", subject(model), "staircase", configurations=candidates)
    second = measured_by(planned, folder, service, RunFolder(tmp_path / "runs" / "second"), Progress())
    (found,) = second.candidates
    assert found.meets_objective
    assert second.provenance.measured_on == "local"
    (measured,) = RunFolder(tmp_path / "runs" / "second").measurements()
    assert {1.0, 2.0} <= set(known(measured.series).users), "a user more with the second step"


@pytest.mark.filterwarnings("ignore:The recommendation will not state payload lengths")
def test_a_job_runs_from_python_with_a_model_of_the_sagemaker_sdk(
    account: LocalAccount,
    folder: WorkloadFolder,
    tmp_path: Path,
    model: str,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    from sagemaker.core.resources import Model

    for name, value in account.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("inference_recommender.measure.run.ROOT", tmp_path)
    monkeypatch.setattr("inference_recommender.measure.workload_run.JobSource", partial(JobSource, sleep=soon))
    built = artifact_file(tmp_path, "spellcheck", "cpu")
    built.parent.mkdir(parents=True)
    archive = built.with_name("model.tar.gz")
    archive.write_bytes(b"an archive")
    an_artifact(archive_sha256=file_sha256(archive)).write_json(built)
    settings = [
        "hosting.target=cpu",
        "targets.cpu.instance_types=ml.c5.xlarge",
        "recommender.environment=",
        f"recommender.role_arn={ROLE}",
        f"recommender.bucket={BUCKET}",
    ]
    recommendation = inference_recommender.run(
        folder, model=Model(model_name=model), traffic="short", settings=settings, runs=tmp_path / "runs"
    )
    assert known(recommendation.recommended).instance_type == "ml.c5.xlarge"
    (kept,) = (tmp_path / "runs").iterdir()
    assert (kept / "report.html").exists()
    assert capfd.readouterr().out == "", "a library prints nothing"


def test_a_model_that_was_not_created_is_refused() -> None:
    class Model:
        name = None

    with pytest.raises(UsageError, match=r"model: got a Model without a name\. Create the model on SageMaker first"):
        inference_recommender.run("spellcheck", model=Model())


ARRIVALS = Arrivals(invocations_per_minute=600, duration_in_seconds=2, connections=4)
BINARY = LatencyObjective(
    percentile="P99",
    model_latency_ms=50,
    peak_invocations_per_minute=600,
    rows_per_invocation=2,
    payload_format="binary",
)


def check(plan: LoadPlan, folder: Path) -> None:
    summary = known(generate(plan, folder).summary)
    assert summary["invocations"] > 0
    assert (summary["errors"], summary["first_error"]) == (0, None)


@pytest.fixture(params=["json", "binary of two rows"])
def payloads(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, Any]:
    """Returns the members of a plan that are about its requests."""
    rows = [{"text": "a" * length} for length in (1, 200, 40)]
    binary = request.param != "json"
    file = tmp_path / "payloads.tar.gz"
    file.write_bytes(payloads_in_form(rows, BINARY) if binary else payload_archive())
    size = header_size(["text"], BINARY) if binary else None
    return {"payloads": file, "content_type": content_type(size), "arrivals": ARRIVALS}


@pytest.mark.usefixtures("account_variables")
def test_an_endpoint_is_measured_by_its_name(endpoints: Endpoints, payloads: dict[str, Any], tmp_path: Path) -> None:
    form = "json" if payloads["content_type"] == content_type(None) else "binary"
    name = endpoints.create(f"measured-{form}", config=endpoints.config(f"measured-{form}-1"))
    endpoints.settled(name)
    check(LoadPlan(endpoint=NamedEndpoint(name=name), **payloads), tmp_path / "out")


def test_a_triton_is_measured_by_its_url(echo_repository: Path, payloads: dict[str, Any], tmp_path: Path) -> None:
    with start_triton(echo_repository, "echo") as server:
        socket = quote(str(server.socket), safe="")
        check(LoadPlan(url=f"http+unix://{socket}/v2/models/echo/infer", **payloads), tmp_path / "out")
        if payloads["content_type"] != content_type(None):
            counted = statistics(server, "echo")["inference_stats"]
            assert not counted["fail"]["count"]
            assert statistics(server, "echo")["inference_count"] == 2 * counted["success"]["count"] > 0, "two rows each"


@pytest.fixture(scope="module")
def endpoint(sagemaker: Any) -> Iterator[str]:
    made = Endpoints(sagemaker)
    name = made.create("asked", config=made.config("asked-config", DELAY_S="0.03"))
    assert made.settled(name)["EndpointStatus"] == "InService"
    yield name
    made.delete_all()


@pytest.mark.parametrize("binary", [True, False])
def test_answers_come_back_and_what_callers_waited_is_in_cloudwatch(
    endpoint: str, client: Callable[[str], Any], binary: bool
) -> None:
    name = f"asked-in-{'binary' if binary else 'json'}"
    server = SageMakerEndpoint(endpoint, client=client("sagemaker-runtime"))
    with LatencyMetric(name, endpoint, client=client("cloudwatch")) as latency:
        asking = InferenceClient(server, binary=binary, latency=latency)
        answers = [asking.infer({"TEXT": [["süß"]]})["OUT"].tolist() for _ in range(3)]
    assert answers == [[["got süß".encode()]]] * 3
    now = datetime.now(UTC)
    (point,) = client("cloudwatch").get_metric_statistics(
        Namespace="TransformersInProduction",
        MetricName="ClientLatency",
        Dimensions=[{"Name": "Workload", "Value": name}, {"Name": "Stack", "Value": endpoint}],
        StartTime=now - timedelta(hours=1),
        EndTime=now + timedelta(hours=1),
        Period=86_400,
        Statistics=["SampleCount", "Minimum"],
    )["Datapoints"]
    assert point["SampleCount"] == 3
    assert point["Minimum"] >= 30
