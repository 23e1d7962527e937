"""moto's ECS with services that keep what was asked of their deployments; moto forgets most of it.

No task runs: a service's desired count stays pending, and DescribeServices says so.
"""

import json
from types import SimpleNamespace
from typing import Any

from moto.core.responses import ActionResult
from moto.core.utils import camelcase_to_underscores
from moto.ecs import urls
from moto.ecs.models import EC2ContainerServiceBackend
from moto.ecs.responses import EC2ContainerServiceResponse

_KEPT = (
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


class LocalEcsBackend(EC2ContainerServiceBackend):
    @property
    def _url_module(self) -> Any:
        dispatch = LocalEcsResponse.dispatch
        return SimpleNamespace(url_bases=urls.url_bases, url_paths=dict.fromkeys(urls.url_paths, dispatch))

    @staticmethod
    def _validate_container_defs(
        memory: str | None, container_definitions: list[dict[str, Any]], requires_compatibilities: list[str] | None
    ) -> None:
        """As on EC2, where a reservation is enough: moto wants a limit for every task that says it is for EC2."""
        others = [each for each in requires_compatibilities or [] if each != "EC2"]
        EC2ContainerServiceBackend._validate_container_defs(memory, container_definitions, others)

    def list_clusters(self) -> list[str]:
        """Those that are there; a deleted cluster can still be described, as INACTIVE."""
        return [arn for arn in super().list_clusters() if self._get_cluster(arn).status == "ACTIVE"]

    def describe_capacity_providers(self, names: list[str] | None) -> Any:
        """All of them, where none is named."""
        return super().describe_capacity_providers(names or list(self.capacity_providers))


class LocalEcsResponse(EC2ContainerServiceResponse):
    def create_service(self) -> ActionResult:
        return self._kept(super().create_service())

    def update_service(self) -> ActionResult:
        return self._kept(super().update_service())

    def _kept(self, answer: ActionResult) -> ActionResult:
        request: dict[str, Any] = json.loads(self.body)
        service = answer.result["service"]  # type: ignore[index]
        for name in _KEPT:
            if name in request:
                setattr(service, camelcase_to_underscores(name), request[name])
        return answer
