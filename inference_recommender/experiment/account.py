"""What an experiment asks of AWS besides its jobs. `aws.ExperimentAws` is the adapter; tests bring their own."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from inference_recommender.service import Service


class Account(Service, Protocol):
    """Every method raises `AwsUnavailable` where the service is not there."""

    def upload_archive(self, url: str, file: Path) -> None:
        """Put a file at an s3:// URL, unless it is there already with that size."""

    def make_model(self, request: Mapping[str, Any]) -> None:
        """CreateModel; a model of that name and archive is taken as it is. Raises `ModelTaken`."""

    def delete_model(self, name: str) -> None:
        """Also where there is none."""
