"""moto's ECS, CodeBuild and Step Functions, corrected where they lose what was asked or make up what happened.

Nothing of them runs here: no task, no build, no step of a state machine. The APIs say so where a caller asks.
"""

import json
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
from moto.stepfunctions import urls as stepfunctions_urls
from moto.stepfunctions.models import StepFunctionBackend

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


def _dispatched_to(dispatch: Any, urls: Any) -> Any:
    """Returns moto's table of a service's URLs with our response class behind each."""
    return SimpleNamespace(url_bases=urls.url_bases, url_paths=dict.fromkeys(urls.url_paths, dispatch))
