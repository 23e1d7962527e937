"""An experiment before anything is sent, and the port to what it asks of AWS besides its jobs."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol

from aws_api.sagemaker import EndpointDescription
from inference_recommender.experiment.plan import Experiment
from inference_recommender.experiment.resources import Access
from inference_recommender.measure.job_service import JobService
from inference_recommender.measurement import Measurement
from workloads import ModelArtifact, WorkloadFolder
from workloads.instances import instance_shape


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


class Account(JobService, Protocol):
    """The port to AWS. Every method raises `AwsUnavailable` where the service is not there."""

    def upload_archive(self, url: str, file: Path) -> None:
        """Puts a file at an s3:// URL, unless one of that size is there already."""

    def make_model(self, request: Mapping[str, Any]) -> None:
        """Calls CreateModel, or takes an existing model of that name and archive."""

    def delete_model(self, name: str) -> None:
        """Succeeds also where there is no such model."""

    def make_endpoint(self, config: Mapping[str, Any], endpoint: Mapping[str, Any]) -> None:
        """Calls CreateEndpointConfig and CreateEndpoint, or takes what exists under those names."""

    def describe_endpoint(self, name: str) -> dict[str, Any]: ...

    def delete_endpoint(self, name: str) -> None:
        """Deletes an endpoint and its configuration of the same name. Succeeds also where there is none."""

    def endpoint_description(self, name: str) -> EndpointDescription: ...

    def gpu_utilization(self, endpoint: str, variant: str, start: datetime, end: datetime) -> float | None:
        """Returns the mean utilisation of the busiest minute, 0 to 100 × GPUs; None where there is no metric."""


def with_gpus(
    measured: Measurement, production_variant: str | None, began: datetime, ended: datetime, account: Account
) -> Measurement:
    """Adds the utilisation of a GPU, where the instance has any and CloudWatch tells."""
    shape = instance_shape(measured.instance_type)
    if not shape or not shape.gpus or production_variant is None:
        return measured
    of_all = account.gpu_utilization(measured.endpoint_name, production_variant, began, ended)
    of_one = None if of_all is None else of_all / shape.gpus
    return measured.model_copy(update={"gpu_utilization_percent": of_one})
