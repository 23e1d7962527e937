"""An experiment before anything is sent, and the port to what it asks of AWS besides its jobs."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from inference_recommender.experiment.plan import Experiment
from inference_recommender.experiment.resources import Access
from inference_recommender.jobs.service import Service
from inference_recommender.measurement import DeployedEndpoint
from workloads import ModelArtifact, WorkloadFolder


@dataclass(frozen=True, kw_only=True, slots=True)
class Prepared:
    """An experiment before anything is sent."""

    experiment: Experiment
    source: WorkloadFolder
    artifacts: Mapping[str, ModelArtifact]
    """Keyed by variant."""
    archives: Mapping[str, Path]
    """The model archives, keyed by variant."""
    access: Access


class Account(Service, Protocol):
    """The port to AWS. Every method raises `AwsUnavailable` where the service is not there."""

    def upload_archive(self, url: str, file: Path) -> None:
        """Puts a file at an s3:// URL, unless one of that size is there already."""

    def make_model(self, request: Mapping[str, Any]) -> None:
        """Calls CreateModel, or takes an existing model of that name and archive."""

    def delete_model(self, name: str) -> None:
        """Succeeds also where there is no such model."""

    def make_endpoint(self, config: Mapping[str, Any], endpoint: Mapping[str, Any]) -> None:
        """Calls CreateEndpointConfig and CreateEndpoint, or takes what exists under those names."""

    def endpoint_status(self, name: str) -> tuple[str, str | None]:
        """Returns EndpointStatus and FailureReason."""

    def delete_endpoint(self, name: str) -> None:
        """Deletes an endpoint and its configuration of the same name. Succeeds also where there is none."""

    def deployed_endpoint(self, name: str) -> DeployedEndpoint:
        """Raises `AwsUnavailable` for an endpoint that cannot be measured."""

    def runtime_host(self) -> str:
        """Returns the host that receives the requests of endpoints."""
