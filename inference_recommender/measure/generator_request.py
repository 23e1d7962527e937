"""Several generators as one Processing job. Pure: nothing is sent.

Every instance gets the same folder from S3: the code, the plan and the payloads. It finds its share of the plan from
its place among the job's hosts. The hosts meet over the network to start together, so in a VPC the security group must
let its members speak to each other on `generator_entry.MEETING_PORT`.
"""

from dataclasses import dataclass

from aws_api.processing_jobs import ProcessingJob
from workloads import images

VOLUME_GB = 30
SETUP_S = 1800
"""Seconds that instances may take to start, to install their Python and to meet; added to the traffic's."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Fleet:
    """The instances that the generators run on."""

    generators: int
    instance_type: str
    image_uri: str
    role_arn: str
    bucket: str
    region: str
    kms_key: str | None = None
    security_groups: tuple[str, ...] = ()
    subnets: tuple[str, ...] = ()


def plan_fleet(workload: str, name: str, duration_s: float, fleet: Fleet) -> ProcessingJob:
    """`name` is the job's and its folder's. The stack's recommender role may read below the bucket's prefix."""
    base = f"s3://{fleet.bucket}/inference-recommender/{workload}/load-test/{name}"
    return ProcessingJob(
        name=name,
        role_arn=fleet.role_arn,
        image_uri=fleet.image_uri,
        instance_type=fleet.instance_type,
        instances=fleet.generators,
        volume_gb=VOLUME_GB,
        source_url=f"{base}/source",
        output_name="measured",
        output_url=f"{base}/output",
        upload="Continuous",  # a job that is stopped leaves what its generators wrote on their way out
        max_runtime_s=int(duration_s) + SETUP_S,
        environment={"AWS_DEFAULT_REGION": fleet.region},
        tags={"workload": workload},
        kms_key=fleet.kms_key,
        security_groups=fleet.security_groups,
        subnets=fleet.subnets,
    )


def image_uri(region: str) -> str:
    """Returns AWS's PyTorch image for CPUs: any with a Python will do, as the generator brings its own packages.

    Raises `Unavailable` or `UsageError`.
    """
    return images.pytorch_cpu_image(region, "--generator-image-uri")
