"""Inference Recommender jobs: their names, statuses and results in the API's shapes. `load_test` runs their tests.

Jobs run one after another, and so do the tests of a job, because parallel tests on one machine would measure each
other. A tag of each job names the machine.
"""

import logging
import threading
import time
import uuid
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import Any

from moto.cloudwatch.models import cloudwatch_backends
from moto.logs.models import logs_backends
from moto.sagemaker.exceptions import ResourceInUseException, ResourceNotFound, ValidationError

from local_aws import machine, nvml
from local_aws.sagemaker.endpoint import failure_reason, shortened
from local_aws.sagemaker.endpoint_fleet import put_lines
from local_aws.sagemaker.endpoint_metrics import publish_window
from local_aws.sagemaker.load_test import JobStep, LoadTestRunner
from local_aws.sagemaker.model_host import ModelHost, fetch_object
from local_aws.sagemaker.recommendation_request import (
    EndpointTest,
    InstanceTest,
    check_documented_limits,
    check_model,
    container_of,
    package_of,
    plan,
    role_calls,
)
from local_aws.service_model import page
from local_aws.state_folder import check_room

log = logging.getLogger(__name__)

MEASURED_ON = "local-aws:measured-on"
FINER_METRICS = "local-aws:finer-metrics"
LOG_GROUP = "/aws/sagemaker/InferenceRecommendationsJobs"
"""The group in which each job has the stream JOB/execution; the SageMaker SDKs wait for it by default."""
_ENDED = ("COMPLETED", "FAILED", "STOPPED")


@dataclass(slots=True)
class RecommendationJob:
    request: Mapping[str, Any]
    arn: str
    runner: LoadTestRunner
    steps: list[JobStep]
    tags: list[dict[str, str]]
    status: str = "PENDING"
    failure_reason: str | None = None
    created_at: datetime = field(default_factory=lambda: datetime.now(UTC))
    modified_at: datetime = field(default_factory=lambda: datetime.now(UTC))
    completed_at: datetime | None = None
    ids: dict[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return str(self.request["JobName"])

    def set(self, status: str, reason: str | None = None) -> None:
        self.status, self.failure_reason = status, shortened(reason)
        self.modified_at = datetime.now(UTC)
        if status in _ENDED:
            self.completed_at = self.modified_at

    def described(self) -> dict[str, Any]:
        """Returns the answer of DescribeInferenceRecommendationsJob."""
        echoed = ("JobName", "JobDescription", "JobType", "RoleArn", "InputConfig", "StoppingConditions")
        completed = [step for step in self.steps if step.status == "COMPLETED"]
        recommendations = [
            {
                "RecommendationId": self.ids.setdefault(step.endpoint_name, f"{self.name}/{uuid.uuid4().hex[:8]}"),
                **step.benchmark(),
            }
            for step in completed
            if not isinstance(step.test, EndpointTest)
        ]
        performances = [
            {"Metrics": metrics, "EndpointInfo": {"EndpointName": step.endpoint_name}}
            for step in completed
            if isinstance(step.test, EndpointTest) and (metrics := step.endpoint_metrics())
        ]
        return {
            **{name: self.request[name] for name in echoed if name in self.request},
            **self._state(),
            **({"InferenceRecommendations": recommendations[:10]} if recommendations else {}),
            **({"EndpointPerformances": performances} if performances else {}),
        }

    def summary(self) -> dict[str, Any]:
        """Returns one item of ListInferenceRecommendationsJobs."""
        named, about = ("ModelName", "ModelPackageVersionArn"), self.request["InputConfig"]
        return {
            **{name: self.request[name] for name in ("JobName", "JobType", "RoleArn")},
            "JobDescription": self.request.get("JobDescription", ""),
            **{name: about[name] for name in named if name in about},
            "SamplePayloadUrl": self.runner.plan.payload_url,
            **self._state(),
        }

    def shown_steps(self) -> list[dict[str, Any]]:
        return [
            {
                "StepType": "BENCHMARK",
                "JobName": self.name,
                "Status": step.status,
                "InferenceBenchmark": {
                    **step.benchmark(),
                    **({"FailureReason": step.failure_reason} if step.failure_reason else {}),
                },
            }
            for step in self.steps
        ]

    def _state(self) -> dict[str, Any]:
        state = {
            "JobArn": self.arn,
            "Status": self.status,
            "CreationTime": self.created_at,
            "LastModifiedTime": self.modified_at,
            "CompletionTime": self.completed_at,
            "FailureReason": self.failure_reason,
        }
        return {name: value for name, value in state.items() if value is not None}


class RecommendationJobs:
    """All jobs of one region. `plane` is its SageMaker backend."""

    def __init__(self, host: ModelHost, region: str, plane: Any) -> None:
        self._host = host
        self._settings = host.settings
        self._region = region
        self.plane = plane
        self._jobs: dict[str, RecommendationJob] = {}
        self._lock = threading.Lock()
        self._turn = threading.Lock()

    def create(self, request: Mapping[str, Any]) -> RecommendationJob:
        """Checks, registers and starts a job. Raises moto's exceptions in the service's words."""
        check_model(request)
        configuration = request["InputConfig"]
        if not self._settings.quick:
            check_documented_limits(configuration)
        package = package_of(self.plane, configuration)
        planned = plan(request, package)
        container = container_of(self.plane, configuration, package)
        existing = [EndpointTest.of(self.plane, name) for name in planned.endpoints]
        name = request["JobName"]
        tests: list[InstanceTest | EndpointTest] = [*existing, *planned.tests]
        folder = self._settings.state / "jobs" / name
        tags = {tag["Key"]: tag["Value"] for tag in request.get("Tags") or []}
        measured_on = " and ".join(sorted({self._host.measures_on(test.instance_type) for test in tests}))
        own = {MEASURED_ON: machine.tag_value(measured_on), **({FINER_METRICS: "true"} if self._settings.quick else {})}
        job = RecommendationJob(
            request={key: value for key, value in request.items() if value is not None},
            arn=f"arn:aws:sagemaker:{self._region}:{self._settings.account_id}:inference-recommendations-job/{name}",
            runner=LoadTestRunner(self._host, planned, container, folder / "payloads.tar.gz", folder),
            steps=[JobStep(test) for test in tests],
            tags=tags_of({**tags, **own}),
        )
        self.plane.check_endpoint_quota(_instances(job))
        with self._lock:
            if job.name in self._jobs:
                raise ResourceInUseException(
                    message=f"InferenceRecommendationsJob names must be unique within an AWS account and region, and "
                    f"there is already an InferenceRecommendationsJob with this name ({self._jobs[job.name].arn})."
                )
            self._jobs[job.name] = job
        self._tell(job, f"{job.status}: {len(job.steps)} test(s), one after another, on {machine.description()}")
        threading.Thread(target=self._run, args=(job,), name=f"job-{job.name}", daemon=True).start()
        return job

    def instances(self) -> "list[Counter[str]]":
        """Returns instance type → instances for each job that has not ended, with all of its parallel tests."""
        return [_instances(job) for job in self._jobs.values() if job.status not in _ENDED]

    def get(self, name: str) -> RecommendationJob:
        if name not in self._jobs:
            raise ResourceNotFound(message=f"Could not find InferenceRecommendationsJob with name {name}.")
        return self._jobs[name]

    def by_arn(self, arn: str) -> RecommendationJob | None:
        return next((job for job in self._jobs.values() if job.arn == arn), None)

    def stop(self, name: str) -> None:
        job = self.get(name)
        with self._lock:
            if job.status in _ENDED:
                raise ValidationError(f"InferenceRecommendationsJob {name} is {job.status} and cannot be stopped.")
            job.set("STOPPING")
        job.runner.stop()

    def list(self, request: Mapping[str, Any]) -> dict[str, Any]:
        chosen = [job.summary() for job in self._jobs.values()]
        chosen = [item for item in chosen if _matches(item, request)]
        key = {"Name": "JobName", "Status": "Status"}.get(request.get("SortBy", ""), "CreationTime")
        chosen.sort(key=lambda item: item[key], reverse=request.get("SortOrder") == "Descending")
        return page("InferenceRecommendationsJobs", chosen, request)

    def list_steps(self, request: Mapping[str, Any]) -> dict[str, Any]:
        steps = self.get(request["JobName"]).shown_steps()
        wanted = request.get("Status")
        return page("Steps", [step for step in steps if wanted in (None, step["Status"])], request)

    def close(self) -> None:
        """Stops every job and waits until none runs."""
        for job in list(self._jobs.values()):
            job.runner.stop()
        with self._turn:
            pass

    def _run(self, job: RecommendationJob) -> None:
        with self._turn:
            try:
                self._run_steps(job)
            except Exception as error:  # every error: a job must not stay IN_PROGRESS for ever
                job.set("FAILED", failure_reason(error))
        log.info(f"job {job.name}: {_ended(job.status, job.failure_reason)}")
        self._tell(job, _ended(job.status, job.failure_reason))

    def _run_steps(self, job: RecommendationJob) -> None:
        runner = job.runner
        deadline = time.monotonic() + runner.plan.duration_s
        if not runner.stopped.is_set():
            check_room(self._settings.state)
            job.set("IN_PROGRESS")
            if self._host.roles is not None:
                calls = role_calls(job.request["InputConfig"], runner.plan, runner.container.role_arn)
                operation = "sagemaker:CreateInferenceRecommendationsJob"
                self._host.roles.require(job.request["RoleArn"], operation, calls)
            self._tell(job, job.status)
            log.info(f"job {job.name}: {len(job.steps)} test(s), one after another, on {machine.description()}")
            runner.payloads.parent.mkdir(parents=True, exist_ok=True)
            runner.payloads.write_bytes(fetch_object(runner.plan.payload_url, self._settings.account_id))
        for step in job.steps:
            if runner.stopped.is_set():
                step.status = "STOPPED" if step.status == "PENDING" else step.status
                continue
            backend: Any = cloudwatch_backends[self._settings.account_id][self._region]
            names = (job.name, step.endpoint_name, step.test.variant_name)
            publish = partial(publish_window, backend, *names, nvml.gpu_count(step.test.instance_type))
            runner.run(step, deadline - time.monotonic(), publish)
            self._tell(job, f"test on {step.name}: {_ended(step.status, step.failure_reason)}")
        with self._lock:
            job.set(*_outcome(job.steps, runner.stopped.is_set()))

    def _tell(self, job: RecommendationJob, message: str) -> None:
        logs = logs_backends[self._settings.account_id][self._region]
        put_lines(logs, LOG_GROUP, f"{job.name}/execution", [(time.time(), message)])


def tags_of(values: Mapping[str, str]) -> "list[dict[str, str]]":
    return [{"Key": key, "Value": value} for key, value in values.items()]


def _instances(job: RecommendationJob) -> Counter[str]:
    """Returns instance type → most instances of the job's own endpoints at a time."""
    types = Counter(step.test.instance_type for step in job.steps if isinstance(step.test, InstanceTest))
    parallel = (job.request["InputConfig"].get("ResourceLimit") or {}).get("MaxParallelOfTests", len(job.steps))
    return Counter({name: min(count, parallel) for name, count in types.items()})


def _ended(status: str, reason: str | None) -> str:
    return ": ".join(filter(None, (status, reason)))


def _outcome(steps: "list[JobStep]", stopped: bool) -> tuple[str, str | None]:
    if any(step.status == "COMPLETED" for step in steps) and not stopped:
        return "COMPLETED", None
    if stopped:
        return "STOPPED", None
    reasons = list(dict.fromkeys(step.failure_reason or "" for step in steps))
    if len(steps) == 1:
        return "FAILED", reasons[0]
    return "FAILED", f"All {len(steps)} tests failed. {' '.join(reasons)}"


def _matches(item: Mapping[str, Any], request: Mapping[str, Any]) -> bool:
    equal = ("Status", "ModelName", "ModelPackageVersionArn")
    for name in ("CreationTime", "LastModifiedTime"):
        for key, sign in ((f"{name}Before", 1), (f"{name}After", -1)):
            if (limit := request.get(key)) is not None:
                moment = limit if limit.tzinfo else limit.replace(tzinfo=UTC)
                if (moment - item[name]).total_seconds() * sign <= 0:
                    return False
    matching = all(request.get(f"{name}Equals") in (None, item.get(name)) for name in equal)
    return matching and request.get("NameContains", "") in item["JobName"]
