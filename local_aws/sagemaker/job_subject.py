"""What a job measures, looked up in the control plane: a model's container, or an endpoint's running server.

A model package is its first container; the job's ContainerConfig may say more.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from moto.sagemaker.exceptions import ValidationError

from local_aws.errors import LocalAccountError, UnsupportedModel
from local_aws.process.triton import TritonServer
from local_aws.sagemaker.endpoint_fleet import Variant
from local_aws.sagemaker.model_host import Container

VARIANT = "AllTraffic"


class ControlPlane(Protocol):
    """The part of the SageMaker backend that jobs need. All raise moto's `ValidationError` for what is not there."""

    def describe_model(self, model_name: str) -> Any: ...

    def describe_model_package(self, model_package_name: str) -> Any: ...

    def endpoint(self, name: str) -> Any: ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Deployed:
    """An endpoint that exists, as it was when the job was made."""

    endpoint_name: str
    variant_name: str
    plane: ControlPlane

    def server(self) -> TritonServer:
        """The one that answers for it now. Raises `UnsupportedModel`."""
        picked = self.plane.endpoint(self.endpoint_name).pick(self.variant_name)
        if picked is None:
            raise UnsupportedModel(f"Endpoint {self.endpoint_name} does not answer any more.")
        server: TritonServer = picked[1]
        return server


def package_of(plane: ControlPlane, configuration: Mapping[str, Any]) -> Mapping[str, Any]:
    """What the model's package says; nothing where the job names a model."""
    if not (arn := configuration.get("ModelPackageVersionArn")):
        return {}
    found = plane.describe_model_package(arn)
    return {"SamplePayloadUrl": found.sample_payload_url, "InferenceSpecification": found.inference_specification or {}}


def container_of(
    plane: ControlPlane, configuration: Mapping[str, Any], package: Mapping[str, Any], instance_type: str
) -> Container:
    """Of the model or of its package. Raises moto's `ValidationError` where this machine cannot start it."""
    if package:
        model = {
            "ModelName": configuration["ModelPackageVersionArn"],
            "Containers": package["InferenceSpecification"].get("Containers", []),
        }
    else:
        model = plane.describe_model(configuration["ModelName"]).response_object
    try:
        return Variant.of({"VariantName": VARIANT, "InstanceType": instance_type}, model).container
    except LocalAccountError as error:
        raise ValidationError(str(error)) from error


def deployed_of(plane: ControlPlane, name: str) -> Deployed:
    """Raises moto's `ValidationError` for an endpoint that the service would not test."""
    endpoint = plane.endpoint(name)
    if endpoint.endpoint_status != "InService":
        raise ValidationError(f"Endpoint {name} is {endpoint.endpoint_status}: it must be InService.")
    if len(endpoint.production_variants) != 1:
        raise ValidationError(f"Endpoint {name} has {len(endpoint.production_variants)} variants: it must have one.")
    (variant,) = endpoint.production_variants
    return Deployed(endpoint_name=name, variant_name=variant["VariantName"], plane=plane)
