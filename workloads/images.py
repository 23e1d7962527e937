"""Which registries have AWS's own container images, by region.

Accounts and regions come as data with sagemaker-core, read as files: importing that package takes seconds and pulls in
boto3, pandas and SciPy. Regions of other partitions than aws, aws-cn and aws-us-gov are left out.
"""

import json
from collections.abc import Mapping
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

from workloads.errors import Unavailable, UsageError

DATA = "sagemaker/core/image_uri_config"
TRITON = "sagemaker-tritonserver"
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


def _data(name: str, option: str) -> Any:
    try:
        installed = distribution("sagemaker-core")
    except PackageNotFoundError:
        raise Unavailable(
            "The Python package 'sagemaker-core' is not installed, and it knows the accounts of AWS's images. "
            f"Install it with `pip install -e '.[cdk]'`, or name an image with {option}."
        ) from None
    return _read(Path(str(installed.locate_file(f"{DATA}/{name}.json"))))


@cache
def _read(file: Path) -> Any:
    return json.loads(file.read_text("utf-8"))
