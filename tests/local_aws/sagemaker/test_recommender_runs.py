"""Runs of the recommender against the local account, with boto3 unchanged: both kinds of job, an existing endpoint, and
what may come between: a stop, a failure, throttling, lost answers, expired credentials, a kill.

The account's jobs replay figures, so no test depends on the machine's speed.
"""

import multiprocessing
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import boto3
import pytest

from aws_api import session as aws_session
from aws_api.errors import AwsUnavailable
from aws_api.sagemaker import SageMakerAccount
from inference_recommender.cli.deployed import group_request, package_request
from inference_recommender.measure.job import JobFailed, JobSource, candidates_of
from inference_recommender.measure.job_requests import (
    SERVICE_DEFAULT,
    JobPlan,
    TestedModel,
    plan_default_job,
    plan_job,
)
from inference_recommender.measure.run import RunSubject, run
from inference_recommender.measure.system import system_of_endpoint
from inference_recommender.progress import Progress, ProgressUpdate, Silent
from inference_recommender.run_folder import RunFolder
from local_aws.process.local_account import LocalAccount
from tests.builders import an_artifact
from tests.conftest import EditToml
from tests.inference_recommender.measure.troubled_api import TroubledApi
from tests.local_aws.conftest import BUCKET, ROLE, Endpoints, wait_until
from workloads import NoVerdict, Recommendation, WorkloadFolder, load_workload

pytestmark = pytest.mark.integration

TRAFFIC = """
[traffic.short]
type = "phases"
phases = [{ initial_users = 1, duration_s = 1 }, { initial_users = 2, duration_s = 2 }]
stop = { flat_invocations = "Continue" }

[traffic.long]
type = "phases"
phases = [{ initial_users = 1, duration_s = 120 }]
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


@pytest.fixture
def troubled(account: LocalAccount, monkeypatch: pytest.MonkeyPatch) -> Iterator[TroubledApi]:
    """Between boto3 and the account; boto3 itself does not try again, so that every trouble reaches the recommender."""
    monkeypatch.setattr(aws_session, "ATTEMPTS", 1)
    monkeypatch.setattr(aws_session, "FIRST_PAUSE_S", 0.01)
    with TroubledApi(account.endpoint_url).serving() as api:
        monkeypatch.setenv("AWS_ENDPOINT_URL", api.url)
        yield api


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


def resumed(service: SageMakerAccount, run_folder: RunFolder, progress: Progress) -> Recommendation:
    return run(JobSource(plan=None, account=service, sleep=soon), run_folder, progress)


def shortened(plan: JobPlan, seconds: int) -> JobPlan:
    """A default job that is over sooner than the traffic that the service chooses would be."""
    requests = [
        {**one, "InputConfig": {**one["InputConfig"], "JobDurationInSeconds": seconds}} for one in plan.requests
    ]
    return replace(plan, requests=tuple(requests))


def soon(seconds: float) -> None:
    time.sleep(min(seconds, 0.05))


class Watcher:
    """Keeps what a run says; `on_load` is called once, when a test's requests are seen."""

    def __init__(self, on_load: Any = None) -> None:
        self.said: list[str] = []
        self.names: list[str] = []
        self._on_load = on_load

    def update(self, update: ProgressUpdate) -> None:
        self.names.append(f"{update.job_name} {update.number}/{update.jobs}")
        if update.invocations_per_minute and self._on_load:
            self._on_load, act = None, self._on_load
            act()

    def say(self, text: str) -> None:
        self.said.append(text)


def test_a_default_jobs_answer_is_tested_by_an_advanced_job_in_stairs(
    service: SageMakerAccount, folder: WorkloadFolder, run_folder: RunFolder, tmp_path: Path, model: str
) -> None:
    plan = shortened(plan_default_job(folder.workload, subject(model), "spellcheck-default-1"), 4)
    first = measured_by(plan, folder, service, run_folder, Silent())
    assert first.recommended is not None
    assert first.provenance.traffic == "service-default"
    assert "ml.c5.xlarge" in run_folder.report.read_text("utf-8")

    candidates = candidates_of(run_folder, "spellcheck")
    assert [one.instance_type for one in candidates] == ["ml.c5.xlarge"]
    planned = advanced(folder, "spellcheck-staircase-1", subject(model), "staircase", configurations=candidates)
    second = measured_by(planned, folder, service, RunFolder(tmp_path / "runs" / "second"), Silent())
    (found,) = second.candidates
    assert found.meets_objective
    assert second.provenance.measured_on == "local"
    (measured,) = RunFolder(tmp_path / "runs" / "second").measurements()
    assert measured.series is not None
    assert {1.0, 2.0} <= set(measured.series.users), "a user more with the second step"


def test_an_endpoint_that_exists_is_a_candidate_with_its_own_type_and_count(
    service: SageMakerAccount,
    folder: WorkloadFolder,
    run_folder: RunFolder,
    model: str,
    endpoints: Endpoints,
    tmp_path: Path,
) -> None:
    gate = tmp_path / "gate"
    config = endpoints.config("visited-config", instance_type="ml.m5.large", count=2, GATE=str(gate))
    endpoints.create("visited", config=config)
    with pytest.raises(AwsUnavailable) as early:
        system_of_endpoint(service.endpoint_description("visited"), "us-east-1")
    assert str(early.value) == "Endpoint visited cannot be measured: it is Creating. Wait until it is InService."
    gate.touch()
    endpoints.settled("visited")
    deployed = system_of_endpoint(service.endpoint_description("visited"), "us-east-1")
    assert (deployed.variant, deployed.instance_type, deployed.instances) == ("AllTraffic", "ml.m5.large", 1)
    bare = folder.workload.targets["cpu"].model_copy(update={"instance_types": ("ml.c5.xlarge",)})
    workload = folder.workload.model_copy(update={"targets": {**folder.workload.targets, "cpu": bare}})
    plan = plan_default_job(workload, subject(model, "visited"), "spellcheck-visited-1", deployed=deployed)
    found = measured_by(shortened(plan, 4), folder, service, run_folder, Silent())
    existing = next(one for one in found.candidates if one.instance_type == "ml.m5.large")
    (performance,) = run_folder.description()["EndpointPerformances"]
    assert existing.closed_loop_invocations_per_minute == performance["Metrics"]["MaxInvocations"], "of one server"
    measured = next(one for one in run_folder.measurements() if one.endpoint_name == "visited")
    assert measured.percentiles_ms.p99 is not None, "CloudWatch knows its variant"


def test_a_job_stopped_midway_keeps_its_measurements_and_gives_no_verdict(
    service: SageMakerAccount, folder: WorkloadFolder, run_folder: RunFolder, model: str
) -> None:
    planned = advanced(folder, "spellcheck-stopped-1", subject(model), "long")
    watcher = Watcher(on_load=lambda: service.stop_job("spellcheck-stopped-1"))
    with pytest.raises(NoVerdict) as caught:
        measured_by(planned, folder, service, run_folder, watcher)
    assert str(caught.value) == (
        f"No verdict: Job spellcheck-stopped-1 was stopped before its traffic ended. Measurements: {run_folder.path}."
    )
    (measured,) = run_folder.measurements()
    assert measured.series is not None
    assert sum(count or 0 for count in measured.series.invocations) > 0


def test_a_job_that_fails_is_told_with_the_last_lines_of_its_container(
    service: SageMakerAccount, folder: WorkloadFolder, run_folder: RunFolder, sagemaker: Any
) -> None:
    broken = Endpoints(sagemaker).model("broken-echoes", BROKEN="1")
    with pytest.raises(JobFailed) as caught:
        measured_by(advanced(folder, "spellcheck-broken-1", subject(broken)), folder, service, run_folder, Silent())
    assert str(caught.value).startswith("Job spellcheck-broken-1 failed: ")
    assert "this model is broken on purpose" in str(caught.value)
    (measured,) = run_folder.measurements()
    assert "this model is broken on purpose" in (measured.failure_reason or "")


def test_no_trouble_on_the_way_creates_a_job_twice_or_loses_one(
    troubled: TroubledApi, account: LocalAccount, folder: WorkloadFolder, run_folder: RunFolder, model: str
) -> None:
    describe, create = "DescribeInferenceRecommendationsJob", "CreateInferenceRecommendationsJob"
    # The second creation gets through and its answer does not; then the job is taken, by the run itself.
    troubled.troubles = {create: ["throttled", "lost"], describe: ["throttled", "throttled", "dropped", "expired"]}
    watcher, service = Watcher(), SageMakerAccount(session(account))
    with pytest.raises(AwsUnavailable) as caught:
        measured_by(advanced(folder, "spellcheck-troubled-1", subject(model)), folder, service, run_folder, watcher)
    assert str(caught.value) == (
        "The AWS credentials have expired: renew them (`aws sso login`, or as you got them).\n"
        f"Nothing is lost. Continue with `python -m inference_recommender run --resume {run_folder.path}`. "
        "No job is created twice."
    )
    assert caught.value.exit_code == 3
    again = "Asking again for up to 15 minutes; a running job is not affected."
    assert watcher.said == [
        f"AWS refused {create}: ThrottlingException: Rate exceeded. {again}",
        "AWS answers again.",
        f"AWS refused {describe}: ThrottlingException: Rate exceeded. {again}",
        "AWS answers again.",  # it refuses the credentials, which is an answer
    ]

    found = resumed(SageMakerAccount(session(account)), run_folder, watcher)
    assert found.recommended is not None
    names = [job["JobName"] for job in SageMakerAccount(session(account)).list_jobs("spellcheck-troubled", 10)]
    assert names == ["spellcheck-troubled-1"]


def _run_until_killed(account: dict[str, Any], workloads: Path, path: Path, model: str) -> None:
    known = {name: value for name, value in account.items() if name != "endpoint_url"}
    folder = load_workload("spellcheck", workloads)
    planned = advanced(folder, "spellcheck-killed-1", subject(model))
    measured_by(planned, folder, SageMakerAccount(boto3.Session(**known)), RunFolder(path), Silent())


def test_a_run_that_is_killed_goes_on_with_its_own_job(
    service: SageMakerAccount,
    account: LocalAccount,
    folder: WorkloadFolder,
    run_folder: RunFolder,
    sagemaker: Any,
    tmp_path: Path,
) -> None:
    gate = tmp_path / "gate"  # the job does not end before the run is killed
    gated = Endpoints(sagemaker).model("gated-echoes", GATE=str(gate))
    arguments = (account.client_arguments(), folder.path.parent, run_folder.path, gated)
    process = multiprocessing.get_context("spawn").Process(target=_run_until_killed, args=arguments)
    process.start()
    wait_until(lambda: service.list_jobs("spellcheck-killed", 1))
    process.kill()
    process.join()
    gate.touch()
    assert not (run_folder.path / "describe.json").exists()

    found = resumed(service, run_folder, Silent())
    assert found.provenance.job_name == "spellcheck-killed-1"
    assert found.recommended is not None
    assert [job["JobName"] for job in service.list_jobs("spellcheck-killed", 10)] == ["spellcheck-killed-1"]


def test_a_model_is_registered_with_what_the_recommender_reads_from_the_registry(
    service: SageMakerAccount, folder: WorkloadFolder, model: str, sagemaker: Any
) -> None:
    url = subject(model).payload_url
    package = package_request(folder.workload, service.model(model), url)
    arns = [service.register(group_request(folder.workload), package) for _ in range(2)]
    assert [arn.rpartition("model-package/")[2] for arn in arns] == ["spellcheck/1", "spellcheck/2"]
    groups = sagemaker.list_model_package_groups()["ModelPackageGroupSummaryList"]
    assert [one["ModelPackageGroupName"] for one in groups].count("spellcheck") == 1


def test_a_containers_last_lines_are_read_from_cloudwatch_logs(service: SageMakerAccount, client: Any) -> None:
    logs, group = client("logs"), "/aws/sagemaker/Endpoints/sm-epc-logged"
    logs.create_log_group(logGroupName=group)
    logs.create_log_stream(logGroupName=group, logStreamName="AllTraffic/i-1")
    now = int(time.time() * 1000)
    events = [{"timestamp": now + number, "message": f"line {number}"} for number in range(12)]
    logs.put_log_events(logGroupName=group, logStreamName="AllTraffic/i-1", logEvents=events)
    assert service.container_log("job-1", "sm-epc-logged") == [f"line {number}" for number in range(4, 12)]
    assert service.container_log("job-1", "sm-epc-unlogged") == []
