"""moto's ECS, CodeBuild, Step Functions, S3 and STS, corrected where they lose what was asked or make up what happened.

No task, no build and no step of a state machine runs here, and the APIs say so where a caller asks. S3 is bounded, and
STS hands out no key that everybody knows.
"""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, NoReturn

from moto.codebuild import urls as codebuild_urls
from moto.codebuild.exceptions import ResourceAlreadyExistsException, ResourceNotFoundException
from moto.codebuild.models import CodeBuildBackend
from moto.codebuild.responses import CodeBuildResponse
from moto.core.responses import ActionResult, EmptyResult
from moto.core.utils import camelcase_to_underscores
from moto.ecs import urls as ecs_urls
from moto.ecs.models import EC2ContainerServiceBackend
from moto.ecs.responses import EC2ContainerServiceResponse
from moto.s3 import urls as s3_urls
from moto.s3.exceptions import S3ClientError
from moto.s3.models import FakeKey, S3Backend
from moto.settings import get_s3_default_key_buffer_size
from moto.stepfunctions import urls as stepfunctions_urls
from moto.stepfunctions.models import StepFunctionBackend
from moto.sts import urls as sts_urls
from moto.sts.models import STSBackend

from local_aws import service_model

Project = dict[str, Any]

_KEPT_OF_A_SERVICE = (
    "availabilityZoneRebalancing",
    "capacityProviderStrategy",
    "deploymentConfiguration",
    "enableECSManagedTags",
    "enableExecuteCommand",
    "healthCheckGracePeriodSeconds",
    "loadBalancers",
    "networkConfiguration",
    "placementConstraints",
    "placementStrategy",
)
"""Members of CreateService and UpdateService that moto forgets."""


class LocalCodeBuildBackend(CodeBuildBackend):
    """Keeps projects as they were asked for: moto knows neither a pipeline's source nor the newer hosts."""

    def __init__(self, region_name: str, account_id: str) -> None:
        super().__init__(region_name, account_id)
        self.projects: dict[str, Project] = {}

    @property
    def _url_module(self) -> Any:
        return _dispatched_to(LocalCodeBuildResponse.dispatch, codebuild_urls)

    def arn(self, name: str) -> str:
        return f"arn:aws:codebuild:{self.region_name}:{self.account_id}:project/{name}"

    def create(self, request: Project) -> Project:
        name = request["name"]
        if name in self.projects:
            raise ResourceAlreadyExistsException(f"Project already exists: {self.arn(name)}")
        now = datetime.now(UTC)
        self.projects[name] = {**request, "arn": self.arn(name), "created": now, "lastModified": now}
        return self.projects[name]

    def update(self, request: Project) -> Project:
        name = request["name"]
        if name not in self.projects:
            raise ResourceNotFoundException(f"Project cannot be found: {self.arn(name)}")
        self.projects[name] |= {**request, "lastModified": datetime.now(UTC)}
        return self.projects[name]


class LocalCodeBuildResponse(CodeBuildResponse):
    @property
    def _local(self) -> LocalCodeBuildBackend:
        backend = self.codebuild_backend
        assert isinstance(backend, LocalCodeBuildBackend), "installed before the server starts"
        return backend

    def create_project(self) -> ActionResult:
        return ActionResult({"project": self._local.create(self._checked())})

    def update_project(self) -> ActionResult:
        return ActionResult({"project": self._local.update(self._checked())})

    def list_projects(self) -> ActionResult:
        names = sorted(self._local.projects)
        return ActionResult({"projects": names} if names else {})

    def batch_get_projects(self) -> ActionResult:
        known = self._local.projects
        names = [name.rpartition("project/")[2] for name in self._get_param("names")]
        missing = [name for name in names if name not in known]
        found = {"projects": [known[name] for name in names if name in known]}
        return ActionResult({**found, "projectsNotFound": missing} if missing else found)

    def start_build(self) -> NoReturn:
        raise NotImplementedError("StartBuild, because no build runs here")

    def delete_project(self) -> EmptyResult:
        self._local.projects.pop(self._get_param("name"), None)
        return EmptyResult()

    def _checked(self) -> Project:
        request: Project = json.loads(self.body)
        service_model.check("codebuild", self._get_action(), request)
        return request


class LocalEcsBackend(EC2ContainerServiceBackend):
    """Starts no task: a service's desired count stays pending, and DescribeServices says so."""

    @property
    def _url_module(self) -> Any:
        return _dispatched_to(LocalEcsResponse.dispatch, ecs_urls)

    @staticmethod
    def _validate_container_defs(
        memory: str | None, container_definitions: list[dict[str, Any]], requires_compatibilities: list[str] | None
    ) -> None:
        """Accepts a reservation without a limit, as EC2 does; moto wants a limit for every task meant for EC2."""
        others = [each for each in requires_compatibilities or [] if each != "EC2"]
        EC2ContainerServiceBackend._validate_container_defs(memory, container_definitions, others)

    def list_clusters(self) -> list[str]:
        """Lists active clusters only. A deleted one can still be described, as INACTIVE."""
        return [arn for arn in super().list_clusters() if self._get_cluster(arn).status == "ACTIVE"]

    def describe_capacity_providers(self, names: list[str] | None) -> Any:
        """Describes all providers where none is named."""
        return super().describe_capacity_providers(names or list(self.capacity_providers))


class LocalEcsResponse(EC2ContainerServiceResponse):
    def create_service(self) -> ActionResult:
        return self._kept(super().create_service())

    def update_service(self) -> ActionResult:
        return self._kept(super().update_service())

    def _kept(self, answer: ActionResult) -> ActionResult:
        request: dict[str, Any] = json.loads(self.body)
        service = answer.result["service"]  # type: ignore[index]
        for name in _KEPT_OF_A_SERVICE:
            if name in request:
                setattr(service, camelcase_to_underscores(name), request[name])
        return answer


class LocalStepFunctionBackend(StepFunctionBackend):
    """Refuses executions: moto would make one up, with a history of steps that never ran."""

    @property
    def _url_module(self) -> Any:
        return stepfunctions_urls

    def start_execution(self, *arguments: Any, **named: Any) -> NoReturn:
        raise NotImplementedError("StartExecution, because no step of a state machine runs here")


MAX_STORED_BYTES = 16 << 30
"""Bound of all objects of S3. moto keeps large ones in temporary files, which end with the account."""
MAX_STORED_IN_MEMORY_BYTES = 2 << 30
"""Bound of the objects that moto keeps in memory, each less than `get_s3_default_key_buffer_size`."""


class LocalS3Backend(S3Backend):
    """Refuses what goes beyond its bounds; moto would take it until the disk or the memory is full."""

    @property
    def _url_module(self) -> Any:
        return s3_urls

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


class LocalStsBackend(STSBackend):
    """Refuses the sessions for which moto hands out AWS's example key, which everybody knows."""

    @property
    def _url_module(self) -> Any:
        return sts_urls

    def get_session_token(self, duration: int) -> NoReturn:
        raise NotImplementedError("GetSessionToken; use AssumeRole")

    def get_federation_token(self, name: str | None, duration: int) -> NoReturn:
        raise NotImplementedError("GetFederationToken; use AssumeRole")


def _dispatched_to(dispatch: Any, urls: Any) -> Any:
    """Returns moto's table of a service's URLs with our response class behind each."""
    return SimpleNamespace(url_bases=urls.url_bases, url_paths=dict.fromkeys(urls.url_paths, dispatch))
