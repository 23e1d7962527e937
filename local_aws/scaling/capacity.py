"""The instances that the service scales: those of an endpoint's variants."""

from collections.abc import Callable
from typing import Protocol

from local_aws.sagemaker.endpoint import LocalEndpoint
from local_aws.scaling.target_tracking import variant_of


class Capacity(Protocol):
    """The instances of scalable resources, by resource id."""

    def count(self, resource_id: str) -> int | None:
        """Returns the instances in service, or None while the resource takes no change."""

    def problem(self, resource_id: str) -> str | None:
        """Returns why the latest change failed; None where it did not, or is under way."""

    def set_count(self, resource_id: str, count: int) -> None:
        """Asks for so many instances and returns at once. Raises moto's `ValidationError` where it is refused."""


class VariantCapacity:
    """Calls what UpdateEndpointWeightsAndCapacities calls."""

    def __init__(
        self, find: Callable[[str], LocalEndpoint | None], update: Callable[[str, list[dict[str, object]]], object]
    ) -> None:
        self._find = find
        self._update = update

    def count(self, resource_id: str) -> int | None:
        name, variant = variant_of(resource_id)
        endpoint = self._find(name)
        settled = endpoint is not None and endpoint.endpoint_status == "InService"
        return endpoint.instance_count(variant) if endpoint is not None and settled else None

    def problem(self, resource_id: str) -> str | None:
        name, _ = variant_of(resource_id)
        endpoint = self._find(name)
        if endpoint is None:
            return f"Endpoint {name} does not exist."
        failed = endpoint.endpoint_status == "Failed" or (
            endpoint.endpoint_status == "InService" and endpoint.update_failed
        )
        return endpoint.failure_reason if failed else None

    def set_count(self, resource_id: str, count: int) -> None:
        name, variant = variant_of(resource_id)
        self._update(name, [{"VariantName": variant, "DesiredInstanceCount": count}])
