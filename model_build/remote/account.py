"""What a remote build asks of AWS. `aws.Aws` is the adapter; tests bring their own."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol


class Account(Protocol):
    """Responses have the API's shapes. Every method raises `AwsUnavailable` where the service is not there."""

    @property
    def region(self) -> str: ...

    def default_bucket(self) -> str:
        """SageMaker's own bucket of the account and region."""

    def upload(self, url: str, file: Path, kms_key: str | None) -> None:
        """Put a file at an s3:// URL."""

    def files(self, url: str) -> Sequence[str]:
        """The names of all files below an s3:// folder, relative to it."""

    def download(self, url: str, file: Path) -> None: ...

    def create_job(self, request: Mapping[str, Any]) -> None:
        """CreateProcessingJob. Raises `JobNameTaken` or `NoQuota`."""

    def describe_job(self, name: str) -> Mapping[str, Any]: ...

    def stop_job(self, name: str) -> None: ...

    def log_tail(self, name: str, lines: int) -> Sequence[str]:
        """The last lines of a processing job's log; empty when it wrote none."""
