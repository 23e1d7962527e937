"""Measures by Inference Recommender jobs: creates them one after another, waits, and keeps all that they return.

What a resumed run needs is on disk before the first job is created, so a run may be killed at any moment. A resumed run
recognizes its jobs by the names in jobs.json and by the run's token in their tags: it calls CreateJob again, and a name
that the run itself has taken is no failure.
"""

import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from aws_api.errors import AwsBusy, AwsUnavailable, AwsUnreachable, ExpiredCredentials, NotFound
from aws_api.expiry import GRACE_S, expiry_tag
from aws_api.sagemaker import MEASURED_ON_TAG, JobNameTaken, SageMakerAccount
from inference_recommender.measure.job_requests import DEFAULT_JOB_S, RUN_TAG, Configuration, JobPlan, TestedModel
from inference_recommender.measure.job_service import Sleep, job_series, scaling_advice, stop_and_wait, wait_for_job
from inference_recommender.measurement import Measurement, limit_of, measurements
from inference_recommender.progress import Progress
from inference_recommender.run_folder import PAYLOADS, Jobs, RunFolder
from inference_recommender.sizing.decision import why_invalid, why_refused
from workloads import Interrupted, ProjectError, Provenance, UsageError, Workload

PAYLOAD_PREFIX = "inference-recommender"
"""Prefix of the payload bucket that the stack's recommender role may read."""


class JobFailed(AwsUnavailable):
    """No job of the run completed. An experiment catches it and continues with its other cells."""


def job_model(account: SageMakerAccount, workload: Workload, endpoint_name: str | None = None) -> TestedModel:
    """Returns the model, role and bucket of [recommender], or the stack's. Raises `AwsUnavailable`."""
    settings = workload.recommender
    model, role = settings.model, settings.role_arn
    if not (model and role):
        outputs = account.stack_outputs(
            workload.stack_name, ", or set recommender.model and recommender.role_arn with --set"
        )
        model, role = model or outputs["ModelName"], role or outputs["RecommenderRoleArn"]
    url = f"s3://{settings.bucket or account.default_bucket()}/{payload_key(workload)}"
    return TestedModel(model=model, role_arn=role, payload_url=url, endpoint_name=endpoint_name)


def payload_key(workload: Workload) -> str:
    """Returns the key in the payload bucket of the archive of a workload's requests, by the rows of each."""
    rows = workload.latency_objective.rows_per_invocation
    return f"{PAYLOAD_PREFIX}/{workload.name}/payloads{f'-{rows}-rows' if rows > 1 else ''}.tar.gz"


@dataclass(frozen=True, kw_only=True, slots=True)
class JobSource:
    """Measures by the jobs of a plan, or by those that a resumed run has begun."""

    plan: JobPlan | None
    """None in a resumed run, which reads jobs.json."""
    account: SageMakerAccount
    sleep: Sleep = time.sleep

    def begin(self, run_folder: RunFolder) -> None:
        """Writes all that the run consists of. Sends nothing."""
        assert self.plan is not None, "a new run has a plan"
        token = uuid.uuid4().hex
        existing = self.plan.existing_endpoint
        jobs = Jobs(
            token=token,
            names=tuple(request["JobName"] for request in self.plan.requests),
            expected_s=self.plan.expected_s,
            payload_url=self.plan.payload_url,
            existing_endpoint=existing.configuration() if existing else None,
        )
        mark = {"Key": RUN_TAG, "Value": token}
        run_folder.keep_jobs(jobs, tuple({**one, "Tags": [*one["Tags"], mark]} for one in self.plan.requests))

    def measure(self, run_folder: RunFolder, progress: Progress) -> tuple[Measurement, ...]:
        """Runs the jobs of `run_folder` to their end and returns the valid measurements.

        Raises `JobNameTaken`, `JobFailed`, `NoVerdict`, `Interrupted` or another `AwsUnavailable`.
        """
        jobs = run_folder.jobs()
        self.account.notify = progress.say
        described: list[dict[str, Any]] = []
        measured: list[Measurement] = []
        for number, name in enumerate(jobs.names, start=1):
            try:
                self._create(jobs, run_folder, number)
                with _resumable(run_folder, AwsUnavailable):
                    place = (number, len(jobs.names))
                    ended = wait_for_job(self.account, name, jobs.expected_s, progress, self.sleep, place)
            except KeyboardInterrupt:
                ending = self._stop(name, jobs, run_folder, number, measured)
                raise Interrupted(f"Interrupted: {ending}") from None
            with _resumable(run_folder, AwsUnavailable):
                measured += self._read(ended, jobs, run_folder, number)
            described.append(ended)
            run_folder.keep_measurements(tuple(measured))
            if ended["Status"] not in ("COMPLETED", "FAILED"):
                raise run_folder.no_verdict(f"Job {name} was stopped before its traffic ended.")
        _report_oddities(described, measured, progress)
        _check_jobs(described, measured, run_folder)
        return tuple(measured)

    def provenance(self, run_folder: RunFolder) -> Provenance:
        described = run_folder.description()
        with _resumable(run_folder, AwsUnavailable):
            machine = self.account.tags(described["JobArn"]).get(MEASURED_ON_TAG)
        workload = run_folder.workload()
        ended = datetime.fromisoformat(described.get("CompletionTime") or described["LastModifiedTime"])
        return Provenance(
            measured_on="local" if machine else "sagemaker",
            machine=machine or ", ".join(workload.instance_types),
            job_name=described["JobName"],
            job_arn=described["JobArn"],
            traffic=run_folder.inputs().traffic,
            percentile=workload.latency_objective.percentile,
            measured_at=ended.isoformat(timespec="seconds"),
            region=self.account.region,
            run=run_folder.relative_name,
        )

    def _create(self, jobs: Jobs, run_folder: RunFolder, number: int) -> None:
        request = run_folder.request(number)
        with _resumable(run_folder, AwsBusy, AwsUnreachable, ExpiredCredentials):
            self.account.upload(jobs.payload_url, (run_folder.path / PAYLOADS).read_bytes())
            try:
                self.account.create_job(_expiring(request))
            except JobNameTaken:
                # The run's own job: this program was killed, or the answer of an earlier call was lost.
                arn = self.account.describe_job(request["JobName"])["JobArn"]
                if self.account.tags(arn).get(RUN_TAG) != jobs.token:
                    raise

    def _read(
        self, described: Mapping[str, Any], jobs: Jobs, run_folder: RunFolder, number: int
    ) -> Iterator[Measurement]:
        """Keeps what a job returned and yields its measurements."""
        steps = self.account.job_steps(described["JobName"])
        run_folder.keep_job(number, described, steps)
        objective = run_folder.workload().latency_objective
        series = job_series(self.account, described, steps, jobs.existing_endpoint, f"p{objective.percentile_rank:g}")
        for measured in measurements(described, steps, series, jobs.existing_endpoint, limit_of(objective)):
            explained = self._explained(measured, described["JobName"])
            advice = scaling_advice(self.account, described, measured.endpoint_name, objective)
            yield explained.model_copy(update={"scaling_advice": advice})

    def _explained(self, measured: Measurement, job_name: str) -> Measurement:
        """Adds the last lines of the container's log to a failed test's reason."""
        reason = measured.failure_reason
        if reason is None or "\n" in reason or measured.refused:
            return measured
        lines = self.account.container_log(job_name, measured.endpoint_name)
        if not lines:
            return measured
        explained = "\n".join([f"{reason} The last lines of its container's log:", *lines])
        return measured.model_copy(update={"failure_reason": explained})

    def _stop(self, name: str, jobs: Jobs, run_folder: RunFolder, number: int, before: Sequence[Measurement]) -> str:
        """Stops the job that the user interrupted and returns the outcome as a sentence."""
        self.account.stop_retrying()
        try:
            ended = stop_and_wait(self.account, name, self.sleep)
            run_folder.keep_measurements((*before, *self._read(ended, jobs, run_folder, number)))
        except NotFound:
            return f"job {name} was not created yet. Measurements: {run_folder}."
        except ProjectError as error:
            return (
                f"job {name} could not be stopped and may still run. {error} Stop it with `python -m "
                f"inference_recommender jobs stop {name}`, or continue the run with `python -m inference_recommender "
                f"run --resume {run_folder}`."
            )
        return f"job {name} was stopped. Measurements: {run_folder}."


def candidates_of(run_folder: RunFolder, workload: str) -> tuple[Configuration, ...]:
    """Returns every configuration for which a default job found a capacity, with the environment that the service
    chose, highest rate first. Raises `UsageError` if there is none.
    """
    if run_folder.request().get("JobType") != "Default":
        raise UsageError(f"--from-default: {run_folder} is not the run of a default job.")
    if (other := run_folder.workload().name) != workload:
        raise UsageError(f"--from-default: {run_folder} measured {other}, not {workload}.")
    existing = (run_folder.jobs().existing_endpoint or {}).get("EndpointName")
    tested = [
        measurement
        for measurement in run_folder.measurements()
        if measurement.closed_loop_invocations_per_minute
        and not measurement.failure_reason
        and measurement.endpoint_name != existing
    ]
    if not tested:
        raise UsageError(f"--from-default: {run_folder} found no capacity for any instance type.")
    tested.sort(key=lambda measurement: -(measurement.closed_loop_invocations_per_minute or 0))
    chosen = [(measurement.instance_type, tuple(measurement.environment.items())) for measurement in tested]
    return tuple(
        Configuration(instance_type=name, environment={key: (value,) for key, value in environment})
        for name, environment in dict.fromkeys(chosen)
    )


def _expiring(request: dict[str, Any]) -> dict[str, Any]:
    """Adds the tag with the time after which cleanup may delete what the job has left."""
    longest_s = request["InputConfig"].get("JobDurationInSeconds", DEFAULT_JOB_S) + GRACE_S
    tag = expiry_tag(datetime.now(UTC) + timedelta(seconds=longest_s))
    return {**request, "Tags": [*request["Tags"], tag]}


@contextmanager
def _resumable(run_folder: RunFolder, *kinds: type[AwsUnavailable]) -> Iterator[None]:
    """Adds to errors of these kinds how to continue."""
    try:
        yield
    except JobNameTaken:
        raise
    except kinds as error:
        raise AwsUnavailable(
            f"{error}\nNothing is lost. Continue with `python -m inference_recommender run --resume {run_folder}`. "
            "No job is created twice."
        ) from error


def _report_oddities(
    described: Sequence[Mapping[str, Any]], measured: Sequence[Measurement], progress: Progress
) -> None:
    for one in measured:
        if one.model_latency_unit == "µs":
            converted = f"It is converted to {one.model_latency_ms:g} ms."
            progress.say(f"{one.instance_type}: the job reports ModelLatency in µs. {converted}")
    if any(job["Status"] == "COMPLETED" for job in described):
        for job in described:
            if job["Status"] == "FAILED":
                progress.say(f"Job {job['JobName']} failed: {_reason(job)} The run continues with the other jobs.")


def _check_jobs(described: Sequence[Mapping[str, Any]], measured: Sequence[Measurement], run_folder: RunFolder) -> None:
    """Raises `NoVerdict` or `JobFailed` if nothing can be concluded."""
    completed = any(job["Status"] == "COMPLETED" for job in described)
    objective = run_folder.workload().latency_objective
    if reason := why_invalid(measured, objective) if completed else why_refused(measured):
        raise run_folder.no_verdict(reason)
    if not completed:
        name, reason = described[0]["JobName"], _reason(described[0])
        tests = [f"{one.instance_type}: {one.failure_reason}" for one in measured if one.failure_reason]
        unknown = [line for line in tests if line.partition(": ")[2] not in reason]
        failures = "\n".join([f"Job {name} failed: {reason}", *unknown])
        explain = f"Likely cause: `python -m inference_recommender jobs explain {name}`."
        raise JobFailed(f"{failures}\n{explain} Measurements: {run_folder}.")


def _reason(job: Mapping[str, Any]) -> str:
    return str(job.get("FailureReason", "The service gave no reason."))
