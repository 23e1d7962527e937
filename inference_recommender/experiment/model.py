"""The SageMaker model of a variant, as a CreateModel request. Pure."""

from collections.abc import Mapping
from typing import Any

from inference_recommender.jobs.job_run import PAYLOAD_PREFIX, payload_key
from inference_recommender.jobs.tested_model import TestedModel
from workloads import ModelArtifact
from workloads.document import Document


class Access(Document):
    """What an experiment works with in its account."""

    role_arn: str
    """Of the jobs and of the models' containers: it reads the archives and the payloads, and pulls the image."""
    image_uri: str
    bucket: str
    host_ami: str | None = None
    """Of GPU instances that the harness' endpoints run on; a job of Inference Recommender cannot choose it."""

    def subject(self, workload: str, model_name: str) -> TestedModel:
        return TestedModel(
            model_name=model_name, role_arn=self.role_arn, payload_url=f"s3://{self.bucket}/{payload_key(workload)}"
        )

    def archive_url(self, artifact: ModelArtifact) -> str:
        """Named by its hash: the same archive is sent once. The stack's recommender role may read it there."""
        return f"s3://{self.bucket}/{PAYLOAD_PREFIX}/{artifact.workload}/models/{artifact.archive_sha256}.tar.gz"


def model_request(name: str, artifact: ModelArtifact, access: Access) -> dict[str, Any]:
    """Of CreateModel: the artifact's archive, served as the endpoint's stack would serve it."""
    return {
        "ModelName": name,
        "ExecutionRoleArn": access.role_arn,
        "EnableNetworkIsolation": True,
        "PrimaryContainer": {
            "Image": access.image_uri,
            "ModelDataUrl": access.archive_url(artifact),
            "Environment": environment(artifact),
        },
        "Tags": [{"Key": "workload", "Value": artifact.workload}, {"Key": "variant", "Value": artifact.variant}],
    }


def environment(artifact: ModelArtifact) -> Mapping[str, str]:
    """Of the container. It logs no request by itself, as the image else does."""
    return {
        "SAGEMAKER_TRITON_DEFAULT_MODEL_NAME": artifact.default_model,
        "SAGEMAKER_TRITON_LOG_VERBOSE": "false",
        **artifact.environment,
    }
