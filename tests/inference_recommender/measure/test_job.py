"""A job's run from plan to report: how it ends, what it keeps, and how it continues."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from aws_api.errors import AwsUnavailable, AwsUnreachable, ExpiredCredentials
from aws_api.expiry import expiry_of
from aws_api.sagemaker import JobNameTaken
from inference_recommender.measure import run as use_case
from inference_recommender.measure.job import JobFailed, candidates_of
from inference_recommender.measure.job_requests import Configuration
from inference_recommender.run_folder import RunFolder
from tests.builders import a_measurement, a_run_folder, an_artifact, known, message_of
from tests.inference_recommender.api import SERIES, TESTED, FakeService, description, endpoint, recommendation, step
from tests.inference_recommender.measure.completed import Runs, interrupt_once
from workloads import Interrupted, NoVerdict, UsageError, load_workload

LAGGED = "generator lagged: it used 97% of its core, so it was the bottleneck"


@pytest.fixture
def runs(workloads_copy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Runs:
    """Without the report's plots, which take a second."""
    monkeypatch.setattr(use_case, "draw", lambda run_folder: None)
    return Runs(load_workload("spellcheck", workloads_copy), tmp_path / "runs" / "job")


def failed(reason: str) -> FakeService:
    return FakeService(
        [description("FAILED", InferenceRecommendations=[], FailureReason=reason)],
        [step("FAILED", FailureReason=reason)],
    )


def test_a_completed_job_becomes_a_recommendation_with_a_report(workloads_copy: Path, tmp_path: Path) -> None:
    runs = Runs(load_workload("spellcheck", workloads_copy), tmp_path / "runs" / "job")
    service = FakeService([description()])
    service.machine = "Some CPU, 2 cores"
    found = runs(service)
    assert (known(found.recommended).instance_count, found.capacity_basis) == (47, "estimate")
    assert (found.provenance.measured_on, found.provenance.machine) == ("local", "Some CPU, 2 cores")
    assert found.provenance.run == "runs/job"
    assert "Measured on this machine, not on SageMaker." in runs.run_folder.report.read_text("utf-8")
    assert sorted(file.name for file in runs.run_folder.path.iterdir()) == [
        "describe.json",
        "jobs.json",
        "measurements.json",
        "payloads.tar.gz",
        "recommendation.json",
        "report.html",
        "request.json",
        "run.json",
        "steps.json",
        "workload.json",
    ]


def test_the_request_and_the_payloads_are_sent_with_the_runs_marks(runs: Runs) -> None:
    service = FakeService([description()])
    assert runs(service).provenance.measured_on == "sagemaker"
    assert list(service.uploaded) == [TESTED.payload_url]
    (created,) = service.created
    *_, mark, expiry = created["Tags"]
    assert mark == {"Key": "run", "Value": runs.run_folder.jobs().token}
    expires_at = known(expiry_of([expiry]))
    longest_s = created["InputConfig"]["JobDurationInSeconds"]
    assert 0 < longest_s < (expires_at - datetime.now(UTC)).total_seconds() < longest_s + 7201


def test_a_failed_job_is_reported_with_its_containers_log(runs: Runs) -> None:
    """Although it has too few samples for a verdict."""
    service, few = failed("The container did not pass its health check."), (9.0, 0.0, 0.0, 0.0)
    service.time_series = SERIES.model_copy(update={"invocations": few, "errors": few})
    service.log = ["loading", "CUDA driver version is insufficient"]
    with pytest.raises(JobFailed) as caught:
        runs(service)
    explained = (
        "The container did not pass its health check. The last lines of its container's log:\n"
        "loading\nCUDA driver version is insufficient"
    )
    assert str(caught.value) == (
        "Job job failed: The container did not pass its health check.\n"
        f"ml.c5.xlarge: {explained}\nLikely cause: `python -m inference_recommender jobs explain job`. "
        f"Measurements: {runs.run_folder.path}."
    )
    assert caught.value.exit_code == 3
    (measured,) = runs.run_folder.measurements()
    assert (measured.failure_reason, known(measured.series).invocations) == (explained, few)


NO_VERDICTS: dict[str, tuple[FakeService, dict[str, Any], str]] = {
    "stopped": (FakeService([description("STOPPED")]), {}, "Job job was stopped before its traffic ended."),
    "lagged": (failed(LAGGED), {}, f"ml.c5.xlarge: {LAGGED}."),
    "errors": (
        FakeService([description()]),
        {"errors": (0.0, 0.0, 0.0, 29.0)},
        "ml.c5.xlarge: 29 of 2,800 requests failed, more than 1%.",
    ),
    "few": (
        FakeService([description()]),
        {"invocations": (40.0, 40.0, 40.0, 40.0)},
        "ml.c5.xlarge: 160 requests are too few: P99 needs at least 299. Measure with longer traffic: another "
        "--traffic NAME, or longer phases in workload.toml.",
    ),
}


@pytest.mark.parametrize("name", NO_VERDICTS)
def test_invalid_measurements_give_no_verdict(runs: Runs, name: str) -> None:
    service, series, reason = NO_VERDICTS[name]
    service.time_series = SERIES.model_copy(update=series)
    assert message_of(NoVerdict, runs, service) == f"No verdict: {reason} Measurements: {runs.run_folder.path}."
    with pytest.raises(UsageError, match="the run ended without a verdict"):
        runs.run_folder.recommendation()


def test_ctrl_c_stops_the_job_and_keeps_all_measurements(runs: Runs) -> None:
    done = description(InferenceRecommendations=[recommendation(EndpointConfiguration=endpoint("sm-epc-1"))])
    service, runs.sleep = FakeService([done, description("IN_PROGRESS")]), interrupt_once()
    message = message_of(Interrupted, runs, service, tests=12)
    assert message == f"Interrupted: job job-2 was stopped. Measurements: {runs.run_folder.path}."
    assert service.stopped == ["job-2"]
    assert json.loads((runs.run_folder.path / "describe-2.json").read_text("utf-8"))["Status"] == "STOPPED"
    assert "sm-epc-1" in [one.endpoint_name for one in runs.run_folder.measurements()]


def test_ctrl_c_without_a_service_says_that_the_job_may_still_run(runs: Runs) -> None:
    service, runs.sleep = FakeService([description("IN_PROGRESS")]), interrupt_once()
    service.troubles = {"stop_job": [AwsUnreachable("Could not connect")]}
    assert message_of(Interrupted, runs, service) == (
        "Interrupted: job job could not be stopped and may still run. AWS cannot be reached: Could not connect. If "
        "AWS_ENDPOINT_URL points at an account on this machine, start it with `python -m local_aws`. Stop it with "
        "`python -m inference_recommender jobs stop job`, or continue the run with `python -m inference_recommender "
        f"run --resume {runs.run_folder.path}`."
    )


def test_several_jobs_are_one_run_and_one_that_fails_does_not_end_it(runs: Runs) -> None:
    names = ("sm-epc-1", "sm-epc-2")
    found = [
        description(InferenceRecommendations=[recommendation(EndpointConfiguration=endpoint(one))]) for one in names
    ]
    service = FakeService([*found, description("FAILED", InferenceRecommendations=[], FailureReason="No capacity.")])
    recommended = runs(service, tests=23)
    assert [job["JobName"] for job in service.created] == ["job-1", "job-2", "job-3"]
    assert [one.endpoint_name for one in runs.run_folder.measurements()] == [*names]
    assert len(recommended.candidates) == 2
    assert [(update.number, update.jobs) for update in runs.watcher.updates] == [(1, 3), (2, 3), (3, 3)]
    assert runs.watcher.said == ["Job job-3 failed: No capacity. The run continues with the other jobs."]


def test_a_stopped_job_ends_the_run_before_the_next_job_costs_money(runs: Runs) -> None:
    service = FakeService([description("STOPPED"), description()])
    with pytest.raises(NoVerdict, match="Job job-1 was stopped before its traffic ended"):
        runs(service, tests=12)
    assert len(service.created) == 1


def test_a_latency_in_microseconds_is_converted_with_a_message(runs: Runs) -> None:
    micro = recommendation(Metrics={"MaxInvocations": 12_000, "ModelLatency": 21_000})
    found = runs(FakeService([description(InferenceRecommendations=[micro])]))
    assert runs.watcher.said == ["ml.c5.xlarge: the job reports ModelLatency in µs. It is converted to 21 ms."]
    assert found.candidates[0].model_latency_ms == 21


@pytest.mark.parametrize(
    ("call", "trouble", "created"),
    [("job_steps", ExpiredCredentials(), 1), ("create_job", AwsUnreachable("Could not connect"), 0)],
)
def test_an_outage_leaves_a_run_that_resumes_without_a_second_job(
    runs: Runs, call: str, trouble: AwsUnavailable, created: int
) -> None:
    service = FakeService([description("IN_PROGRESS"), description()])
    service.troubles = {call: [trouble]}
    assert message_of(AwsUnavailable, runs, service) == (
        f"{trouble}\nNothing is lost. Continue with `python -m inference_recommender run --resume "
        f"{runs.run_folder.path}`. No job is created twice."
    )
    assert len(service.created) == created
    assert runs.resume(service).recommended is not None
    assert [job["JobName"] for job in service.created] == ["job"]


def test_a_resumed_run_has_the_workload_with_which_it_began(runs: Runs) -> None:
    service = FakeService([description()])
    service.troubles = {"describe_job": [ExpiredCredentials()]}
    with pytest.raises(AwsUnavailable):
        runs(service)
    text = runs.folder.file.read_text("utf-8")
    runs.folder.file.write_text(text.replace("model_latency_ms = 50.0", "model_latency_ms = 1.0"), "utf-8")
    found = runs.resume(service)
    assert (found.objective.model_latency_ms, found.archive_sha256) == (50, an_artifact().archive_sha256)


def test_another_runs_job_of_the_same_name_is_rejected(runs: Runs, tmp_path: Path) -> None:
    service = FakeService([description()])
    runs(service)
    runs.run_folder = RunFolder(tmp_path / "second")
    message = message_of(JobNameTaken, runs, service)
    assert message == "There is already a job called 'job'. Choose another name with --name."


def test_a_folder_with_a_run_takes_no_other(runs: Runs) -> None:
    runs(FakeService([description()]))
    jobs, path = runs.run_folder.jobs(), runs.run_folder.path
    assert message_of(UsageError, runs, FakeService([description()])) == (
        f"{path} already has a run. Continue it with `python -m inference_recommender run --resume {path}`, or choose "
        "another name with --name."
    )
    assert runs.run_folder.jobs() == jobs


def test_the_candidates_of_a_default_run_are_its_configurations_by_rate(tmp_path: Path) -> None:
    run = a_run_folder(
        tmp_path,
        a_measurement(900.0, endpoint_name="lives"),
        a_measurement(100.0, endpoint_name="a", environment={"THREADS": "1"}),
        a_measurement(200.0, endpoint_name="b", environment={"THREADS": "2"}),
        a_measurement(150.0, endpoint_name="c", environment={"THREADS": "2"}),
        a_measurement(None, endpoint_name="d"),
        a_measurement(300.0, endpoint_name="e", failure_reason="It failed."),
        request={"JobType": "Default", "InputConfig": {}},
        existing_endpoint=endpoint("lives"),
    )
    assert candidates_of(run, "spellcheck") == (
        Configuration(instance_type="ml.c5.xlarge", environment={"THREADS": ("2",)}),
        Configuration(instance_type="ml.c5.xlarge", environment={"THREADS": ("1",)}),
    )


@pytest.mark.parametrize(
    ("kind", "workload", "reason"),
    [
        ("Advanced", "spellcheck", "is not the run of a default job."),
        ("Default", "duplicates", "measured spellcheck, not duplicates."),
        ("Default", "spellcheck", "found no capacity for any instance type."),
    ],
)
def test_a_run_without_candidates_is_rejected(tmp_path: Path, kind: str, workload: str, reason: str) -> None:
    run = a_run_folder(tmp_path, a_measurement(None), request={"JobType": kind, "InputConfig": {}})
    assert message_of(UsageError, candidates_of, run, workload) == f"--from-default: {tmp_path} {reason}"
