"""The plain account runs no container, and says so where moto would call a job Completed."""

import contextlib
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError
from moto.sagemaker.exceptions import ResourceInUseException, ValidationError
from moto.sagemaker.models import FakeProcessingJob

from local_aws.sagemaker.processing_jobs import ContainerRunner, ProcessingJobs
from tests.scripts.rehearsal.test_processing_jobs import request

ROLE = "arn:aws:iam::123456789012:role/jobs"


@pytest.mark.integration
def test_a_processing_job_is_refused_in_one_sentence(sagemaker: Any) -> None:
    with pytest.raises(ClientError) as refused:
        sagemaker.create_processing_job(**request("one", ROLE))
    assert refused.value.response["Error"]["Message"] == (
        "This local account cannot do this: CreateProcessingJob, because no container runs here."
    )
    assert sagemaker.list_processing_jobs()["ProcessingJobSummaries"] == []


def test_a_job_on_several_instances_is_refused_before_it_starts(tmp_path: Path) -> None:
    jobs = ProcessingJobs("123456789012", "us-east-1", tmp_path, ContainerRunner(command=["false"]), {})
    several = request("two", ROLE)
    several["ProcessingResources"]["ClusterConfig"]["InstanceCount"] = 2
    with pytest.raises(ValidationError, match="runs a job on one instance, and two asks for 2"):
        jobs.create(several)
    assert list(tmp_path.iterdir()) == []


class AskedTogether(dict[str, FakeProcessingJob]):
    """Lets nobody know whether a name is taken before another asks, too, or a moment has passed."""

    def __init__(self) -> None:
        super().__init__()
        self._both = threading.Barrier(2)

    def __contains__(self, name: object) -> bool:
        taken = super().__contains__(name)
        with contextlib.suppress(threading.BrokenBarrierError):
            self._both.wait(0.2)
        return taken


def test_of_two_requests_at_once_with_one_name_one_is_refused(tmp_path: Path) -> None:
    jobs = ProcessingJobs("123456789012", "us-east-1", tmp_path, ContainerRunner(command=["false"]), {})
    jobs.all = AskedTogether()
    with ThreadPoolExecutor(2) as callers:
        ends = [caller.exception() for caller in [callers.submit(jobs.create, request("one", ROLE)) for _ in range(2)]]
    jobs.close()
    assert [type(end) for end in ends if end] == [ResourceInUseException]
