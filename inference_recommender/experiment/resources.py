"""The SageMaker resources that an experiment makes, as requests: a variant's model and a cell's endpoint. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pydantic import model_validator

from aws_api.expiry import expiry_tag
from inference_recommender.experiment.images import PLATFORMS, Platform, platform
from inference_recommender.experiment.plan import Batch
from inference_recommender.measure.job import PAYLOAD_PREFIX, payload_key
from inference_recommender.measure.job_requests import TestedModel
from workloads import ModelArtifact
from workloads.document import Document
from workloads.instances import instance_shape

PRODUCTION_VARIANT = "AllTraffic"
LONGEST_NAME = 63


class Access(Document):
    """The role, images and bucket that an experiment uses in its account."""

    role_arn: str
    """The role of the jobs and of the models' containers: it reads archives and payloads, and pulls the images."""
    images: dict[Platform, str]
    """The image of the models on each kind of hardware that has a cell."""
    bucket: str
    host_ami: str | None = None
    """InferenceAmiVersion of the GPU instances of load tests; a job of Inference Recommender cannot choose it."""

    @model_validator(mode="before")
    @classmethod
    def _of_an_older_version(cls, table: Any) -> Any:
        """An experiment begun by an older version has one image for all of its cells."""
        if isinstance(table, dict) and "image_uri" in table:
            return {
                **{k: v for k, v in table.items() if k != "image_uri"},
                "images": dict.fromkeys(PLATFORMS, table["image_uri"]),
            }
        return table

    def image(self, batch: Batch) -> str:
        """Returns the image of a batch's model: its instance types are all of one kind."""
        return self.images[platform(batch.instance_types[0])]

    def tested_model(self, workload: str, model_name: str) -> TestedModel:
        return TestedModel(
            model=model_name, role_arn=self.role_arn, payload_url=f"s3://{self.bucket}/{payload_key(workload)}"
        )

    def archive_url(self, artifact: ModelArtifact) -> str:
        """Names an archive by its hash, so that it is sent once. The stack's recommender role may read it there."""
        return f"s3://{self.bucket}/{PAYLOAD_PREFIX}/{artifact.workload}/models/{artifact.archive_sha256}.tar.gz"


def model_request(batch: Batch, artifact: ModelArtifact, access: Access, expires_at: datetime) -> dict[str, Any]:
    """Returns the request of CreateModel: the artifact's archive, served as the endpoint's stack would serve it.
    `sweep` may delete it from `expires_at` on.
    """
    return {
        "ModelName": batch.name,
        "ExecutionRoleArn": access.role_arn,
        "EnableNetworkIsolation": True,
        "PrimaryContainer": {
            "Image": access.image(batch),
            "ModelDataUrl": access.archive_url(artifact),
            "Environment": environment(artifact),
        },
        "Tags": [
            {"Key": "workload", "Value": artifact.workload},
            {"Key": "variant", "Value": artifact.variant},
            expiry_tag(expires_at),
        ],
    }


def environment(artifact: ModelArtifact) -> Mapping[str, str]:
    """Returns the container's environment. The image would otherwise log every request."""
    return {
        "SAGEMAKER_TRITON_DEFAULT_MODEL_NAME": artifact.default_model,
        "SAGEMAKER_TRITON_LOG_VERBOSE": "false",
        **artifact.environment,
    }


@dataclass(frozen=True, kw_only=True, slots=True)
class EndpointPlan:
    config: dict[str, Any]
    """The request of CreateEndpointConfig."""
    endpoint: dict[str, Any]
    """The request of CreateEndpoint."""

    @property
    def name(self) -> str:
        return str(self.endpoint["EndpointName"])


def plan_endpoint(
    model_name: str, number: int, instance_type: str, host_ami: str | None, expires_at: datetime
) -> EndpointPlan:
    """Plans one instance of `instance_type`, named after the model and the cell's `number` in its batch.

    `host_ami` applies to GPU instances alone. `sweep` may delete the endpoint from `expires_at` on.
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
    return EndpointPlan(
        config={"EndpointConfigName": name, "ProductionVariants": [variant], "Tags": [expiry_tag(expires_at)]},
        endpoint={"EndpointName": name, "EndpointConfigName": name, "Tags": [expiry_tag(expires_at)]},
    )
