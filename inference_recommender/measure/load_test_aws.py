"""The AWS adapter of load tests: Processing jobs, what they leave in S3, and the host that endpoints are asked at."""

from collections.abc import Mapping, Sequence
from typing import Any

from aws_api import processing_jobs, s3
from aws_api.processing_jobs import ProcessingJob
from inference_recommender.measure.aws import Aws


class LoadTestAws(Aws):
    """A `FleetAccount`."""

    def runtime_host(self) -> str:
        """Returns the host that receives the requests of endpoints, without its port."""
        url: str = self.client("sagemaker-runtime").meta.endpoint_url
        return url.partition("://")[2].partition("/")[0].partition(":")[0]

    def create_processing_job(self, job: ProcessingJob) -> None:
        processing_jobs.create(self, job)

    def describe_processing_job(self, name: str) -> Mapping[str, Any]:
        return processing_jobs.describe(self, name)

    def stop_processing_job(self, name: str) -> None:
        processing_jobs.stop(self, name)

    def files(self, url: str) -> Sequence[str]:
        return s3.list_files(self, url)

    def read(self, url: str) -> bytes:
        return s3.read(self, url)
