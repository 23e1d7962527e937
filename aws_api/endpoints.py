"""SageMaker endpoints of one variant: the requests, built purely, and the calls that an endpoint's life takes."""

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from aws_api.errors import NotFound
from aws_api.session import AwsSession

LOG_GROUP = "/aws/sagemaker/Endpoints/{name}"
"""Each instance of an endpoint writes a stream there."""
DELETED = {"Endpoint": "delete_endpoint", "EndpointConfig": "delete_endpoint_config", "Model": "delete_model"}
"""Noun → operation, in the order of deletion."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Endpoint:
    """An endpoint on one instance. Its model, its configuration and itself have one name."""

    name: str
    role_arn: str
    image_uri: str
    model_url: str
    """The archive that SageMaker unpacks into /opt/ml/model."""
    environment: Mapping[str, str]
    instance_type: str
    startup_s: int
    """Longest time that the container may take until /ping answers."""
    tags: Mapping[str, str] = field(default_factory=dict)

    def model_request(self) -> dict[str, Any]:
        """Returns the request of CreateModel."""
        container = {"Image": self.image_uri, "ModelDataUrl": self.model_url, "Environment": dict(self.environment)}
        return {
            "ModelName": self.name,
            "ExecutionRoleArn": self.role_arn,
            "PrimaryContainer": container,
            "Tags": self._tags(),
        }

    def config_request(self) -> dict[str, Any]:
        """Returns the request of CreateEndpointConfig."""
        variant = {
            "VariantName": "only",
            "ModelName": self.name,
            "InstanceType": self.instance_type,
            "InitialInstanceCount": 1,
            "ContainerStartupHealthCheckTimeoutInSeconds": self.startup_s,
        }
        return {"EndpointConfigName": self.name, "ProductionVariants": [variant], "Tags": self._tags()}

    def endpoint_request(self) -> dict[str, Any]:
        """Returns the request of CreateEndpoint."""
        return {"EndpointName": self.name, "EndpointConfigName": self.name, "Tags": self._tags()}

    def _tags(self) -> list[dict[str, str]]:
        return [{"Key": key, "Value": value} for key, value in self.tags.items()]


def create(aws: AwsSession, endpoint: Endpoint) -> None:
    """Raises `AwsRefused` with code ResourceLimitExceeded for want of quota."""
    aws.call("sagemaker", "create_model", **endpoint.model_request())
    aws.call("sagemaker", "create_endpoint_config", **endpoint.config_request())
    aws.call("sagemaker", "create_endpoint", **endpoint.endpoint_request())


def describe(aws: AwsSession, name: str) -> dict[str, Any]:
    return aws.call("sagemaker", "describe_endpoint", EndpointName=name)


def delete(aws: AwsSession, name: str) -> None:
    """Deletes what there is of the endpoint, its configuration and its model."""
    for noun, operation in DELETED.items():
        with contextlib.suppress(NotFound):
            aws.call("sagemaker", operation, **{f"{noun}Name": name})
