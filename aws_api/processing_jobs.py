"""The request of a SageMaker Processing job. Pure.

AWS does not document the GPU driver of a processing instance, and no request chooses it.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from workloads.instances import family

SOURCE, OUTPUT = "/opt/ml/processing/source", "/opt/ml/processing/output"
LOG_GROUP = "/aws/sagemaker/ProcessingJobs"
"""Each host of a job writes a stream there whose name begins with the job's name and a slash."""
ENDED = frozenset({"Completed", "Failed", "Stopped"})


@dataclass(frozen=True, kw_only=True, slots=True)
class ProcessingJob:
    """A job that gets one folder from S3 at `SOURCE`, runs its `entry.py` and leaves what lies in `OUTPUT`."""

    name: str
    role_arn: str
    image_uri: str
    arguments: tuple[str, ...] = ()
    """The arguments of `entry.py`."""
    instance_type: str
    instances: int = 1
    volume_gb: int
    source_url: str
    """Every instance gets a copy of this folder."""
    output_name: str
    output_url: str
    upload: Literal["EndOfJob", "Continuous"] = "EndOfJob"
    """Only Continuous also uploads what a job writes while it is being stopped."""
    max_runtime_s: int
    environment: Mapping[str, str] = field(default_factory=dict)
    tags: Mapping[str, str] = field(default_factory=dict)
    kms_key: str | None = None
    """Encrypts the volume and the output."""
    security_groups: tuple[str, ...] = ()
    subnets: tuple[str, ...] = ()
    """With `security_groups`: where the job runs; without any, in SageMaker's own network."""

    def request(self) -> dict[str, Any]:
        """Returns the request of CreateProcessingJob."""
        app = {"ImageUri": self.image_uri, "ContainerEntrypoint": ["python3", f"{SOURCE}/entry.py"]}
        source = {
            "S3Uri": self.source_url,
            "LocalPath": SOURCE,
            "S3DataType": "S3Prefix",
            "S3InputMode": "File",
            "S3DataDistributionType": "FullyReplicated",
            "S3CompressionType": "None",
        }
        output = {"S3Uri": self.output_url, "LocalPath": OUTPUT, "S3UploadMode": self.upload}
        outputs = {"Outputs": [{"OutputName": self.output_name, "S3Output": output}]}
        vpc = {"SecurityGroupIds": list(self.security_groups), "Subnets": list(self.subnets)}
        return {
            "ProcessingJobName": self.name,
            "RoleArn": self.role_arn,
            "AppSpecification": app | ({"ContainerArguments": list(self.arguments)} if self.arguments else {}),
            "ProcessingResources": {"ClusterConfig": self._cluster()},
            "ProcessingInputs": [{"InputName": "source", "S3Input": source}],
            "ProcessingOutputConfig": outputs | ({"KmsKeyId": self.kms_key} if self.kms_key else {}),
            "StoppingCondition": {"MaxRuntimeInSeconds": self.max_runtime_s},
            "Environment": {"PYTHONUNBUFFERED": "1", **self.environment},
            "Tags": [{"Key": key, "Value": value} for key, value in self.tags.items()],
            **({"NetworkConfig": {"VpcConfig": vpc}} if self.subnets else {}),
        }

    def _cluster(self) -> dict[str, Any]:
        cluster = {
            "InstanceCount": self.instances,
            "InstanceType": self.instance_type,
            "VolumeSizeInGB": self.volume_gb,
        }
        # A disk inside the instance is encrypted by its own hardware; the service refuses a key for it.
        own_disk = re.fullmatch(r"g5|[a-z]+\d+[a-z]*d[a-z]*", family(self.instance_type))
        return cluster | ({"VolumeKmsKeyId": self.kms_key} if self.kms_key and not own_disk else {})
