"""An account: moto's backends with the project's own in their places, and the processes that they start.

Call `install` before the server's first request, because moto makes its backends on first use.
"""

import importlib
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from types import SimpleNamespace
from typing import Any, NoReturn

from moto.applicationautoscaling.models import applicationautoscaling_backends
from moto.cloudformation.models import cloudformation_backends
from moto.cloudwatch.models import cloudwatch_backends
from moto.codebuild.responses import CodeBuildResponse
from moto.core.base_backend import BaseBackend
from moto.ecs.responses import EC2ContainerServiceResponse
from moto.iam.models import iam_backends
from moto.s3.exceptions import S3ClientError
from moto.s3.models import FakeKey, S3Backend, s3_backends
from moto.sagemaker.models import sagemaker_backends
from moto.settings import get_s3_default_key_buffer_size
from moto.stepfunctions.responses import StepFunctionResponse
from moto.sts.responses import TokenResponse

from local_aws import quotas as service_quotas
from local_aws.account_settings import AccountSettings
from local_aws.cloudformation import resource_types, template  # noqa: F401
from local_aws.cloudformation.resource_types import LocalIamBackend
from local_aws.cloudformation.stacks import LocalCloudFormationBackend, LocalCloudFormationResponse
from local_aws.cloudwatch import LocalCloudWatchBackend, LocalCloudWatchResponse
from local_aws.permissions.enforced import CALLS_FILE, PermissionLog, ServiceRoles
from local_aws.permissions.roles import LocalIamResponse
from local_aws.sagemaker.control_plane import LocalSageMakerBackend, LocalSageMakerResponse
from local_aws.sagemaker.endpoint import LocalEndpoint
from local_aws.sagemaker.endpoint_metrics import InvocationMetrics
from local_aws.sagemaker.model_host import ModelHost
from local_aws.scaling.scaler import Scaler
from local_aws.scaling.service import LocalScalingBackend, LocalScalingResponse

REFUSED: Mapping[Any, Mapping[str, str]] = {
    CodeBuildResponse: {"start_build": "StartBuild, because no build runs here"},
    EC2ContainerServiceResponse: {"run_task": "RunTask, because no task runs here"},
    StepFunctionResponse: {"start_execution": "StartExecution, because no step of a state machine runs here"},
    # moto answers these with AWS's example key, which everybody knows.
    TokenResponse: {
        "get_federation_token": "GetFederationToken; use AssumeRole",
        "get_session_token": "GetSessionToken; use AssumeRole",
    },
}


def _refusal(reason: str) -> Callable[[Any], NoReturn]:
    def refuse(response: Any) -> NoReturn:
        raise NotImplementedError(reason)

    return refuse


MAX_STORED_BYTES = 16 << 30
MAX_STORED_IN_MEMORY_BYTES = 2 << 30
"""Bound of the objects that moto keeps in memory, each less than `get_s3_default_key_buffer_size`."""


class LocalS3Backend(S3Backend):
    """Refuses what goes beyond its bounds; moto would take it until the disk or the memory is full."""

    def put_object(self, bucket_name: str, key_name: str, value: bytes, *more: Any, **named: Any) -> FakeKey:
        self._check_room(len(value))
        return super().put_object(bucket_name, key_name, value, *more, **named)

    def upload_part(self, bucket_name: str, multipart_id: str, part_id: int, value: bytes) -> FakeKey:
        self._check_room(len(value))
        return super().upload_part(bucket_name, multipart_id, part_id, value)

    def complete_multipart_upload(
        self, bucket_name: str, multipart_id: str, body: Iterator[tuple[int, str]]
    ) -> FakeKey | None:
        """Marks a checksum of checksums by the number of parts, as S3 does: moto's HeadObject leaves that out."""
        key = super().complete_multipart_upload(bucket_name, multipart_id, body)
        if key is not None and key.checksum_type == "COMPOSITE":
            key.checksum_value, key.checksum_type = f"{key.checksum_value}-{key.checksum_parts}", None
        return key

    def _check_room(self, more: int) -> None:
        sizes = [more, *(int(key.contentsize) for key in self._kept())]
        in_memory = sum(size for size in sizes if size <= get_s3_default_key_buffer_size())
        if sum(sizes) > MAX_STORED_BYTES or in_memory > MAX_STORED_IN_MEMORY_BYTES:
            raise S3ClientError(
                "EntityTooLarge",
                f"S3 of this local account holds at most {MAX_STORED_BYTES >> 30} GiB, of which "
                f"{MAX_STORED_IN_MEMORY_BYTES >> 30} GiB in small objects: delete objects first.",
            )

    def _kept(self) -> Iterator[FakeKey]:
        for bucket in list(self.buckets.values()):
            for versions in list(dict(bucket.keys).values()):
                yield from (each for each in versions if isinstance(each, FakeKey))
            for multipart in list(bucket.multiparts.values()):
                yield from list(multipart.parts.values())


class Account:
    """One account, used in one region; moto's other regions exist, too."""

    def __init__(self, settings: AccountSettings) -> None:
        self.settings = settings
        self.calls = PermissionLog(settings.state / CALLS_FILE)
        self.environment: dict[str, str] = {}
        roles = ServiceRoles(self.calls, settings.account_id, settings.region)
        self.host = ModelHost(settings, self.environment, roles)
        self.metrics: InvocationMetrics
        self._scaler: Scaler

    def install(self) -> None:
        template.install()
        service_quotas.install(self.settings.quotas)
        for response, operations in REFUSED.items():
            for name, reason in operations.items():
                setattr(response, name, _refusal(reason))
        _replace(cloudwatch_backends, LocalCloudWatchBackend, LocalCloudWatchResponse, finer=self.settings.quick)
        _replace(applicationautoscaling_backends, LocalScalingBackend, LocalScalingResponse)
        _replace(cloudformation_backends, LocalCloudFormationBackend, LocalCloudFormationResponse)
        _replace(iam_backends, LocalIamBackend, LocalIamResponse)
        _replace(s3_backends, LocalS3Backend)
        _replace(sagemaker_backends, LocalSageMakerBackend, LocalSageMakerResponse, host=self.host)
        account_id, region = self.settings.account_id, self.settings.region
        cloudwatch: Any = cloudwatch_backends[account_id][region]
        scaling: Any = applicationautoscaling_backends[account_id][region]
        self.metrics = InvocationMetrics(cloudwatch)
        self.metrics.start()
        self._scaler = Scaler(scaling, cloudwatch)
        self._scaler.start()

    def find_endpoint(self, name: str) -> LocalEndpoint | None:
        endpoint = sagemaker_backends[self.settings.account_id][self.settings.region].endpoints.get(name)
        return endpoint if isinstance(endpoint, LocalEndpoint) else None

    def close(self) -> None:
        """Stops jobs and endpoints, and returns when their processes have ended."""
        self._scaler.close()
        for backend in list(sagemaker_backends[self.settings.account_id].values()):
            if isinstance(backend, LocalSageMakerBackend):
                backend.close()
        self.host.close()
        self.metrics.close()


def _replace(backends: Any, backend: type[BaseBackend], response: Any = None, **settings: Any) -> None:
    """Puts a backend in the place of moto's, which is its base class. `response` answers its requests."""
    backends.clear()
    backends.backend = partial(backend, **settings)
    urls: Any = importlib.import_module(backend.__mro__[1].__module__.replace(".models", ".urls"))
    paths = urls.url_paths | ({"{0}/$": response.dispatch} if response else {})
    setattr(backend, "_url_module", SimpleNamespace(url_bases=urls.url_bases, url_paths=paths))  # noqa: B010 - a property
