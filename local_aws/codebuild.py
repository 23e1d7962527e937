"""moto's CodeBuild with projects that are kept as they were asked for: of a pipeline, on any host, with any image.

moto knows neither a pipeline's source nor the newer hosts, and makes up builds that succeed; here none is started.
"""

import json
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, NoReturn

from moto.codebuild import urls
from moto.codebuild.exceptions import ResourceAlreadyExistsException, ResourceNotFoundException
from moto.codebuild.models import CodeBuildBackend
from moto.codebuild.responses import CodeBuildResponse
from moto.core.responses import ActionResult, EmptyResult

from local_aws import service_model

Project = dict[str, Any]


class LocalCodeBuildBackend(CodeBuildBackend):
    def __init__(self, region_name: str, account_id: str) -> None:
        super().__init__(region_name, account_id)
        self.projects: dict[str, Project] = {}

    @property
    def _url_module(self) -> Any:
        dispatch = LocalCodeBuildResponse.dispatch
        return SimpleNamespace(url_bases=urls.url_bases, url_paths=dict.fromkeys(urls.url_paths, dispatch))

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
