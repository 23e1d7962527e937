"""The stock Triton images of SageMaker, and which host AMI starts them.

The registry accounts come as data with sagemaker-core (read as a file: importing it would pull in boto3).
It does not know what is inside an image that the workload names itself, beyond the Triton version it states.
"""

import json
import re
from importlib.metadata import distribution
from pathlib import Path

from stacks.errors import UnknownHostAmi
from workloads.instances import HOST_AMIS, OLD_DRIVER_FAMILIES, family, has_accelerator

REPOSITORY = "sagemaker-tritonserver"
REGISTRIES = "sagemaker/core/image_uri_config/sagemaker-tritonserver.json"

ECR_IMAGE = re.compile(
    r"(?P<account>\d{12})\.dkr\.ecr\.(?P<region>[a-z0-9-]+)\.amazonaws\.com(\.cn)?"
    r"/(?P<repository>[a-z0-9._/-]+)(:[\w.-]+|@sha256:[0-9a-f]{64})"
)


def registry_accounts() -> dict[str, dict[str, str]]:
    """Triton version → region → account of the registry, as sagemaker-core has them."""
    text = Path(str(distribution("sagemaker-core").locate_file(REGISTRIES))).read_text("utf-8")
    return {version: dict(entry["registries"]) for version, entry in json.loads(text)["versions"].items()}


def host_ami(version: str, instance_type: str, file: Path) -> str | None:
    """The variant's `InferenceAmiVersion`; None for CPU. Raises `UnknownHostAmi`, naming `file`."""
    if not has_accelerator(instance_type):
        return None
    if family(instance_type) not in OLD_DRIVER_FAMILIES or version not in HOST_AMIS:
        raise UnknownHostAmi(file, version, instance_type, list(HOST_AMIS), OLD_DRIVER_FAMILIES)
    return HOST_AMIS[version]
