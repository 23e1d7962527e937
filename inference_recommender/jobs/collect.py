"""The jobs of a run, one after another: created unless they are there, waited for, and all they return kept.

A run that was killed goes on here. Which jobs are its own it knows by name, written down before the first was created,
and by the token in their tags: `create` is simply tried, and a name that is taken by the run itself is no failure.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from aws_api.errors import AwsBusy, AwsUnavailable, AwsUnreachable, ExpiredCredentials, NotFound
from inference_recommender.errors import Interrupted, InvalidRun, JobFailed, JobNameTaken, Suspended
from inference_recommender.jobs.retrying_service import Patient
from inference_recommender.jobs.service import Service
from inference_recommender.jobs.tested_model import RUN_TAG
from inference_recommender.jobs.wait import Sleep, stop_and_wait, wait_for_job
from inference_recommender.load_generator.summary import INVALID_REASONS
from inference_recommender.measurement import Measurement, measurements
from inference_recommender.progress import Progress
from inference_recommender.run_folder import Jobs, RunFolder
from inference_recommender.sizing.decision import why_invalid, why_refused
from workloads import ProjectError


def collect(service: Service, kept: RunFolder, progress: Progress, sleep: Sleep) -> tuple[Measurement, ...]:
    """Go on with the run of `kept` to its end and give what may be believed.

    Raises `JobNameTaken`, `JobFailed`, `InvalidRun`, `Interrupted`, `Suspended` or another `AwsUnavailable`.
    """
    jobs, patient = kept.jobs(), Patient(service, progress, sleep)
    described: list[dict[str, Any]] = []
    measured: list[Measurement] = []
    for number, name in enumerate(jobs.names, start=1):
        try:
            _create(patient, jobs, kept, number)
            with resumable(kept, AwsUnavailable):
                ended = wait_for_job(patient, name, jobs.expected_s, progress, sleep, (number, len(jobs.names)))
        except KeyboardInterrupt:
            raise Interrupted(_stop_and_keep(service, name, jobs, kept, number, measured)) from None
        with resumable(kept, AwsUnavailable):
            measured += _keep(patient, ended, jobs, kept, number)
        described.append(ended)
        kept.keep_measurements(tuple(measured))
        if ended["Status"] not in ("COMPLETED", "FAILED"):
            raise InvalidRun(f"Job {name} was stopped before its traffic ended.", kept.path)
    _tell(described, measured, progress)
    _refuse_invalid(described, measured, kept)
    return tuple(measured)


def _create(service: Service, jobs: Jobs, kept: RunFolder, number: int) -> None:
    request = kept.request(number)
    with resumable(kept, AwsBusy, AwsUnreachable, ExpiredCredentials):
        service.upload(jobs.payload_url, kept.payloads())
        try:
            service.create_job(request)
        except JobNameTaken:
            # Our own, of before this program was killed, or of a call whose answer was lost.
            arn = service.describe_job(request["JobName"])["JobArn"]
            if service.job_tags(arn).get(RUN_TAG) != jobs.token:
                raise


@contextmanager
def resumable(kept: RunFolder, *kinds: type[AwsUnavailable]) -> Iterator[None]:
    """Turn these errors into one that says how to go on."""
    try:
        yield
    except JobNameTaken:
        raise
    except kinds as error:
        raise Suspended(error, kept.path) from error


def _keep(
    service: Service, described: Mapping[str, Any], jobs: Jobs, kept: RunFolder, number: int
) -> tuple[Measurement, ...]:
    name = described["JobName"]
    steps = service.job_steps(name)
    kept.keep_job(number, described, steps)
    measured = measurements(described, steps, service.series(described, steps, jobs.deployed), jobs.deployed)
    return tuple(_explained(one, service, name) for one in measured)


def _explained(measured: Measurement, service: Service, job_name: str) -> Measurement:
    """A failed test with the last lines of its container's log, where there is one and the reason has none yet."""
    reason = measured.failure_reason
    if reason is None or "\n" in reason or reason.startswith(INVALID_REASONS):
        return measured
    lines = service.container_log(job_name, measured.endpoint_name)
    if not lines:
        return measured
    told = "\n".join([f"{reason} The last lines of its container's log:", *lines])
    return measured.model_copy(update={"failure_reason": told})


def _stop_and_keep(
    service: Service, name: str, jobs: Jobs, kept: RunFolder, number: int, before: Sequence[Measurement]
) -> str:
    """Stop the job that a person interrupted; what became of it. Not patient: somebody waits for the prompt."""
    try:
        measured = _keep(service, stop_and_wait(service, name), jobs, kept, number)
        kept.keep_measurements((*before, *measured))
    except NotFound:
        return f"job {name} was not created yet. What was measured is kept in {kept.path}."
    except ProjectError as error:
        return (
            f"job {name} could not be stopped and may still run. {error} Stop it by `python -m inference_recommender "
            f"stop {name}`, or go on with the run by `python -m inference_recommender run --resume {kept.path}`."
        )
    return f"job {name} was stopped. What was measured is kept in {kept.path}."


def _tell(described: Sequence[Mapping[str, Any]], measured: Sequence[Measurement], progress: Progress) -> None:
    """What a person should know of a run that goes on to its verdict."""
    for one in measured:
        if one.model_latency_unit == "µs":
            progress.say(
                f"{one.instance_type}: the job reports ModelLatency in µs: read as {one.model_latency_ms:g} ms."
            )
    if any(job["Status"] == "COMPLETED" for job in described):
        for job in described:
            if job["Status"] == "FAILED":
                progress.say(f"Job {job['JobName']} failed, the others did not: {_reason(job)}")


def _refuse_invalid(described: Sequence[Mapping[str, Any]], measured: Sequence[Measurement], kept: RunFolder) -> None:
    completed = any(job["Status"] == "COMPLETED" for job in described)
    objective = kept.workload().latency_objective
    if reason := why_invalid(measured, objective) if completed else why_refused(measured):
        raise InvalidRun(reason, kept.path)
    if not completed:
        reason = _reason(described[0])
        tests = [f"{one.instance_type}: {one.failure_reason}" for one in measured if one.failure_reason]
        unknown = [line for line in tests if line.partition(": ")[2] not in reason]
        raise JobFailed(described[0]["JobName"], reason, kept.path, unknown)


def _reason(job: Mapping[str, Any]) -> str:
    return str(job.get("FailureReason", "The service gave no reason."))
