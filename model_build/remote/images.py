"""Which container image a target is built in: the one its runtime serves from, or AWS's PyTorch image on CPU.

In: what is to be built and the region. Out: an ECR URI. Accounts and regions come as data with sagemaker-core (read as
files: importing it would pull in boto3). It has no entry for the plain Neuron inference images: their regions are
taken from Hugging Face's Neuron images, which are in the same registries. The tags are those of AWS's list of Neuron
containers. Unconfirmed: that every such region has that tag. Regions of other partitions than aws, aws-cn and
aws-us-gov are left out.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

from model_build.remote.errors import NoImageData, UnknownImage, UnpublishedTriton

DATA = "sagemaker/core/image_uri_config"


@dataclass(frozen=True, kw_only=True, slots=True)
class Stock:
    """An image of AWS's: its name, and where sagemaker-core's data lists the registries that have it."""

    name: str
    file: str
    path: tuple[str, ...]


NEURON_REGISTRIES = ("huggingface-neuron.json", ("inference", "versions", "4.12.3", "pytorch1.9.1"))
NEURONX_REGISTRIES = ("huggingface-neuronx.json", ("inference", "versions", "4.55.4", "pytorch2.8.0"))

PYTORCH_CPU = Stock(
    name="pytorch-training:2.10.0-cpu-py313", file="pytorch.json", path=("training", "versions", "2.10.0")
)
"""What AWS's own PyTorch processor runs in. The build brings its own Python and torch."""

NEURON: Mapping[tuple[str, str], Stock] = {
    ("neuron", "pytorch"): Stock(
        name="pytorch-inference-neuron:1.13.1-neuron-py310-sdk2.20.2-ubuntu20.04",
        file=NEURON_REGISTRIES[0],
        path=NEURON_REGISTRIES[1],
    ),
    ("neuronx", "pytorch"): Stock(
        name="pytorch-inference-neuronx:2.9.0-neuronx-py312-sdk2.30.0-ubuntu24.04",
        file=NEURONX_REGISTRIES[0],
        path=NEURONX_REGISTRIES[1],
    ),
    ("neuron", "tensorflow"): Stock(
        name="tensorflow-inference-neuron:2.10.1-neuron-py310-sdk2.17.0-ubuntu20.04",
        file=NEURON_REGISTRIES[0],
        path=NEURON_REGISTRIES[1],
    ),
    ("neuronx", "tensorflow"): Stock(
        name="tensorflow-inference-neuronx:2.10.1-neuronx-py310-sdk2.17.0-ubuntu20.04",
        file=NEURONX_REGISTRIES[0],
        path=NEURONX_REGISTRIES[1],
    ),
}
"""By runtime and framework."""


def stock_image(stock: Stock, region: str) -> str:
    """Raises `NoImageData` or `UnknownImage`."""
    entry = _data(stock.file)
    for key in stock.path:
        entry = entry[key]
    return _uri(stock.name, region, entry["registries"])


def triton_image(version: str, region: str, file: Path) -> str:
    """SageMaker's Triton for GPUs, of a yy.mm version. Raises `NoImageData`, `UnpublishedTriton` or `UnknownImage`."""
    published = _data("sagemaker-tritonserver.json")["versions"]
    if version not in published:
        raise UnpublishedTriton(file, version, sorted(published))
    return _uri(f"sagemaker-tritonserver:{version}-py3", region, published[version]["registries"])


def _uri(name: str, region: str, registries: Mapping[str, str]) -> str:
    known = {name: account for name, account in registries.items() if "iso" not in name and "eusc" not in name}
    if region not in known:
        raise UnknownImage(name, region, sorted(known))
    suffix = "amazonaws.com.cn" if region.startswith("cn-") else "amazonaws.com"
    return f"{known[region]}.dkr.ecr.{region}.{suffix}/{name}"


def _data(name: str) -> Any:
    try:
        installed = distribution("sagemaker-core")
    except PackageNotFoundError:
        raise NoImageData() from None
    return json.loads(Path(str(installed.locate_file(f"{DATA}/{name}"))).read_text("utf-8"))
