"""Turns a model archive in moto's S3 into a model repository on disk that Triton can serve.

Follows the SageMaker Triton container: the archive unpacks to the repository. A config.pbtxt at its root is an error. A
single model folder is the default model; among several the environment must name it.
"""

import io
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from moto.core.exceptions import ServiceException
from moto.s3.models import s3_backends

from containers import archive_reader
from workloads import Unavailable

DEFAULT_MODEL = "SAGEMAKER_TRITON_DEFAULT_MODEL_NAME"


def model_data_url(container: Mapping[str, Any]) -> str:
    """Returns the address of a container's model, from ModelDataUrl or ModelDataSource. Raises `Unavailable`."""
    if container.get("Mode") == "MultiModel":
        raise Unavailable(
            "Mode is MultiModel, and this local account serves one archive on an endpoint: make a model and an "
            "endpoint for each archive."
        )
    source = container.get("ModelDataSource", {}).get("S3DataSource", {})
    url = container.get("ModelDataUrl") or source.get("S3Uri")
    if not url:
        raise Unavailable("The container has neither ModelDataUrl nor ModelDataSource: name a model archive.")
    if source.get("S3DataType", "S3Object") != "S3Object" or source.get("CompressionType", "Gzip") != "Gzip":
        raise Unavailable(f"{url}: this local account serves a gzipped archive only, as one S3Object.")
    return str(url)


def fetch(url: str, account_id: str) -> bytes:
    """Reads the object at an s3:// URL of this account. Raises `Unavailable`."""
    parts = urlsplit(url)
    if parts.scheme != "s3" or not parts.netloc or not parts.path.strip("/"):
        raise Unavailable(f"'{url}' is no S3 URL of an object: write s3://bucket/key.")
    try:
        stored = s3_backends[account_id]["aws"].get_object(parts.netloc, parts.path.lstrip("/"))
    except ServiceException as error:
        raise Unavailable(f"{url} cannot be read from this account's S3: {error}.") from error
    if stored is None:
        raise Unavailable(f"{url} does not exist in this account's S3: upload it first.")
    return bytes(stored.value)


def unpack(archive: bytes, url: str, repository: Path) -> None:
    """Unpacks into a fresh `repository`, whole or not at all. Raises `Unavailable`."""
    shutil.rmtree(repository, ignore_errors=True)
    try:
        archive_reader.unpack(io.BytesIO(archive), repository, archive_reader.named_sha256(url))
    except (archive_reader.ArchiveRefused, OSError) as error:
        raise Unavailable(f"{url} cannot be unpacked: {error}.") from error


def default_model(repository: Path, environment: Mapping[str, str]) -> str:
    """Returns the name of the model that /invocations answers with. Raises `Unavailable`."""
    if (repository / "config.pbtxt").exists():
        raise Unavailable(
            "The archive has config.pbtxt at its root: pack the model's own folder, so that it unpacks to "
            "<model>/config.pbtxt."
        )
    models = sorted(path.name for path in repository.iterdir() if path.is_dir())
    named = environment.get(DEFAULT_MODEL)
    if named and named not in models:
        raise Unavailable(
            f"{DEFAULT_MODEL} is '{named}', but the archive has no such folder (it has: {', '.join(models) or 'none'})."
        )
    if named:
        return named
    if len(models) != 1:
        raise Unavailable(
            f"The archive has {len(models)} model folders ({', '.join(models) or 'none'}): set {DEFAULT_MODEL} in the "
            f"container's environment to the one that answers."
        )
    return models[0]
