"""The instances of an endpoint's variant, which Application Auto Scaling reads and sets."""

from collections.abc import Callable

from local_aws.sagemaker.endpoint import LocalEndpoint
from local_aws.scaling.target_tracking import variant_of


class VariantCapacity:
    """Calls the function behind UpdateEndpointWeightsAndCapacities."""

    def __init__(
        self, find: Callable[[str], LocalEndpoint | None], update: Callable[[str, list[dict[str, object]]], object]
    ) -> None:
        self._find = find
        self._update = update

    def count(self, resource_id: str) -> int | None:
        """Returns the instances in service; None while the endpoint rejects changes."""
        name, variant = variant_of(resource_id)
        endpoint = self._find(name)
        settled = endpoint is not None and endpoint.endpoint_status == "InService"
        return endpoint.instance_count(variant) if endpoint is not None and settled else None

    def problem(self, resource_id: str) -> str | None:
        """Returns why the latest change failed; None if it did not, or is in progress."""
        name, _ = variant_of(resource_id)
        endpoint = self._find(name)
        if endpoint is None:
            return f"Endpoint {name} does not exist."
        failed = endpoint.endpoint_status == "Failed" or (
            endpoint.endpoint_status == "InService" and endpoint.update_failed
        )
        return endpoint.failure_reason if failed else None

    def set_count(self, resource_id: str, count: int) -> None:
        """Requests an instance count and returns at once. Raises moto's `ValidationError` if it is rejected."""
        name, variant = variant_of(resource_id)
        self._update(name, [{"VariantName": variant, "DesiredInstanceCount": count}])
