"""AWS as the harness needs it: Processing jobs and what they leave in S3, and where an endpoint's requests go.

What it shares with a job's run is `inference_recommender.jobs.aws`.
"""

from collections.abc import Mapping
from typing import Any

from aws_api.errors import translate_aws_errors
from inference_recommender.jobs.aws import Aws


class LoadTestAws(Aws):
    def runtime_host(self) -> str:
        """To which endpoints are asked."""
        url: str = self.client("sagemaker-runtime").meta.endpoint_url
        return url.partition("://")[2].partition("/")[0].partition(":")[0]

    def create_processing_job(self, request: Mapping[str, Any]) -> None:
        with translate_aws_errors("CreateProcessingJob"):
            self._sagemaker.create_processing_job(**request)

    def describe_processing_job(self, name: str) -> Mapping[str, Any]:
        with translate_aws_errors("DescribeProcessingJob"):
            found: Mapping[str, Any] = self._sagemaker.describe_processing_job(ProcessingJobName=name)
        return found

    def stop_processing_job(self, name: str) -> None:
        with translate_aws_errors("StopProcessingJob"):
            self._sagemaker.stop_processing_job(ProcessingJobName=name)

    def files(self, url: str) -> tuple[str, ...]:
        bucket, prefix = _place(f"{url.rstrip('/')}/")
        with translate_aws_errors("ListObjectsV2"):
            pages = self.client("s3").get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix)
            return tuple(item["Key"].removeprefix(prefix) for page in pages for item in page.get("Contents", []))

    def read(self, url: str) -> bytes:
        bucket, key = _place(url)
        with translate_aws_errors("GetObject"):
            return bytes(self.client("s3").get_object(Bucket=bucket, Key=key)["Body"].read())


def _place(url: str) -> tuple[str, str]:
    bucket, _, key = url.removeprefix("s3://").partition("/")
    return bucket, key
