"""SageMaker Processing jobs: their statuses and descriptions in the API's shapes, one child process for each job.

A `ContainerRunner`'s command gets the job's request in a file and a session of the job's role in its environment. It
fetches the inputs, runs the container, uploads, and writes `outcome.json`. Without a runner the account rejects jobs.
"""

import json
import logging
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from moto.sagemaker.exceptions import ResourceInUseException, ValidationError
from moto.sagemaker.models import FakeProcessingJob

from local_aws.account_settings import AccountSettings, ContainerRunner
from local_aws.process.guarded_process import GuardedProcess
from local_aws.process.local_account import role_session
from local_aws.sagemaker.endpoint import failure_reason, shortened
from local_aws.state_folder import check_room
from workloads import CODE, ROOT

REQUEST, OUTCOME = "request.json", "outcome.json"
"""The file that a runner reads, and the one that it writes: `exit_status`, `message` or `failure`."""
ALGORITHM_ERROR = "AlgorithmError: See job logs for more information"
GRACE_S = 30.0
"""Seconds between SIGTERM and SIGKILL; SageMaker gives 120."""
_ENDED = ("Completed", "Failed", "Stopped")
log = logging.getLogger(__name__)


class LocalProcessingJob(FakeProcessingJob):
    """One job. moto's lists read its attributes."""

    def __init__(self, request: Mapping[str, Any], account_id: str, region: str) -> None:
        super().__init__(
            app_specification=request["AppSpecification"],
            experiment_config=request.get("ExperimentConfig") or {},
            network_config=request.get("NetworkConfig") or {},
            processing_inputs=request.get("ProcessingInputs") or [],
            processing_job_name=request["ProcessingJobName"],
            processing_output_config=request.get("ProcessingOutputConfig") or {},
            account_id=account_id,
            region_name=region,
            role_arn=request["RoleArn"],
            tags=request.get("Tags") or [],
            stopping_condition=request.get("StoppingCondition") or {},
        )
        self.request = request
        self.processing_job_status = "InProgress"
        self.processing_end_time: datetime | None = None  # type: ignore[assignment]  # moto ends each at once
        self.exit_message: str | None = None
        self.failure_reason: str | None = None
        self.stopped = threading.Event()
        self.process: GuardedProcess | None = None
        self.turn = threading.Lock()

    @property
    def response_object(self) -> dict[str, Any]:
        """Returns the answer of DescribeProcessingJob."""
        optional = {
            "ExitMessage": self.exit_message,
            "FailureReason": self.failure_reason,
            "ProcessingEndTime": self.processing_end_time,
        }
        return {
            **{name: value for name, value in self.request.items() if value and name != "Tags"},
            **{name: value for name, value in optional.items() if value is not None},
            "ProcessingJobArn": self.arn,
            "ProcessingJobStatus": self.processing_job_status,
            "CreationTime": self.creation_time,
            "ProcessingStartTime": self.creation_time,
            "LastModifiedTime": self.last_modified_time,
        }

    def stop(self) -> None:
        with self.turn:
            self.stopped.set()
            if self.processing_job_status == "InProgress":
                self.processing_job_status = "Stopping"
            if self.process is not None:
                self.process.request_stop()

    def end(self, outcome: Mapping[str, Any]) -> None:
        with self.turn:
            self.exit_message = outcome.get("message") or None
            failure = outcome.get("failure") or (ALGORITHM_ERROR if outcome.get("exit_status") else None)
            if self.stopped.is_set():
                self.processing_job_status = "Stopped"
            elif failure:
                self.processing_job_status, self.failure_reason = "Failed", shortened(failure)
            else:
                self.processing_job_status = "Completed"
            self.processing_end_time = self.last_modified_time = datetime.now(UTC).replace(tzinfo=None)


class ProcessingJobs:
    """The jobs of one region. `environment` are the account's exports, once it serves."""

    def __init__(self, settings: AccountSettings, region: str, environment: Mapping[str, str]) -> None:
        self._settings = settings
        self._region = region
        self._environment = environment
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()
        self.all: dict[str, FakeProcessingJob] = {}

    def create(self, request: Mapping[str, Any]) -> LocalProcessingJob:
        """Checks, registers and starts a job. Raises moto's exceptions in the service's words."""
        if (runner := self._settings.processing) is None:
            raise NotImplementedError("CreateProcessingJob, because no container runs here")
        job = LocalProcessingJob(request, self._settings.account_id, self._region)
        name, cluster = request["ProcessingJobName"], request["ProcessingResources"]["ClusterConfig"]
        if cluster["InstanceCount"] != 1:
            raise ValidationError(
                f"This local account runs a job on one instance, and {name} asks for {cluster['InstanceCount']}."
            )
        thread = threading.Thread(target=self._run, args=(job, runner), name=f"processing-{name}", daemon=True)
        with self._lock:
            if name in self.all:
                raise ResourceInUseException(
                    message=f"Job name must be unique within an AWS account and region, and a job with this name "
                    f"already exists ({job.arn})"
                )
            self.all[name] = job
            self._threads.append(thread)
            thread.start()
        return job

    def instances(self) -> Counter[str]:
        """Returns instance type → instances of the jobs that run."""
        clusters = [
            job.request["ProcessingResources"]["ClusterConfig"]
            for job in map(self.get, list(self.all))
            if job.processing_job_status not in _ENDED
        ]
        return Counter(each["InstanceType"] for each in clusters)

    def get(self, name: str) -> LocalProcessingJob:
        job = self.all.get(name)
        if not isinstance(job, LocalProcessingJob):
            arn = LocalProcessingJob.arn_formatter(name, self._settings.account_id, self._region)
            raise ValidationError(f"Could not find requested job with name: {arn}")
        return job

    def stop(self, name: str) -> None:
        job = self.get(name)
        if job.processing_job_status in _ENDED:
            raise ValidationError(
                f"The request was rejected because the processing job is in status {job.processing_job_status}."
            )
        job.stop()

    def close(self) -> None:
        """Stops every job and waits until none runs."""
        with self._lock:
            names, threads = list(self.all), list(self._threads)
        for name in names:
            self.get(name).stop()
        for thread in threads:
            thread.join()

    def _run(self, job: LocalProcessingJob, runner: ContainerRunner) -> None:
        try:
            outcome = self._outcome(job, runner)
        except Exception as error:  # every error: a job must not stay InProgress for ever
            outcome = {"failure": f"InternalServerError: {failure_reason(error)}"}
        job.end(outcome)
        log.info(f"processing job {job.processing_job_name}: {job.processing_job_status} {job.failure_reason or ''}")

    def _outcome(self, job: LocalProcessingJob, runner: ContainerRunner) -> Mapping[str, Any]:
        check_room(self._settings.state)
        folder = self._settings.state / "processing" / job.processing_job_name
        folder.mkdir(parents=True)
        file = folder / REQUEST
        file.write_text(json.dumps(job.request, indent=2), "utf-8")
        session = role_session(self._environment, job.role_arn, "SageMaker")
        with (folder / "runner.log").open("ab") as said:
            with job.turn:
                if job.stopped.is_set():
                    return {}
                job.process = GuardedProcess.start(
                    [*runner.command, file],
                    environment={
                        "PATH": f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin",
                        "PYTHONPATH": str(CODE),
                        **runner.environment,
                        **session,
                    },
                    stdout=said,
                    stderr=said,
                    working_directory=ROOT,
                    grace_s=GRACE_S,
                )
            log.info(f"processing job {job.processing_job_name} runs as process {job.process.pid}, in {folder}")
            limit = job.stopping_condition.get("MaxRuntimeInSeconds")
            try:
                status = job.process.wait(limit)
            except subprocess.TimeoutExpired:
                log.info(f"processing job {job.processing_job_name} ran for its {limit} s and is stopped")
                job.stop()
                status = job.process.wait()
        if (left := folder / OUTCOME).exists():
            found: dict[str, Any] = json.loads(left.read_text("utf-8"))
            return found
        last = (folder / "runner.log").read_text("utf-8", "replace").strip()[-600:]
        return {"failure": f"InternalServerError: what runs the container ended with exit status {status}: {last}"}
