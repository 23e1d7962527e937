"""What a job tests, where its payloads lie, and in what surroundings: all that is not the workload's own."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

RUN_TAG = "run"
"""Of every job: the token of its run, by which a run knows its own jobs again."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Subject:
    """A model that SageMaker knows by name. With `endpoint_name` an endpoint that serves it is tested beside it."""

    model_name: str
    role_arn: str
    payload_url: str
    endpoint_name: str | None = None

    def input_config(self) -> dict[str, Any]:
        return {"ModelName": self.model_name, **_endpoints(self.endpoint_name)}


@dataclass(frozen=True, kw_only=True, slots=True)
class PackageSubject:
    """A version of a model in the model registry."""

    model_package_arn: str
    role_arn: str
    payload_url: str
    endpoint_name: str | None = None

    def input_config(self) -> dict[str, Any]:
        return {"ModelPackageVersionArn": self.model_package_arn, **_endpoints(self.endpoint_name)}


AnySubject = Subject | PackageSubject


@dataclass(frozen=True, kw_only=True, slots=True)
class Surroundings:
    """Of a job's endpoints and artifacts."""

    subnets: tuple[str, ...] = ()
    security_groups: tuple[str, ...] = ()
    kms_key: str | None = None
    """Encrypts the endpoints' volumes and what the job writes."""
    tags: Mapping[str, str] = field(default_factory=dict)
    description: str | None = None
    """None: the workload's own."""

    def input_config(self) -> dict[str, Any]:
        vpc = {"SecurityGroupIds": list(self.security_groups), "Subnets": list(self.subnets)}
        return {
            **({"VolumeKmsKeyId": self.kms_key} if self.kms_key else {}),
            **({"VpcConfig": vpc} if self.subnets else {}),
        }

    def output_config(self) -> dict[str, Any]:
        return {"OutputConfig": {"KmsKeyId": self.kms_key}} if self.kms_key else {}


def _endpoints(name: str | None) -> dict[str, Any]:
    return {"Endpoints": [{"EndpointName": name}]} if name else {}
