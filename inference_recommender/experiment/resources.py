"""The requests of an experiment's SageMaker resources: a model of each batch, an endpoint of each cell. Pure."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from aws_api.expiry import expiry_tag
from inference_recommender.experiment.images import Platform, platform
from inference_recommender.experiment.plan import CellBatch
from inference_recommender.measure.job import PAYLOAD_PREFIX, payload_key
from inference_recommender.measure.job_requests import TestedModel
from workloads import ModelArtifact
from workloads.document import Document
from workloads.instances import instance_shape

PRODUCTION_VARIANT = "AllTraffic"
LONGEST_NAME = 63


class ExperimentAccess(Document):
    """The role, images and bucket of an experiment in its account."""

    role_arn: str
    """Role of the jobs and the models' containers. It reads archives and payloads, and pulls images."""
    images: dict[Platform, str]
    """The container image of each kind of hardware."""
    bucket: str
    host_ami: str | None = None
    """InferenceAmiVersion of GPU instances in load tests. A job of Inference Recommender cannot choose it."""

    def image(self, batch: CellBatch) -> str:
        """Returns the image of a batch's model."""
        return self.images[platform(batch.instance_types[0])]

    def tested_model(self, workload: str, model_name: str) -> TestedModel:
        return TestedModel(
            model=model_name, role_arn=self.role_arn, payload_url=f"s3://{self.bucket}/{payload_key(workload)}"
        )

    def archive_url(self, artifact: ModelArtifact) -> str:
        """Returns a URL with the archive's hash, which the stack's recommender role may read."""
        return f"s3://{self.bucket}/{PAYLOAD_PREFIX}/{artifact.workload}/models/{artifact.archive_sha256}.tar.gz"


def model_request(
    batch: CellBatch, artifact: ModelArtifact, access: ExperimentAccess, expires_at: datetime
) -> dict[str, Any]:
    """Returns the request of CreateModel. The cleanup may delete the model from `expires_at` on."""
    return {
        "ModelName": batch.name,
        "ExecutionRoleArn": access.role_arn,
        "EnableNetworkIsolation": True,
        "PrimaryContainer": {
            "Image": access.image(batch),
            "ModelDataUrl": access.archive_url(artifact),
            "Environment": {
                "SAGEMAKER_TRITON_DEFAULT_MODEL_NAME": artifact.default_model,
                "SAGEMAKER_TRITON_LOG_VERBOSE": "false",  # the image logs every request by default
                **artifact.environment,
            },
        },
        "Tags": [
            {"Key": "workload", "Value": artifact.workload},
            {"Key": "variant", "Value": artifact.variant},
            expiry_tag(expires_at),
        ],
    }


@dataclass(frozen=True, kw_only=True, slots=True)
class CellEndpoint:
    config: dict[str, Any]
    """The request of CreateEndpointConfig."""
    endpoint: dict[str, Any]
    """The request of CreateEndpoint."""

    @property
    def name(self) -> str:
        return str(self.endpoint["EndpointName"])


def plan_endpoint(
    model_name: str, number: int, instance_type: str, host_ami: str | None, expires_at: datetime
) -> CellEndpoint:
    """Plans an endpoint of one instance, named after the model and the cell's `number` in its batch.

    `host_ami` applies only to GPU instances. The cleanup may delete the endpoint from `expires_at` on.
    """
    tail = f"-{number}"
    name = f"{model_name[: LONGEST_NAME - len(tail)]}{tail}"
    shape = instance_shape(instance_type)
    variant = {
        "VariantName": PRODUCTION_VARIANT,
        "ModelName": model_name,
        "InstanceType": instance_type,
        "InitialInstanceCount": 1,
        **({"InferenceAmiVersion": host_ami} if host_ami and shape and shape.gpus else {}),
    }
    return CellEndpoint(
        config={"EndpointConfigName": name, "ProductionVariants": [variant], "Tags": [expiry_tag(expires_at)]},
        endpoint={"EndpointName": name, "EndpointConfigName": name, "Tags": [expiry_tag(expires_at)]},
    )
