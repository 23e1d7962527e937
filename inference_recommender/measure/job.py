"""The use case: run the planned jobs one after another, keep all they return, decide, report.

Knows `Service` as its one port. The requests are built before anything is sent, and what is needed to go on is on disk
before the first job is created, so that a run may be killed at any moment and resumed. A resumed run recognises its
jobs by the names in jobs.json and by the run's token in their tags: `create_job` is simply tried, and a name that the
run itself has taken is no failure.
"""

import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from aws_api.errors import AwsBusy, AwsUnavailable, AwsUnreachable, ExpiredCredentials, NotFound
from aws_api.expiry import GRACE_S, expiry_tag
from inference_recommender.measure.job_requests import DEFAULT_JOB_S, SERVICE_DEFAULT, JobPlan
from inference_recommender.measure.job_wait import JobNameTaken, Service, Sleep, stop_and_wait, wait_for_job
from inference_recommender.measure.tested_model import RUN_TAG, Configuration
from inference_recommender.measurement import Measurement, limit_of, measurements
from inference_recommender.payloads import check_payloads, payload_archive
from inference_recommender.progress import Progress
from inference_recommender.report.run_report import draw
from inference_recommender.run_folder import Jobs, RunFolder, RunInputs
from inference_recommender.sizing.decision import decide, why_inconclusive, why_invalid, why_refused
from workloads import (
    Interrupted,
    ModelArtifact,
    PayloadLengths,
    ProjectError,
    Provenance,
    Recommendation,
    UsageError,
    Workload,
    WorkloadFolder,
)

PAYLOAD_PREFIX = "inference-recommender"
"""Prefix of the payload bucket that the stack's recommender role may read."""


class JobFailed(AwsUnavailable):
    """No job of the run completed. An experiment catches it and goes on with its other cells."""


def payload_key(workload: str) -> str:
    """Returns the key of a workload's payload archive in the payload bucket."""
    return f"{PAYLOAD_PREFIX}/{workload}/payloads.tar.gz"


@dataclass(frozen=True, kw_only=True, slots=True)
class Prepared:
    """All that a run needs, before anything is sent."""

    folder: WorkloadFolder
    artifact: ModelArtifact
    plan: JobPlan
    traffic_name: str = SERVICE_DEFAULT
    lengths: PayloadLengths | None = None
    """The payloads' lengths; None where nothing counted them."""


AfterJob = Callable[[Measurement, RunFolder], Measurement]
"""(a job's measurement, the run's folder) → the measurement with the result of an open-loop search, or with the
service's own scaling policy."""


def run(
    prepared: Prepared,
    service: Service,
    run_folder: RunFolder,
    progress: Progress,
    sleep: Sleep = time.sleep,
    after_job: AfterJob | None = None,
) -> Recommendation:
    """Measures and decides. What was measured stays in `run_folder` however the run ends; a recommendation is also
    written into the workload's folder, for review. Raises `UsageError` where the folder holds a run already, or what
    `measure` raises.
    """
    if run_folder.begun:
        raise UsageError(
            f"{run_folder} holds a run already: go on with it by `python -m inference_recommender run "
            f"--resume {run_folder}`, or choose another name with --job-name."
        )
    inputs = RunInputs(
        traffic=prepared.traffic_name, archive_sha256=prepared.artifact.archive_sha256, lengths=prepared.lengths
    )
    run_folder.keep_inputs(inputs)
    _begin(prepared.plan, prepared.folder, run_folder)
    return resume(prepared.folder, service, run_folder, progress, sleep, after_job)


def resume(
    folder: WorkloadFolder,
    service: Service,
    run_folder: RunFolder,
    progress: Progress,
    sleep: Sleep = time.sleep,
    after_job: AfterJob | None = None,
) -> Recommendation:
    """Goes on with a run that was begun, to the same end; the workload is the one kept in `run_folder`. Raises
    `UsageError` where there is nothing to resume, or what `measure` raises.
    """
    measured = _collect(service, run_folder, progress, sleep)
    if after_job is not None:
        measured = _with_what_follows(measured, after_job, run_folder)
    workload, inputs = run_folder.workload(), run_folder.inputs()
    if reason := why_inconclusive(measured, workload.latency_objective):
        raise run_folder.no_verdict(reason)
    with _resumable(run_folder, AwsUnavailable):
        provenance = _provenance(workload, inputs, service, run_folder)
    recommendation = decide(workload, inputs.archive_sha256, measured, provenance, inputs.lengths)
    run_folder.keep_recommendation(recommendation)
    draw(run_folder)
    if recommendation.recommended is not None:
        recommendation.write_json(folder.recommendation_file)
    return recommendation


def _with_what_follows(
    measured: Sequence[Measurement], after_job: AfterJob, run_folder: RunFolder
) -> tuple[Measurement, ...]:
    try:
        found = tuple(after_job(one, run_folder) for one in measured)
    except KeyboardInterrupt:
        raise Interrupted(
            "Interrupted: the search with open-loop arrivals was stopped. What the job measured is kept in "
            f"{run_folder}."
        ) from None
    run_folder.keep_measurements(found)
    return found


def candidates_of(run_folder: RunFolder, workload: str) -> tuple[Configuration, ...]:
    """Returns every configuration for which a default job's run found a capacity, with the environment that the service
    chose, best rate first. Raises `UsageError` where there is none.
    """
    if run_folder.request().get("JobType") != "Default":
        raise UsageError(f"--from-default: {run_folder} is not the run of a default job.")
    if (other := run_folder.workload().name) != workload:
        raise UsageError(f"--from-default: {run_folder} measured {other}, not {workload}.")
    endpoint = run_folder.jobs().deployed
    tested = [
        measurement
        for measurement in run_folder.measurements()
        if measurement.max_invocations_per_minute
        and not measurement.failure_reason
        and (not endpoint or measurement.endpoint_name != endpoint.name)
    ]
    if not tested:
        raise UsageError(f"--from-default: {run_folder} found no capacity for any instance type.")
    tested.sort(key=lambda measurement: -(measurement.max_invocations_per_minute or 0))
    chosen = [(measurement.instance_type, tuple(measurement.environment.items())) for measurement in tested]
    return tuple(
        Configuration(instance_type=name, environment={key: (value,) for key, value in environment})
        for name, environment in dict.fromkeys(chosen)
    )


def measure(
    plan: JobPlan,
    folder: WorkloadFolder,
    service: Service,
    run_folder: RunFolder,
    progress: Progress,
    sleep: Sleep = time.sleep,
) -> tuple[Measurement, ...]:
    """Runs the planned jobs to their end and returns what may be believed; jobs that `run_folder` says were begun are
    gone on with.

    Raises `UsageError` (a payload is too large), `JobNameTaken`, `JobFailed`, `NoVerdict`, `Interrupted` or another
    `AwsUnavailable`.
    """
    if not run_folder.begun:
        _begin(plan, folder, run_folder)
    return _collect(service, run_folder, progress, sleep)


def _begin(plan: JobPlan, folder: WorkloadFolder, run_folder: RunFolder) -> None:
    """Writes down all that the run consists of. Nothing is sent."""
    rows, of_each = folder.payloads(), folder.workload.latency_objective.rows_per_invocation
    check_payloads(folder.workload.name, rows, of_each)
    run_folder.keep_workload(folder.workload)
    run_folder.keep_bytes("payloads.tar.gz", payload_archive(rows, of_each))
    token = uuid.uuid4().hex
    jobs = Jobs(
        token=token,
        names=tuple(request["JobName"] for request in plan.requests),
        expected_s=plan.expected_s,
        payload_url=plan.payload_url,
        deployed=plan.deployed,
    )
    run_folder.keep_jobs(jobs, tuple(_marked(request, token) for request in plan.requests))


def _marked(request: dict[str, Any], token: str) -> dict[str, Any]:
    return {**request, "Tags": [*request["Tags"], {"Key": RUN_TAG, "Value": token}]}


def _collect(service: Service, run_folder: RunFolder, progress: Progress, sleep: Sleep) -> tuple[Measurement, ...]:
    """Goes on with the run of `run_folder` to its end and returns what may be believed. Raises like `measure`."""
    jobs, percentile = run_folder.jobs(), f"p{run_folder.workload().latency_objective.percentile_rank:g}"
    service.notify = progress.say
    described: list[dict[str, Any]] = []
    measured: list[Measurement] = []
    for number, name in enumerate(jobs.names, start=1):
        try:
            _create(service, jobs, run_folder, number)
            with _resumable(run_folder, AwsUnavailable):
                place = (number, len(jobs.names))
                ended = wait_for_job(service, name, jobs.expected_s, progress, sleep, place, percentile)
        except KeyboardInterrupt:
            ending = _stop_and_keep(service, name, jobs, run_folder, number, measured, sleep)
            raise Interrupted(f"Interrupted: {ending}") from None
        with _resumable(run_folder, AwsUnavailable):
            measured += _keep(service, ended, jobs, run_folder, number)
        described.append(ended)
        run_folder.keep_measurements(tuple(measured))
        if ended["Status"] not in ("COMPLETED", "FAILED"):
            raise run_folder.no_verdict(f"Job {name} was stopped before its traffic ended.")
    _tell(described, measured, progress)
    _refuse_invalid(described, measured, run_folder)
    return tuple(measured)


def _create(service: Service, jobs: Jobs, run_folder: RunFolder, number: int) -> None:
    request = run_folder.request(number)
    with _resumable(run_folder, AwsBusy, AwsUnreachable, ExpiredCredentials):
        service.upload(jobs.payload_url, run_folder.payloads())
        try:
            service.create_job(_expiring(request))
        except JobNameTaken:
            # The run's own job, from before this program was killed, or from a call whose answer was lost.
            arn = service.describe_job(request["JobName"])["JobArn"]
            if service.job_tags(arn).get(RUN_TAG) != jobs.token:
                raise


def _expiring(request: dict[str, Any]) -> dict[str, Any]:
    """Adds the time at which the job has long ended, whether what it makes has the job's tags or not."""
    longest_s = request["InputConfig"].get("JobDurationInSeconds", DEFAULT_JOB_S) + GRACE_S
    tag = expiry_tag(datetime.now(UTC) + timedelta(seconds=longest_s))
    return {**request, "Tags": [*request["Tags"], tag]}


@contextmanager
def _resumable(run_folder: RunFolder, *kinds: type[AwsUnavailable]) -> Iterator[None]:
    """Turns errors of these kinds into one that says how to go on."""
    try:
        yield
    except JobNameTaken:
        raise
    except kinds as error:
        raise AwsUnavailable(
            f"{error}\nNothing is lost: continue with `python -m inference_recommender run --resume {run_folder}`."
            " No job is created twice."
        ) from error


def _keep(
    service: Service, described: Mapping[str, Any], jobs: Jobs, run_folder: RunFolder, number: int
) -> tuple[Measurement, ...]:
    name = described["JobName"]
    steps = service.job_steps(name)
    run_folder.keep_job(number, described, steps)
    objective = run_folder.workload().latency_objective
    series = service.series(described, steps, jobs.deployed, f"p{objective.percentile_rank:g}")
    measured = measurements(described, steps, series, jobs.deployed, limit_of(objective))
    return tuple(_explained(measurement, service, name) for measurement in measured)


def _explained(measured: Measurement, service: Service, job_name: str) -> Measurement:
    """Adds the last lines of the container's log to a failed test's reason, if there is a log and the reason has no
    lines yet.
    """
    reason = measured.failure_reason
    if reason is None or "\n" in reason or measured.failure_code:
        return measured
    lines = service.container_log(job_name, measured.endpoint_name)
    if not lines:
        return measured
    explained = "\n".join([f"{reason} The last lines of its container's log:", *lines])
    return measured.model_copy(update={"failure_reason": explained})


def _stop_and_keep(
    service: Service,
    name: str,
    jobs: Jobs,
    run_folder: RunFolder,
    number: int,
    before: Sequence[Measurement],
    sleep: Sleep,
) -> str:
    """Stops the job that the user interrupted and returns what became of it."""
    service.hurry()  # the user waits for the prompt
    try:
        measured = _keep(service, stop_and_wait(service, name, sleep), jobs, run_folder, number)
        run_folder.keep_measurements((*before, *measured))
    except NotFound:
        return f"job {name} was not created yet. What was measured is kept in {run_folder}."
    except ProjectError as error:
        return (
            f"job {name} could not be stopped and may still run. {error} Stop it by `python -m inference_recommender "
            f"stop {name}`, or go on with the run by `python -m inference_recommender run --resume {run_folder}`."
        )
    return f"job {name} was stopped. What was measured is kept in {run_folder}."


def _tell(described: Sequence[Mapping[str, Any]], measured: Sequence[Measurement], progress: Progress) -> None:
    """Tells the user what is unusual in a run that goes on to its verdict."""
    for measurement in measured:
        if measurement.model_latency_unit == "µs":
            progress.say(
                f"{measurement.instance_type}: the job reports ModelLatency in µs: read as "
                f"{measurement.model_latency_ms:g} ms."
            )
    if any(job["Status"] == "COMPLETED" for job in described):
        for job in described:
            if job["Status"] == "FAILED":
                progress.say(f"Job {job['JobName']} failed, the others did not: {_reason(job)}")


def _refuse_invalid(
    described: Sequence[Mapping[str, Any]], measured: Sequence[Measurement], run_folder: RunFolder
) -> None:
    completed = any(job["Status"] == "COMPLETED" for job in described)
    objective = run_folder.workload().latency_objective
    if reason := why_invalid(measured, objective) if completed else why_refused(measured):
        raise run_folder.no_verdict(reason)
    if not completed:
        name, reason = described[0]["JobName"], _reason(described[0])
        tests = [f"{one.instance_type}: {one.failure_reason}" for one in measured if one.failure_reason]
        unknown = [line for line in tests if line.partition(": ")[2] not in reason]
        told = "\n".join([f"Job {name} failed: {reason}", *unknown])
        raise JobFailed(f"{told}\nWhat was measured is kept in {run_folder}.")


def _reason(job: Mapping[str, Any]) -> str:
    return str(job.get("FailureReason", "The service gave no reason."))


def _provenance(workload: Workload, inputs: RunInputs, service: Service, run_folder: RunFolder) -> Provenance:
    described = run_folder.description()
    machine = service.measured_on(described["JobArn"])
    return Provenance(
        measured_on="local" if machine else "sagemaker",
        machine=machine or ", ".join(workload.instance_types),
        job_name=described["JobName"],
        job_arn=described["JobArn"],
        traffic=inputs.traffic,
        percentile=workload.latency_objective.percentile,
        measured_at=datetime.fromisoformat(described.get("CompletionTime") or described["LastModifiedTime"]).isoformat(
            timespec="seconds"
        ),
        region=service.region,
        run=f"{run_folder.path.parent.name}/{run_folder.path.name}",
    )
