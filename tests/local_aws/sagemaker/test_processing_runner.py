"""A processing job whose runner dies before it could say what became of the container."""

import sys
from pathlib import Path

import pytest

from local_aws.sagemaker import processing_jobs
from local_aws.sagemaker.processing_jobs import ContainerRunner, ProcessingJobs
from tests.local_aws.conftest import wait_until

REQUEST = {
    "ProcessingJobName": "dies",
    "RoleArn": "arn:aws:iam::123456789012:role/jobs",
    "AppSpecification": {"ImageUri": "ours:1"},
    "ProcessingResources": {"ClusterConfig": {"InstanceCount": 1}},
}
PROGRAM = "import sys; sys.exit('Traceback: no room')"


def test_the_job_fails_with_what_the_runner_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processing_jobs, "role_session", lambda *_: {})
    jobs = ProcessingJobs(
        "123456789012", "us-east-1", tmp_path, ContainerRunner(command=[sys.executable, "-c", PROGRAM]), {}
    )
    job = jobs.create(REQUEST)
    wait_until(lambda: job.processing_job_status != "InProgress")
    assert (job.processing_job_status, job.failure_reason) == (
        "Failed",
        "InternalServerError: what runs the container ended with exit status 1: Traceback: no room",
    )
