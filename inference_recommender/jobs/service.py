"""What a run asks of AWS. `aws.Aws` is the adapter; tests bring their own."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from inference_recommender.measurement import DeployedEndpoint, Series


class Service(Protocol):
    """Responses have the API's shapes. Every method raises `AwsUnavailable` where the service is not there."""

    @property
    def region(self) -> str: ...

    def upload(self, url: str, body: bytes) -> None:
        """Put `body` at an s3:// URL."""

    def create_job(self, request: Mapping[str, Any]) -> str:
        """The job's ARN. Raises `JobNameTaken`."""

    def describe_job(self, name: str) -> dict[str, Any]: ...

    def job_steps(self, name: str) -> list[dict[str, Any]]: ...

    def stop_job(self, name: str) -> None: ...

    def job_tags(self, job_arn: str) -> dict[str, str]: ...

    def measured_on(self, job_arn: str) -> str | None:
        """What an account that is not AWS says it measured on; None on AWS itself."""

    def container_log(self, job_name: str, endpoint_name: str) -> list[str]:
        """The last lines of a test's container; none where there is no log or it may not be read."""

    def series(
        self, describe: Mapping[str, Any], steps: Sequence[Mapping[str, Any]], deployed: DeployedEndpoint | None
    ) -> dict[str, Series]:
        """The whole course of every test of a job, by endpoint name; `deployed` is an existing one that it tests."""

    def latest_series(self, describe: Mapping[str, Any], steps: Sequence[Mapping[str, Any]]) -> list[Series]:
        """The last moments of every test under way."""
