"""Which image the Processing job of a fleet runs in: AWS's PyTorch image for CPUs, for the Python that it has.

The generator brings its own Python and packages. Accounts and regions come as data with sagemaker-core (read as a file:
importing it would pull in boto3).
"""

import json
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from inference_recommender.load_test.errors import NoImageData, UnknownImage

DATA = "sagemaker/core/image_uri_config/pytorch.json"
VERSION = "2.10.0"
NAME = f"pytorch-training:{VERSION}-cpu-py313"


def image_uri(region: str) -> str:
    """Raises `NoImageData` or `UnknownImage`."""
    try:
        installed = distribution("sagemaker-core")
    except PackageNotFoundError:
        raise NoImageData() from None
    data = json.loads(Path(str(installed.locate_file(DATA))).read_text("utf-8"))
    account = data["training"]["versions"][VERSION]["registries"].get(region)
    if account is None:
        raise UnknownImage(NAME, region)
    suffix = "amazonaws.com.cn" if region.startswith("cn-") else "amazonaws.com"
    return f"{account}.dkr.ecr.{region}.{suffix}/{NAME}"
