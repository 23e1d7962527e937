"""An account: moto's backends with the project's own in their places, and the processes that they start.

Call `install` before the server's first request, because moto makes its backends on first use.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from moto.applicationautoscaling.models import applicationautoscaling_backends
from moto.cloudformation.models import cloudformation_backends
from moto.cloudwatch.models import cloudwatch_backends
from moto.core.models import DEFAULT_ACCOUNT_ID
from moto.iam.models import iam_backends
from moto.logs.models import LogsBackend, logs_backends
from moto.s3.models import s3_backends
from moto.sagemaker.models import sagemaker_backends

from inference_recommender.load_generator.process import COMMAND
from local_aws.cloudformation import resource_types, template  # noqa: F401
from local_aws.cloudformation.role_type import LocalIamBackend
from local_aws.cloudformation.stacks import LocalCloudFormationBackend
from local_aws.cloudwatch import LocalCloudWatchBackend
from local_aws.moto_services import LocalS3Backend, refuse_operations
from local_aws.permissions.enforced import CALLS_FILE, PermissionLog
from local_aws.permissions.service_roles import ServiceRoles
from local_aws.process.neuron import NeuronStandIn
from local_aws.sagemaker.control_plane import LocalSageMakerBackend
from local_aws.sagemaker.endpoint import LocalEndpoint
from local_aws.sagemaker.endpoint_metrics import InvocationMetrics
from local_aws.sagemaker.model_host import ModelHost
from local_aws.sagemaker.processing_jobs import ContainerRunner, ProcessingJobs
from local_aws.sagemaker.recommendation_jobs import RecommendationJobs
from local_aws.scaling.scaler import Scaler
from local_aws.scaling.service import LocalScalingBackend
from local_aws.scaling.variant_capacity import VariantCapacity


@dataclass(frozen=True, kw_only=True, slots=True)
class AccountSettings:
    state: Path
    region: str
    toolchain: Path
    most_servers: int = 1
    """Most servers of a variant."""
    generator: Sequence[str] = COMMAND
    neuron: NeuronStandIn | None = None
    """Replaces Inferentia's chips. Without it, their instance types are rejected."""
    processing: ContainerRunner | None = None
    """Runs the containers of processing jobs. Without it, CreateProcessingJob is rejected."""
    images_must_exist: bool = False
    """Whether a model's image in this account's registry has to exist. Nothing pulls it."""
    account_id: str = DEFAULT_ACCOUNT_ID


class Account:
    """One account, used in one region; moto's other regions exist, too."""

    def __init__(self, settings: AccountSettings) -> None:
        self.settings = settings
        self.calls = PermissionLog(settings.state / CALLS_FILE)
        self.environment: dict[str, str] = {}
        """The account's exports for its own processes. The server fills them in."""
        self.host = ModelHost(
            account_id=settings.account_id,
            state=settings.state,
            toolchain=settings.toolchain,
            neuron=settings.neuron,
            environment=self.environment,
            most_servers=settings.most_servers,
            roles=ServiceRoles(self.calls, settings.account_id, settings.region),
        )
        self._jobs: list[RecommendationJobs | ProcessingJobs] = []
        self._metrics: InvocationMetrics | None = None
        self._scaler: Scaler | None = None

    def install(self) -> None:
        template.install()
        refuse_operations()
        _replace(cloudwatch_backends, LocalCloudWatchBackend)
        _replace(applicationautoscaling_backends, self._scaling)
        _replace(cloudformation_backends, LocalCloudFormationBackend)
        _replace(iam_backends, LocalIamBackend)
        _replace(s3_backends, LocalS3Backend)
        _replace(sagemaker_backends, self._sagemaker)
        self._metrics = InvocationMetrics(self._cloudwatch(self.settings.region))
        self._metrics.start()
        scaling = applicationautoscaling_backends[self.settings.account_id][self.settings.region]
        assert isinstance(scaling, LocalScalingBackend), "just installed"
        self._scaler = Scaler(scaling, self._cloudwatch(self.settings.region))
        self._scaler.start()

    @property
    def metrics(self) -> InvocationMetrics:
        assert self._metrics is not None, "install() comes first"
        return self._metrics

    def find_endpoint(self, name: str) -> LocalEndpoint | None:
        return self._endpoint(name, self.settings.region)

    def _endpoint(self, name: str, region: str) -> LocalEndpoint | None:
        endpoint = sagemaker_backends[self.settings.account_id][region].endpoints.get(name)
        return endpoint if isinstance(endpoint, LocalEndpoint) else None

    def close(self) -> None:
        """Stops jobs and endpoints, and returns when their processes have ended."""
        if self._scaler is not None:
            self._scaler.close()
        for jobs in self._jobs:
            jobs.close()
        self.host.close()
        self.metrics.close()

    def _sagemaker(self, region_name: str, account_id: str) -> LocalSageMakerBackend:
        jobs = RecommendationJobs(
            self.host,
            region_name,
            lambda: self._cloudwatch(region_name),
            lambda: self._logs(region_name),
            self.settings.generator,
        )
        settings = self.settings
        processing = ProcessingJobs(account_id, region_name, settings.state, settings.processing, self.environment)
        self._jobs += [jobs, processing]
        return LocalSageMakerBackend(
            region_name, account_id, self.host, jobs, processing, images_must_exist=settings.images_must_exist
        )

    def _scaling(self, region_name: str, account_id: str) -> LocalScalingBackend:
        def update(name: str, desired: list[dict[str, object]]) -> object:
            return sagemaker_backends[account_id][region_name].update_endpoint_weights_and_capacities(name, desired)

        capacity = VariantCapacity(lambda name: self._endpoint(name, region_name), update)
        return LocalScalingBackend(region_name, account_id, capacity, lambda: self._cloudwatch(region_name))

    def _logs(self, region: str) -> LogsBackend:
        return logs_backends[self.settings.account_id][region]

    def _cloudwatch(self, region: str) -> LocalCloudWatchBackend:
        backend = cloudwatch_backends[self.settings.account_id][region]
        assert isinstance(backend, LocalCloudWatchBackend), "install() comes first"
        return backend


def _replace(backends: Any, make: Callable[..., Any]) -> None:
    """Makes moto call `make` for the backend of each region."""
    backends.clear()
    backends.backend = make
