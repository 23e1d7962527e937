"""Runs of several jobs, and runs that go on after they were cut off."""

from pathlib import Path
from typing import Any

import pytest

from aws_api.errors import AwsRefused, AwsUnavailable, AwsUnreachable, ExpiredCredentials
from inference_recommender.measure import job as job_run
from inference_recommender.measure.job import JobFailed, Prepared, resume, run
from inference_recommender.measure.job_requests import plan_job
from inference_recommender.measure.job_wait import JobNameTaken
from inference_recommender.measure.tested_model import Configuration, TestedModel
from inference_recommender.run_folder import RunFolder
from tests.artifacts import an_artifact
from tests.inference_recommender.api import FakeService, description, endpoint, recommendation, step
from tests.inference_recommender.measure.test_job import Watcher
from workloads import Interrupted, NoVerdict, Recommendation, UsageError, WorkloadFolder, load_workload

TESTED = TestedModel(
    model_name="m",
    role_arn="arn:aws:iam::123456789012:role/r",
    payload_url="s3://bucket/inference-recommender/spellcheck/payloads.tar.gz",
)


@pytest.fixture(autouse=True)
def _no_drawing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leaves out the report's plots, which take a second and are tested in test_job_run."""
    monkeypatch.setattr(job_run, "draw", lambda run_folder: None)


@pytest.fixture
def folder(workloads_copy: Path) -> WorkloadFolder:
    return load_workload("spellcheck", workloads_copy)


@pytest.fixture
def run_folder(tmp_path: Path) -> RunFolder:
    return RunFolder(tmp_path / "runs" / "job-1")


def prepared(folder: WorkloadFolder, tests: int = 1) -> Prepared:
    many = [Configuration(instance_type="ml.c5.xlarge", environment={"N": (str(n),)}) for n in range(tests)]
    plan = plan_job(folder.workload, "quick", folder.traffic("quick"), TESTED, "job", configurations=many)
    return Prepared(folder=folder, artifact=an_artifact(), plan=plan, traffic_name="quick")


def finish(
    what: Prepared, service: FakeService, run_folder: RunFolder, watcher: Watcher | None = None
) -> Recommendation:
    return run(what, service, run_folder, watcher or Watcher(), lambda seconds: None)


def of_endpoint(name: str, **changes: Any) -> dict[str, Any]:
    return recommendation(EndpointConfiguration=endpoint(name), **changes)


def test_several_jobs_are_one_run_and_one_recommendation(folder: WorkloadFolder, run_folder: RunFolder) -> None:
    service = FakeService(
        [
            description(InferenceRecommendations=[of_endpoint("sm-epc-1")]),
            description(InferenceRecommendations=[of_endpoint("sm-epc-2")]),
        ]
    )
    watcher = Watcher()
    found = finish(prepared(folder, tests=12), service, run_folder, watcher)
    assert [job["JobName"] for job in service.created] == ["job-1", "job-2"]
    assert len(found.candidates) == 2
    assert [one.endpoint_name for one in run_folder.measurements()] == ["sm-epc-1", "sm-epc-2"]
    assert [(update.job_name, update.number, update.jobs) for update in watcher.updates] == [
        ("job-1", 1, 2),
        ("job-2", 2, 2),
    ]
    for name in ("request.json", "request-2.json", "describe.json", "describe-2.json", "steps-2.json"):
        assert (run_folder.path / name).exists(), name


def test_one_of_several_jobs_that_failed_is_told_and_the_others_decide(
    folder: WorkloadFolder, run_folder: RunFolder
) -> None:
    failed = description("FAILED", InferenceRecommendations=[], FailureReason="No capacity.")
    watcher = Watcher()
    service = FakeService([failed, description(InferenceRecommendations=[of_endpoint("sm-epc-2")])])
    found = finish(prepared(folder, tests=12), service, run_folder, watcher)
    assert found.recommended is not None
    assert watcher.said == ["Job job-1 failed, the others did not: No capacity."]


def test_a_job_that_one_interrupts_leaves_what_the_ones_before_measured(
    folder: WorkloadFolder, run_folder: RunFolder
) -> None:
    service = FakeService([description(InferenceRecommendations=[of_endpoint("sm-epc-1")]), description("IN_PROGRESS")])

    interrupts = iter([KeyboardInterrupt()])

    def interrupted(seconds: float) -> None:
        if interrupt := next(interrupts, None):
            raise interrupt

    with pytest.raises(Interrupted) as caught:
        run(prepared(folder, tests=12), service, run_folder, Watcher(), interrupted)
    assert str(caught.value) == f"Interrupted: job job-2 was stopped. What was measured is kept in {run_folder.path}."
    assert service.stopped == ["job-2"]
    assert "sm-epc-1" in [one.endpoint_name for one in run_folder.measurements()]


def test_credentials_that_expire_leave_a_run_that_resumes(folder: WorkloadFolder, run_folder: RunFolder) -> None:
    service = FakeService([description("IN_PROGRESS"), description()])
    service.troubles = {"job_steps": [ExpiredCredentials()]}
    with pytest.raises(AwsUnavailable) as caught:
        finish(prepared(folder), service, run_folder)
    assert str(caught.value) == (
        "The AWS credentials have expired: renew them (`aws sso login`, or as you got them).\n"
        f"Nothing is lost: continue with `python -m inference_recommender run --resume {run_folder.path}`. "
        "No job is created twice."
    )
    found = resume(folder, service, run_folder, Watcher(), lambda seconds: None)
    assert found.recommended is not None
    assert len(service.created) == 1


def test_a_run_that_never_reached_aws_creates_its_job_when_it_is_resumed(
    folder: WorkloadFolder, run_folder: RunFolder
) -> None:
    service, watcher = FakeService([description()]), Watcher()
    service.troubles = {"create_job": [AwsUnreachable("Could not connect")]}
    with pytest.raises(AwsUnavailable) as caught:
        finish(prepared(folder), service, run_folder, watcher)
    assert str(caught.value).startswith("AWS cannot be reached: Could not connect.")
    assert service.created == []
    assert resume(folder, service, run_folder, watcher, lambda seconds: None).recommended is not None
    assert [job["JobName"] for job in service.created] == ["job"]


def test_a_resumed_run_is_of_the_workload_as_it_was_begun(folder: WorkloadFolder, run_folder: RunFolder) -> None:
    service = FakeService([description()])
    service.troubles = {"describe_job": [ExpiredCredentials()]}
    with pytest.raises(AwsUnavailable):
        finish(prepared(folder), service, run_folder)
    text = folder.file.read_text("utf-8")
    folder.file.write_text(text.replace("model_latency_ms = 50.0", "model_latency_ms = 1.0"), "utf-8")
    found = resume(
        load_workload("spellcheck", folder.path.parent), service, run_folder, Watcher(), lambda seconds: None
    )
    assert found.objective.model_latency_ms == 50
    assert found.archive_sha256 == an_artifact().archive_sha256


def test_another_runs_job_of_the_same_name_is_not_taken_for_the_runs_own(
    folder: WorkloadFolder, tmp_path: Path
) -> None:
    service = FakeService([description()])
    finish(prepared(folder), service, RunFolder(tmp_path / "first"))
    with pytest.raises(JobNameTaken) as caught:
        finish(prepared(folder), service, RunFolder(tmp_path / "second"))
    assert str(caught.value) == "There is already a job called 'job'. Choose another with --job-name."


def test_a_folder_that_holds_a_run_is_not_begun_anew(folder: WorkloadFolder, run_folder: RunFolder) -> None:
    service = FakeService([description()])
    finish(prepared(folder), service, run_folder)
    jobs = run_folder.jobs()
    with pytest.raises(UsageError) as caught:
        finish(prepared(folder), service, run_folder)
    assert str(caught.value) == (
        f"{run_folder.path} holds a run already: go on with it by `python -m inference_recommender run "
        f"--resume {run_folder.path}`, or choose another name with --job-name."
    )
    assert (caught.value.exit_code, run_folder.jobs()) == (2, jobs)


def test_a_request_that_aws_refuses_is_told_as_it_is(folder: WorkloadFolder, run_folder: RunFolder) -> None:
    service = FakeService([description()])
    refusal = AwsRefused("CreateInferenceRecommendationsJob", "AccessDeniedException", "not you")
    service.troubles = {"create_job": [refusal]}
    with pytest.raises(AwsRefused) as caught:
        finish(prepared(folder), service, run_folder)
    assert caught.value is refusal


def test_a_folder_without_a_run_has_nothing_to_resume(tmp_path: Path, folder: WorkloadFolder) -> None:
    with pytest.raises(UsageError) as caught:
        resume(folder, FakeService([description()]), RunFolder(tmp_path), Watcher(), lambda seconds: None)
    assert str(caught.value) == (
        f"--resume: {tmp_path} holds no run that can be continued: it has no jobs.json. Runs are in the folder that "
        "--runs names, runs/ by default."
    )
    assert caught.value.exit_code == 2


def test_a_failed_test_is_explained_by_its_containers_log(folder: WorkloadFolder, run_folder: RunFolder) -> None:
    service = FakeService(
        [description("FAILED", InferenceRecommendations=[], FailureReason="The test failed.")],
        [step("FAILED", FailureReason="The container did not pass its health check.")],
    )
    service.log = ["loading", "CUDA driver version is insufficient"]
    with pytest.raises(JobFailed) as caught:
        finish(prepared(folder), service, run_folder)
    assert str(caught.value) == (
        "Job job failed: The test failed.\n"
        "ml.c5.xlarge: The container did not pass its health check. The last lines of its container's log:\n"
        "loading\nCUDA driver version is insufficient\n"
        f"What was measured is kept in {run_folder.path}."
    )
    (found,) = run_folder.measurements()
    assert found.failure_reason == (
        "The container did not pass its health check. The last lines of its container's log:\n"
        "loading\nCUDA driver version is insufficient"
    )


def test_a_latency_that_was_read_as_microseconds_is_said(folder: WorkloadFolder, run_folder: RunFolder) -> None:
    micro = of_endpoint("sm-epc-1", Metrics={"MaxInvocations": 12_000, "ModelLatency": 21_000})
    watcher = Watcher()
    found = finish(prepared(folder), FakeService([description(InferenceRecommendations=[micro])]), run_folder, watcher)
    assert watcher.said == ["ml.c5.xlarge: the job reports ModelLatency in µs: read as 21 ms."]
    assert found.candidates[0].model_latency_ms == 21


def test_any_stopped_job_leaves_the_run_without_a_verdict(folder: WorkloadFolder, run_folder: RunFolder) -> None:
    service = FakeService([description("STOPPED"), description()])
    with pytest.raises(NoVerdict, match="Job job-1 was stopped before its traffic ended"):
        finish(prepared(folder, tests=12), service, run_folder)
    assert [job["JobName"] for job in service.created] == ["job-1"], "the second would cost money for nothing"


def test_a_payload_that_no_endpoint_takes_is_refused_before_anything_is_sent(
    folder: WorkloadFolder, run_folder: RunFolder
) -> None:
    rows = folder.path / "payloads.jsonl"
    rows.write_text('{"text": "short"}\n{"text": "' + "x" * 6_291_456 + '"}\n', "utf-8")
    service = FakeService([description()])
    with pytest.raises(UsageError) as caught:
        finish(prepared(folder), service, run_folder)
    assert str(caught.value) == (
        "workloads/spellcheck/payloads.jsonl: request 2 is 6,291,538 bytes. Allowed: 6,291,456 at most, as "
        "InvokeEndpoint takes."
    )
    assert (service.uploaded, service.created) == ({}, [])
