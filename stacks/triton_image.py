"""The stock Triton images of SageMaker, and which host AMI starts them.

The registry accounts come as data with sagemaker-core (read as a file: importing it would pull in boto3).
The AMI table is ours: CUDA releases from NVIDIA's Triton release notes, drivers from SageMaker's documentation.
It does not know what is inside an image that the workload names itself, beyond the Triton version it states.
"""

import json
import re
from collections.abc import Mapping
from importlib.metadata import distribution
from pathlib import Path

from stacks.errors import UnknownHostAmi
from stacks.instance_type import family, has_accelerator

REPOSITORY = "sagemaker-tritonserver"
REGISTRIES = "sagemaker/core/image_uri_config/sagemaker-tritonserver.json"

CUDA_12_AMI = "al2-ami-sagemaker-inference-gpu-3-1"
CUDA_13_AMI = "al2023-ami-sagemaker-inference-gpu-4-1"
HOST_AMIS: Mapping[str, str] = {
    "24.01": CUDA_12_AMI,
    "24.03": CUDA_12_AMI,
    "24.05": CUDA_12_AMI,
    "24.09": CUDA_12_AMI,
    "25.04": CUDA_12_AMI,
    "25.09": CUDA_13_AMI,
    "26.05": CUDA_13_AMI,
}
# These start with driver R470 unless told otherwise. What other GPU families start with is not known.
GPU_FAMILIES = ("g4dn", "g5")

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
    if family(instance_type) not in GPU_FAMILIES or version not in HOST_AMIS:
        raise UnknownHostAmi(file, version, instance_type, list(HOST_AMIS), GPU_FAMILIES)
    return HOST_AMIS[version]
