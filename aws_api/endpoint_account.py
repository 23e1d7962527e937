"""An endpoint that a command creates, uses and deletes."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from typing import Any

from aws_api import logs
from aws_api.errors import AwsRefused, AwsUnavailable, NotFound
from aws_api.expiry import GRACE_S, expiry_tag
from aws_api.sagemaker import ENDPOINT_LOG, Endpoint
from aws_api.session import AwsSession
from workloads import Unavailable

POLL_S = 15.0

Sleep = Callable[[float], None]


class EndpointAccount(AwsSession):
    """Descriptions have the API's shape. Every method raises `AwsUnavailable` if AWS does not answer."""

    @contextmanager
    def temporary_endpoint(self, endpoint: Endpoint) -> Iterator[None]:
        """Creates the endpoint, and deletes it in any case: it costs by the hour."""
        try:
            try:
                self.create_endpoint(endpoint)
            except AwsRefused as error:
                if error.code == "ResourceLimitExceeded":
                    raise Unavailable(
                        f"The quota does not allow the endpoint: {error.reason}\nRequest more of "
                        f"'{endpoint.instance_type} for endpoint usage' in Service Quotas."
                    ) from error
                raise
            yield
        except BaseException:
            self.stop_retrying()
            raise
        finally:
            try:
                self.delete_endpoint(endpoint.name)
            except AwsUnavailable as error:
                raise Unavailable(
                    f"{error}\nThe endpoint {endpoint.name} may still exist and costs by the hour. Delete it: "
                    f"aws sagemaker delete-endpoint --endpoint-name {endpoint.name}"
                ) from error

    def settled_endpoint(
        self, endpoint: Endpoint, progress: Callable[[str], None], sleep: Sleep = time.sleep
    ) -> Mapping[str, Any]:
        """Waits until the endpoint is InService or Failed, and returns its description."""
        while True:
            described = self.describe_endpoint(endpoint.name)
            status = described["EndpointStatus"]
            progress(f"{endpoint.name} on {endpoint.instance_type}: {status}")
            if status in ("InService", "Failed"):
                return described
            sleep(POLL_S)

    def create_endpoint(self, endpoint: Endpoint) -> None:
        """Creates an endpoint that `jobs cleanup` deletes if this process is killed."""
        tag = expiry_tag(datetime.now(timezone.utc) + timedelta(seconds=endpoint.startup_s + GRACE_S))
        tagged = replace(endpoint, tags={**endpoint.tags, tag["Key"]: tag["Value"]})
        for operation, request in tagged.requests().items():
            self.call("sagemaker", operation, **request)

    def describe_endpoint(self, name: str) -> Mapping[str, Any]:
        return self.call("sagemaker", "describe_endpoint", EndpointName=name)

    def delete_endpoint(self, name: str) -> None:
        """Deletes the endpoint, its configuration and its model, if they exist."""
        for noun in ("endpoint", "endpoint_config", "model"):
            with suppress(NotFound):
                self.call("sagemaker", f"delete_{noun}", **{f"{noun.title().replace('_', '')}Name": name})

    def endpoint_log(self, name: str, lines: int) -> Sequence[str]:
        """Returns the last lines of the container's log."""
        return logs.last_lines(self, ENDPOINT_LOG.format(endpoint=name), lines)
