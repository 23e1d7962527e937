"""AWS's own container images: their URIs, and for Triton the versions in each and the GPU hosts that start it.

`image_uris.retrieve` of sagemaker-core returns the same URIs, which a test compares. It has no entry for the Neuron
images, and its errors do not name the key of workload.toml. Importing sagemaker-core takes about 2 s, so functions do
it. Regions of other partitions than aws, aws-cn and aws-us-gov are left out.

A GPU host has an NVIDIA driver. An image starts if its CUDA release runs on that driver, natively or with the image's
compatibility package. Sources, read in November 2026:

- CUDA, TensorRT and Python by tag: NVIDIA's Triton release notes and support matrix. None: no source gives it.
  TensorRT 10.13.3 of 25.09 is inferred from the matrix; the image's build checks it (containers/triton/check-tensorrt).
- PyTorch by tag: Triton's PyTorch backend is that of NVIDIA's PyTorch container of the same tag (server, build.py),
  whose releases are in NVIDIA's "PyTorch for Jetson Platform" release notes of April 2026. None: not in them.
- Drivers by instance family and AMI: SageMaker's page "inference-gpu-drivers" and its InferenceAmiVersion enum.
- Driver 470: NVIDIA's labels of CUDA images list it up to 12.6, and 12.9 and 13.0 begin at 535. A log of 23.12 on a
  SageMaker endpoint shows 470.256.02 with compatibility mode enabled, and a report has 24.09 on ml.g4dn. A log of 25.04
  shows compatibility mode unavailable (aws/deep-learning-containers#4990), and a report has 26.03 failing with CUDA
  error 803.
- Driver 535: reports have 25.04 in service on ml.g6. One host with 535 did not start 26.05, so CUDA 13 there is
  unknown.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

from workloads.errors import Unavailable, UsageError
from workloads.instances import family, hardware

TRITON = "sagemaker-tritonserver"
NEURON_REGISTRIES = ("huggingface-neuron", "inference", "versions", "4.12.3", "pytorch1.9.1")
NEURONX_REGISTRIES = ("huggingface-neuronx", "inference", "versions", "4.55.4", "pytorch2.8.0")
NEURON_IMAGES: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "neuron": ("pytorch-inference-neuron:1.13.1-neuron-py310-sdk2.20.2-ubuntu20.04", NEURON_REGISTRIES),
    "neuronx": ("pytorch-inference-neuronx:2.9.0-neuronx-py312-sdk2.30.0-ubuntu24.04", NEURONX_REGISTRIES),
}
"""The image's name and where sagemaker-core lists the registries that have it, by runtime. Its data has no entry for
these images: their regions are those of Hugging Face's Neuron images, which are in the same registries. The tags are
those of AWS's list of Neuron containers. Unconfirmed: that every such region has that tag."""
PYTORCH_CPU = "pytorch-training:2.10.0-cpu-py313"
"""The image that AWS's own PyTorch processor runs in."""


def pytorch_cpu_image(region: str, option: str) -> str:
    """Returns the URI of `PYTORCH_CPU`. Raises what `image_uri` raises."""
    return image_uri(PYTORCH_CPU, region, ("pytorch", "training", "versions", "2.10.0"), option)


def image_uri(name: str, region: str, path: tuple[str, ...], option: str) -> str:
    """Returns the URI of an image that is called `name` in every registry.

    `path` is where sagemaker-core lists the registries that have it: file, then keys. `option` is the user's way to
    name another image. Raises `Unavailable` without sagemaker-core, `UsageError` for a region without such a registry.
    """
    entry = _data(path[0], option)
    for key in path[1:]:
        entry = entry[key]
    registries = _known(entry["registries"])
    if region not in registries:
        raise UsageError(
            f"sagemaker-core does not know {name} in the region {region}. Known: {', '.join(sorted(registries))}. "
            f"Choose one of these with AWS_DEFAULT_REGION, or copy an image into your own registry and name it with "
            f"{option}."
        )
    suffix = "amazonaws.com.cn" if region.startswith("cn-") else "amazonaws.com"
    return f"{registries[region]}.dkr.ecr.{region}.{suffix}/{name}"


def triton_registries(option: str = "hosting.image_uri") -> Mapping[str, Mapping[str, str]]:
    """Returns yy.mm version of SageMaker's Triton image → region → account of its registry. Raises `Unavailable`."""
    return {version: _known(entry["registries"]) for version, entry in _data(TRITON, option)["versions"].items()}


def _known(registries: Mapping[str, str]) -> dict[str, str]:
    return {name: account for name, account in registries.items() if "iso" not in name and "eusc" not in name}


@cache
def _data(framework: str, option: str) -> Any:
    try:
        from sagemaker.core import image_uris
    except ModuleNotFoundError:
        raise Unavailable(
            "The Python package 'sagemaker-core' is not installed, and it knows the accounts of AWS's images. "
            f"Install it with `pip install -e '.[cdk]'`, or name an image with {option}."
        ) from None
    return image_uris.config_for_framework(framework)


AMI_DRIVERS: Mapping[str, int] = {
    "al2-ami-sagemaker-inference-gpu-2": 535,
    "al2-ami-sagemaker-inference-gpu-2-1": 535,
    "al2-ami-sagemaker-inference-gpu-3-1": 550,
    "al2023-ami-sagemaker-inference-gpu-4-1": 580,
}
"""InferenceAmiVersion → branch of its NVIDIA driver."""
DEFAULT_DRIVERS: Mapping[str, int] = {
    **dict.fromkeys(("g4dn", "g5", "p4d", "p4de"), 470),
    **dict.fromkeys(("g6", "g6e", "p5"), 535),
    **dict.fromkeys(("p5e", "p5en"), 550),
    **dict.fromkeys(("p6-b200", "g7", "g7e"), 580),
}
"""Instance family → branch of the driver on hosts without an InferenceAmiVersion."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TritonImage:
    """An image, by its tag yy.mm. A driver in neither list is one of which no source says anything."""

    cuda: str
    tensorrt: str | None = None
    python: str
    pytorch: str | None = None
    starts_on: tuple[int, ...]
    fails_on: tuple[int, ...] = ()

    @property
    def host_ami(self) -> str:
        """The InferenceAmiVersion for hosts whose default driver does not start the image."""
        return HOST_AMIS[self.cuda.partition(".")[0]]


HOST_AMIS = {"12": "al2-ami-sagemaker-inference-gpu-3-1", "13": "al2023-ami-sagemaker-inference-gpu-4-1"}
"""InferenceAmiVersion by CUDA's major."""
_until_12_6 = partial(TritonImage, python="3.10", starts_on=(470, 535, 550, 580))
_with_12_9 = partial(TritonImage, python="3.12", starts_on=(535, 550, 580), fails_on=(470,))
_with_13 = partial(TritonImage, python="3.12", starts_on=(580,), fails_on=(470,))
TRITON_IMAGES: Mapping[str, TritonImage] = {
    "23.12": _until_12_6(cuda="12.3", tensorrt="8.6.1.6", pytorch="2.2.0"),
    "24.01": _until_12_6(cuda="12.3", tensorrt="8.6.1.6", pytorch="2.2.0"),
    "24.03": _until_12_6(cuda="12.4", tensorrt="8.6.3", pytorch="2.3.0"),
    "24.05": _until_12_6(cuda="12.4", tensorrt="10.0.1.6", pytorch="2.4.0"),
    "24.09": _until_12_6(cuda="12.6", tensorrt="10.4.0.26", pytorch="2.5.0"),
    "25.04": _with_12_9(cuda="12.9", tensorrt="10.9.0.34", pytorch="2.7.0"),
    "25.09": _with_13(cuda="13.0", tensorrt="10.13.3.9", pytorch="2.9.0"),
    "26.03": _with_13(cuda="13.2", pytorch="2.11.0"),
    "26.04": _with_13(cuda="13.2"),
    "26.05": _with_13(cuda="13.2"),
}
GPU_DEFAULT = "24.09"
"""The newest that starts on every GPU family, so that a Recommender job, which cannot choose an AMI, tests the image
that production runs."""
CPU_DEFAULT = "25.09"


def default_version(instance_type: str) -> str:
    """Returns the tag that serves on this type if the workload does not set one."""
    return GPU_DEFAULT if hardware(instance_type) == "GPU" else CPU_DEFAULT


def version_in(image: str) -> str | None:
    """Returns the yy.mm of 24.09, 24.09-py3 or triton-24.09-gpu, or of an image with such a tag, else None."""
    found = re.search(r"(?:^|tritonserver:)(\d\d\.\d\d)$|(?:^|:)(?:triton-)?(\d\d\.\d\d)-(?:py3|[cg]pu)", image)
    return found[1] or found[2] if found else None


def starts(version: str | None, instance_type: str, ami: str | None = None) -> bool | None:
    """Returns whether the image starts on a host of this type, or None if no source says.

    `ami` is the variant's InferenceAmiVersion; None means the family's default driver. Hosts without a GPU start all.
    """
    if hardware(instance_type) != "GPU":
        return True
    image, driver = TRITON_IMAGES.get(version or ""), driver_of(instance_type, ami)
    if image is None or driver is None:
        return None
    return True if driver in image.starts_on else False if driver in image.fails_on else None


def driver_of(instance_type: str, ami: str | None = None) -> int | None:
    """Returns the branch of the host's NVIDIA driver; None without a GPU or if no source gives it."""
    return AMI_DRIVERS.get(ami) if ami else DEFAULT_DRIVERS.get(family(instance_type))


def host_ami(version: str | None, instance_type: str) -> str | None:
    """Returns the InferenceAmiVersion that a variant needs: None if the default driver starts the image."""
    image = TRITON_IMAGES.get(version or "")
    return None if image is None or starts(version, instance_type) else image.host_ami


def newest_on(instance_type: str) -> str | None:
    """Returns the newest tag that is known to start on the family's default driver."""
    return max((tag for tag in TRITON_IMAGES if starts(tag, instance_type)), default=None)


def failing_drivers(version: str | None) -> dict[int, str]:
    """Returns the driver branches on which the image is known to fail → the newest tag that starts there."""
    image = TRITON_IMAGES.get(version or "")
    return {
        branch: max(tag for tag, each in TRITON_IMAGES.items() if branch in each.starts_on)
        for branch in (image.fails_on if image else ())
    }
