"""URIs of AWS's own container images, from the accounts and regions that sagemaker-core knows.

`image_uris.retrieve` of sagemaker-core returns the same URIs, which a test compares. It has no entry for the Neuron
images, and its errors do not name the key of workload.toml. Importing sagemaker-core takes about 2 s, so functions do
it. Regions of other partitions than aws, aws-cn and aws-us-gov are left out.
"""

from collections.abc import Mapping
from functools import cache
from typing import Any

from workloads.errors import Unavailable, UsageError

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
