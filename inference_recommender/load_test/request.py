"""Several generators as one CreateProcessingJob request. Pure: nothing is sent.

Every instance gets the same folder from S3: the code, the plan and the payloads. Which share of the plan is its own it
knows from its place among the job's hosts. They meet over the network to start together, so in a VPC the security
group must let its members speak to each other on `MEETING_PORT`.
"""

from dataclasses import dataclass
from typing import Any

MEETING_PORT = 29_400
SOURCE, OUTPUT = "/opt/ml/processing/source", "/opt/ml/processing/output"
VOLUME_GB = 30
SETUP_S = 1800
"""Of the longest run: what instances take to start, to install their Python and to meet."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Fleet:
    """What the generators run on."""

    generators: int
    instance_type: str
    image_uri: str
    role_arn: str
    bucket: str
    region: str
    kms_key: str | None = None
    security_groups: tuple[str, ...] = ()
    subnets: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class FleetPlan:
    request: dict[str, Any]
    """Of CreateProcessingJob."""
    generators: int

    @property
    def job_name(self) -> str:
        return str(self.request["ProcessingJobName"])

    @property
    def source_url(self) -> str:
        return str(self.request["ProcessingInputs"][0]["S3Input"]["S3Uri"])

    @property
    def output_url(self) -> str:
        return str(self.request["ProcessingOutputConfig"]["Outputs"][0]["S3Output"]["S3Uri"])


def plan_fleet(workload: str, name: str, duration_s: float, fleet: Fleet) -> FleetPlan:
    """`name` is the job's and its folder's; the stack's recommender role may read below the bucket's prefix."""
    base = f"s3://{fleet.bucket}/inference-recommender/{workload}/harness/{name}"
    request = {
        "ProcessingJobName": name,
        "RoleArn": fleet.role_arn,
        "AppSpecification": {
            "ImageUri": fleet.image_uri,
            "ContainerEntrypoint": ["python3", f"{SOURCE}/entry.py"],
        },
        "ProcessingResources": {"ClusterConfig": _cluster(fleet)},
        "ProcessingInputs": [_source(f"{base}/source")],
        "ProcessingOutputConfig": _output(f"{base}/output", fleet.kms_key),
        "StoppingCondition": {"MaxRuntimeInSeconds": int(duration_s) + SETUP_S},
        "Environment": {"PYTHONUNBUFFERED": "1", "AWS_DEFAULT_REGION": fleet.region},
        "Tags": [{"Key": "workload", "Value": workload}],
        **_network(fleet),
    }
    return FleetPlan(request=request, generators=fleet.generators)


def _cluster(fleet: Fleet) -> dict[str, Any]:
    cluster = {
        "InstanceCount": fleet.generators,
        "InstanceType": fleet.instance_type,
        "VolumeSizeInGB": VOLUME_GB,
    }
    return cluster | ({"VolumeKmsKeyId": fleet.kms_key} if fleet.kms_key else {})


def _source(url: str) -> dict[str, Any]:
    s3 = {
        "S3Uri": url,
        "LocalPath": SOURCE,
        "S3DataType": "S3Prefix",
        "S3InputMode": "File",
        "S3DataDistributionType": "FullyReplicated",
        "S3CompressionType": "None",
    }
    return {"InputName": "source", "S3Input": s3}


def _output(url: str, kms_key: str | None) -> dict[str, Any]:
    # Continuous, so that a job that is stopped leaves what its generators wrote on their way out.
    measured = {"S3Uri": url, "LocalPath": OUTPUT, "S3UploadMode": "Continuous"}
    outputs = {"Outputs": [{"OutputName": "measured", "S3Output": measured}]}
    return outputs | ({"KmsKeyId": kms_key} if kms_key else {})


def _network(fleet: Fleet) -> dict[str, Any]:
    if not fleet.subnets:
        return {}
    vpc = {"SecurityGroupIds": list(fleet.security_groups), "Subnets": list(fleet.subnets)}
    return {"NetworkConfig": {"VpcConfig": vpc}}
