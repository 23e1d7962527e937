"""A run from plan to report, against a service of our own: how it ends, what it keeps, what it writes for review."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from aws_api.errors import AwsRefused, AwsUnreachable
from aws_api.expiry import expiry_of
from inference_recommender.load_generator.requests import read_payloads
from inference_recommender.measure.job import JobFailed, Prepared, run
from inference_recommender.measure.job_requests import plan_job
from inference_recommender.measure.job_wait import poll_interval_s, stop_and_wait, wait_for_job
from inference_recommender.measure.tested_model import TestedModel
from inference_recommender.payloads import request_bodies
from inference_recommender.progress import ProgressUpdate, Silent
from inference_recommender.run_folder import RunFolder
from tests.artifacts import an_artifact
from tests.conftest import EditToml
from tests.inference_recommender.api import SERIES, FakeService, description, step
from workloads import Interrupted, NoVerdict, Recommendation, UsageError, load_workload

TESTED = TestedModel(
    model_name="m",
    role_arn="arn:aws:iam::123456789012:role/r",
    payload_url="s3://bucket/inference-recommender/spellcheck/payloads.tar.gz",
)


@pytest.fixture
def prepared(workloads_copy: Path) -> Prepared:
    folder = load_workload("spellcheck", workloads_copy)
    plan = plan_job(folder.workload, "quick", folder.traffic("quick"), TESTED, "job-1")
    return Prepared(folder=folder, artifact=an_artifact(), plan=plan, traffic_name="quick")


@pytest.fixture
def run_folder(tmp_path: Path) -> RunFolder:
    return RunFolder(tmp_path / "runs" / "job-1")


class Watcher:
    def __init__(self) -> None:
        self.updates: list[ProgressUpdate] = []

        self.said: list[str] = []

    def update(self, update: ProgressUpdate) -> None:
        self.updates.append(update)

    def say(self, text: str) -> None:
        self.said.append(text)


def _run(prepared: Prepared, service: FakeService, run_folder: RunFolder, **options: Any) -> Recommendation:
    return run(
        prepared, service, run_folder, options.get("progress", Silent()), options.get("sleep", lambda seconds: None)
    )


def test_a_completed_job_becomes_a_recommendation_for_review(prepared: Prepared, run_folder: RunFolder) -> None:
    found = _run(prepared, FakeService([description()]), run_folder)
    assert found.recommended is not None
    assert (found.recommended.instance_count, found.capacity_basis) == (47, "estimate")
    assert found.provenance.measured_on == "sagemaker"
    assert found.provenance.run == "runs/job-1"
    assert prepared.folder.recommendation() == found
    assert sorted(file.name for file in run_folder.path.iterdir()) == [
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


def test_the_payloads_are_where_the_request_says(prepared: Prepared, run_folder: RunFolder) -> None:
    service = FakeService([description()])
    _run(prepared, service, run_folder)
    assert list(service.uploaded) == ["s3://bucket/inference-recommender/spellcheck/payloads.tar.gz"]
    (created,) = service.created
    *planned, mark, expiry = created["Tags"]
    assert {**created, "Tags": planned} == prepared.plan.request
    assert mark == {"Key": "run", "Value": run_folder.jobs().token}
    expires_at = expiry_of([expiry])
    assert expires_at is not None
    longest_s = prepared.plan.request["InputConfig"]["JobDurationInSeconds"]
    assert 0 < longest_s < (expires_at - datetime.now(UTC)).total_seconds() < longest_s + 7201


def test_the_payloads_have_as_many_rows_as_the_objective_says(edit_toml: EditToml, run_folder: RunFolder) -> None:
    folder = load_workload("spellcheck", edit_toml("[objective]", "[objective]\nrows_per_invocation = 4"))
    rows = folder.payloads()
    plan = plan_job(folder.workload, "quick", folder.traffic("quick"), TESTED, "job-1")
    found = _run(
        Prepared(folder=folder, artifact=an_artifact(), plan=plan, traffic_name="quick"),
        FakeService([description()]),
        run_folder,
    )
    assert read_payloads(run_folder.path / "payloads.tar.gz") == request_bodies(rows, 4)
    assert found.objective.rows_per_invocation == 4, "what proves or deploys the recommendation knows it"
    assert "Each invocation has 4 rows" in (run_folder.path / "report.html").read_text("utf-8")


def test_the_wait_shows_the_latest_complete_point(prepared: Prepared, run_folder: RunFolder) -> None:
    watcher = Watcher()
    service = FakeService([description("PENDING"), description("IN_PROGRESS"), description()])
    _run(prepared, service, run_folder, progress=watcher)
    assert [update.status for update in watcher.updates] == ["PENDING", "IN_PROGRESS", "COMPLETED"]
    running = watcher.updates[1]
    assert (running.users, running.invocations_per_minute) == (3.0, 10_800.0)
    assert (running.percentile, running.latency_ms) == ("p99", 12.0)


def test_the_latency_under_way_is_of_the_objectives_percentile() -> None:
    service, watcher = FakeService([description("IN_PROGRESS"), description()]), Watcher()
    wait_for_job(service, "job-1", 60.0, watcher, lambda seconds: None, percentile="p95")
    assert (watcher.updates[0].percentile, watcher.updates[0].latency_ms) == ("p95", 8.0)


def test_a_job_measured_on_this_machine_says_so(prepared: Prepared, run_folder: RunFolder) -> None:
    service = FakeService([description()])
    service.machine = "Some CPU, 2 cores"
    provenance = _run(prepared, service, run_folder).provenance
    assert (provenance.measured_on, provenance.machine) == ("local", "Some CPU, 2 cores")
    assert "Measured on this machine, not on SageMaker." in run_folder.report.read_text("utf-8")


def test_a_candidate_too_slow_leaves_the_reviewed_recommendation_alone(
    prepared: Prepared, run_folder: RunFolder
) -> None:
    reviewed = _run(prepared, FakeService([description()]), RunFolder(run_folder.path.with_name("job-0")))
    slow = FakeService([description()])
    slow.time_series = SERIES.model_copy(update={"model_latency_ms": {"p99": (51.0, 52.0, 53.0, 54.0)}})
    found = _run(prepared, slow, run_folder)
    assert found.recommended is None
    assert prepared.folder.recommendation() == reviewed
    assert "No candidate meets the objective" in run_folder.report.read_text("utf-8")


def test_a_failed_job_is_told_with_its_reason_and_keeps_what_was_measured(
    prepared: Prepared, run_folder: RunFolder
) -> None:
    failed = description("FAILED", InferenceRecommendations=[], FailureReason="Triton was killed by signal 9.")
    with pytest.raises(JobFailed) as caught:
        _run(
            prepared,
            FakeService([failed], [step("FAILED", FailureReason="Triton was killed by signal 9.")]),
            run_folder,
        )
    assert str(caught.value) == (
        f"Job job-1 failed: Triton was killed by signal 9.\nWhat was measured is kept in {run_folder.path}."
    )
    assert caught.value.exit_code == 3
    assert run_folder.measurements()[0].series == SERIES
    assert not prepared.folder.recommendation_file.exists()


def test_a_job_that_failed_early_is_told_as_failed_and_not_as_too_few_samples(
    prepared: Prepared, run_folder: RunFolder
) -> None:
    service = FakeService(
        [description("FAILED", InferenceRecommendations=[], FailureReason="Triton was killed by signal 9.")],
        [step("FAILED", FailureReason="Triton was killed by signal 9.")],
    )
    service.time_series = SERIES.model_copy(
        update={"invocations": (9.0, 0.0, 0.0, 0.0), "errors": (9.0, 0.0, 0.0, 0.0)}
    )
    with pytest.raises(JobFailed, match="Job job-1 failed: Triton was killed by signal 9"):
        _run(prepared, service, run_folder)


def test_a_job_stopped_midway_gives_no_verdict(prepared: Prepared, run_folder: RunFolder) -> None:
    with pytest.raises(NoVerdict) as caught:
        _run(prepared, FakeService([description("STOPPED")]), run_folder)
    assert str(caught.value) == (
        f"No verdict: Job job-1 was stopped before its traffic ended. What was measured is kept in {run_folder.path}."
    )
    assert caught.value.exit_code == 4
    with pytest.raises(UsageError) as unread:
        run_folder.recommendation()
    assert str(unread.value) == (
        f"{run_folder.path} has no recommendation: the run ended without a verdict. measurements.json has what was "
        "measured."
    )


def test_a_generator_that_lagged_gives_no_verdict(prepared: Prepared, run_folder: RunFolder) -> None:
    reason = "generator lagged: it used 97% of its core, so it was the bottleneck"
    failed = description("FAILED", InferenceRecommendations=[], FailureReason=reason)
    with pytest.raises(NoVerdict) as caught:
        _run(prepared, FakeService([failed], [step("FAILED", FailureReason=reason)]), run_folder)
    assert str(caught.value) == (f"No verdict: ml.c5.xlarge: {reason}. What was measured is kept in {run_folder.path}.")


@pytest.mark.parametrize(
    ("series", "why"),
    [
        (
            SERIES.model_copy(update={"errors": (0.0, 0.0, 0.0, 29.0)}),
            "ml.c5.xlarge: 29 of 2,800 requests failed, more than 1%.",
        ),
        (
            SERIES.model_copy(update={"invocations": (40.0, 40.0, 40.0, 40.0)}),
            "ml.c5.xlarge: 160 requests are too few: P99 needs at least 299. Measure with longer traffic: another "
            "--traffic NAME, or longer phases in workload.toml.",
        ),
    ],
)
def test_evidence_that_cannot_be_believed_gives_no_verdict(
    prepared: Prepared, run_folder: RunFolder, series: Any, why: str
) -> None:
    service = FakeService([description()])
    service.time_series = series
    with pytest.raises(NoVerdict) as caught:
        _run(prepared, service, run_folder)
    assert str(caught.value) == f"No verdict: {why} What was measured is kept in {run_folder.path}."


def test_ctrl_c_stops_the_job_and_keeps_what_was_measured(prepared: Prepared, run_folder: RunFolder) -> None:
    service = FakeService([description("IN_PROGRESS")])
    sleeps = iter([KeyboardInterrupt()])

    def sleep(seconds: float) -> None:
        if error := next(sleeps, None):
            raise error

    with pytest.raises(Interrupted) as caught:
        _run(prepared, service, run_folder, sleep=sleep)
    assert service.stopped == ["job-1"]
    assert str(caught.value) == f"Interrupted: job job-1 was stopped. What was measured is kept in {run_folder.path}."
    assert caught.value.exit_code == 130
    assert json.loads((run_folder.path / "describe.json").read_text("utf-8"))["Status"] == "STOPPED"
    assert run_folder.measurements()


def test_ctrl_c_without_a_service_says_that_the_job_may_still_run(prepared: Prepared, run_folder: RunFolder) -> None:
    service = FakeService([description("IN_PROGRESS")])

    def gone(seconds: float) -> None:
        def refuse(name: str) -> None:
            raise AwsUnreachable("Could not connect")

        service.stop_job = refuse  # type: ignore[method-assign]
        raise KeyboardInterrupt

    with pytest.raises(Interrupted) as caught:
        _run(prepared, service, run_folder, sleep=gone)
    assert caught.value.exit_code == 130
    assert str(caught.value) == (
        "Interrupted: job job-1 could not be stopped and may still run. AWS cannot be reached: Could not connect. If "
        "AWS_ENDPOINT_URL points at an account on this machine, start it with `python -m local_aws`. Stop it by "
        "`python -m inference_recommender stop job-1`, or go on with the run by `python -m inference_recommender run "
        f"--resume {run_folder.path}`."
    )


@pytest.mark.parametrize(("then", "ends"), [("COMPLETED", True), ("IN_PROGRESS", False)])
def test_a_job_that_ended_before_it_could_be_stopped_is_no_refusal(then: str, ends: bool) -> None:
    service = FakeService([description("IN_PROGRESS"), description(then)])
    refusal = AwsRefused("StopInferenceRecommendationsJob", "ValidationException", "It cannot be stopped.")
    service.troubles = {"stop_job": [refusal]}
    if ends:
        assert stop_and_wait(service, "job-1", lambda seconds: None)["Status"] == "COMPLETED"
    else:
        with pytest.raises(AwsRefused, match="It cannot be stopped"):
            stop_and_wait(service, "job-1", lambda seconds: None)


def test_a_short_job_is_polled_often_and_a_long_one_seldom() -> None:
    assert [poll_interval_s(seconds) for seconds in (60, 600, 7200)] == [2, 10, 30]
