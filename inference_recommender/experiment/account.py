"""What an experiment asks of AWS besides its jobs. `aws.ExperimentAws` is the adapter; tests bring their own."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from inference_recommender.jobs.service import Service
from inference_recommender.measurement import DeployedEndpoint


class Account(Service, Protocol):
    """Every method raises `AwsUnavailable` where the service is not there."""

    def upload_archive(self, url: str, file: Path) -> None:
        """Put a file at an s3:// URL, unless it is there already with that size."""

    def make_model(self, request: Mapping[str, Any]) -> None:
        """CreateModel; a model of that name and archive is taken as it is. Raises `ModelTaken`."""

    def delete_model(self, name: str) -> None:
        """Also where there is none."""

    def make_endpoint(self, config: Mapping[str, Any], endpoint: Mapping[str, Any]) -> None:
        """CreateEndpointConfig and CreateEndpoint; what is there of those names is taken as it is."""

    def endpoint_status(self, name: str) -> tuple[str, str | None]:
        """EndpointStatus and FailureReason."""

    def delete_endpoint(self, name: str) -> None:
        """With its configuration of the same name; also where there is none."""

    def deployed_endpoint(self, name: str) -> DeployedEndpoint:
        """Raises `UnsuitableEndpoint`."""

    def runtime_host(self) -> str:
        """To which endpoints are asked."""
