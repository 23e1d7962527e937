"""The plain account runs no container, and says so where moto would call a job Completed."""

import sys
from pathlib import Path
from typing import Any

import pytest
from moto.sagemaker.exceptions import ResourceInUseException, ValidationError

from local_aws.account_settings import AccountSettings, ContainerRunner
from local_aws.sagemaker import processing_jobs
from local_aws.sagemaker.processing_jobs import ProcessingJobs
from tests.local_aws.conftest import refused, wait_until
from tests.scripts.rehearsal.test_processing_jobs import request

ROLE = "arn:aws:iam::123456789012:role/jobs"


def processing(folder: Path, *command: str) -> ProcessingJobs:
    """Returns the jobs of an account that runs a container by the command."""
    runner = ContainerRunner(command=command)
    settings = AccountSettings(state=folder, region="us-east-1", toolchain=folder, processing=runner)
    return ProcessingJobs(settings, "us-east-1", {})


@pytest.mark.integration
def test_a_processing_job_is_refused_in_one_sentence(sagemaker: Any) -> None:
    assert refused(sagemaker.create_processing_job, **request("one", ROLE))[2] == (
        "This local account cannot do this: CreateProcessingJob, because no container runs here."
    )
    assert sagemaker.list_processing_jobs()["ProcessingJobSummaries"] == []


def test_a_job_on_several_instances_is_refused_before_it_starts(tmp_path: Path) -> None:
    jobs = processing(tmp_path, "false")
    several = request("two", ROLE)
    several["ProcessingResources"]["ClusterConfig"]["InstanceCount"] = 2
    with pytest.raises(ValidationError, match="runs a job on one instance, and two asks for 2"):
        jobs.create(several)
    assert list(tmp_path.iterdir()) == []


def test_a_runner_that_dies_fails_its_job_and_its_name_stays_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processing_jobs, "role_session", lambda *_: {})
    jobs = processing(tmp_path, sys.executable, "-c", "import sys; sys.exit('Traceback: no room')")
    job = jobs.create(request("dies", ROLE))
    with pytest.raises(ResourceInUseException):
        jobs.create(request("dies", ROLE))
    wait_until(lambda: job.processing_job_status != "InProgress")
    assert (job.processing_job_status, job.failure_reason) == (
        "Failed",
        "InternalServerError: what runs the container ended with exit status 1: Traceback: no room",
    )
