"""Starts the server of a SageMaker model: fetches the archive, unpacks it, starts a Triton on its default model.

Follows the SageMaker Triton container: the archive unpacks to the repository. A config.pbtxt at its root is an error. A
single model folder is the default model; among several the environment must name it. Where something stands in for
Inferentia, the Neuron server answers for its instance types. The host stops all its servers with the account.
"""

import io
import itertools
import shutil
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from moto.core.exceptions import ServiceException
from moto.s3.models import s3_backends

from containers import archive_reader
from local_aws import machine, nvml
from local_aws.account_settings import AccountSettings
from local_aws.permissions.enforced import ServiceRoles
from local_aws.process.local_account import role_session
from local_aws.process.model_server import ModelServer
from local_aws.process.neuron import NeuronServer, NeuronStandIn
from local_aws.process.triton import TritonServer
from local_aws.state_folder import check_room
from workloads import Unavailable
from workloads.images import driver_of, starts, version_in

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


def fetch_object(url: str, account_id: str) -> bytes:
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


def unpack_model(archive: bytes, url: str, repository: Path) -> None:
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


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelContainer:
    """A model as SageMaker knows it: the address of its archive, and the environment of its container."""

    model_data_url: str
    environment: Mapping[str, str]
    image: str = ""
    role_arn: str | None = None

    @classmethod
    def of(cls, definition: Mapping[str, Any], role_arn: str | None = None) -> "ModelContainer":
        """Reads a ContainerDefinition of the API. Raises `Unavailable`."""
        return cls(
            model_data_url=model_data_url(definition),
            environment={key: str(value) for key, value in (definition.get("Environment") or {}).items()},
            image=definition.get("Image", ""),
            role_arn=role_arn,
        )


@dataclass(slots=True)
class ModelHost:
    """Starts and stops the servers of models on this machine."""

    settings: AccountSettings
    environment: Mapping[str, str] = field(default_factory=dict)
    """The account's exports, once it serves."""
    roles: ServiceRoles | None = None
    """Holds a model's execution role to its policies; without it, nothing is asked."""
    _servers: set[ModelServer] = field(default_factory=set)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _numbers: "itertools.count[int]" = field(default_factory=itertools.count)
    closed: bool = False

    def refusal(self, instance_type: str) -> str | None:
        """Returns in one sentence why no server here can stand in for `instance_type`, or None where one can."""
        return None if self._stand_in(instance_type) else machine.refusal(instance_type)

    def measures_on(self, instance_type: str) -> str:
        """Returns the machine that replaces `instance_type` here."""
        stand_in = self._stand_in(instance_type)
        return f"{machine.description()}, {stand_in.told}" if stand_in else machine.description()

    def _stand_in(self, instance_type: str) -> NeuronStandIn | None:
        neuron = self.settings.neuron
        return neuron if neuron is not None and neuron.serves(instance_type) else None

    def start(
        self, container: ModelContainer, name: str, instance_type: str, host_ami: str | None = None
    ) -> ModelServer:
        """Starts the server of `container` on an instance type that is not refused. Raises `Unavailable`."""
        check_room(self.settings.state)
        check_driver(container.image, instance_type, host_ami)
        if self.roles is not None and container.role_arn is not None:
            log_group = f"/aws/sagemaker/Endpoints/{name}"
            self.roles.check_model(container.role_arn, container.model_data_url, container.image, log_group)
        folder = f"{name}-{next(self._numbers)}"
        repository, log_file = self.settings.state / "models" / folder, self.settings.state / "logs" / f"{folder}.log"
        url = container.model_data_url
        preparations = [(time.time(), f"fetching {url}")]
        archive = fetch_object(url, self.settings.account_id)
        preparations.append((time.time(), f"unpacking {len(archive):,} bytes"))
        unpack_model(archive, url, repository)
        preparations.append((time.time(), "starting the server"))
        server: ModelServer
        if stand_in := self._stand_in(instance_type):
            session: dict[str, str] = {}
            if container.role_arn and self.environment:  # the server may read and write S3 as its role
                session = role_session(self.environment, container.role_arn, "SageMaker")
            server = NeuronServer.start(
                repository,
                stand_in=stand_in,
                instance_type=instance_type,
                environment={**session, **container.environment},
                log_file=log_file,
            )
        else:
            if self.settings.prepare is not None:
                self.settings.prepare(repository, instance_type)
            server = TritonServer.start(
                repository,
                default_model=default_model(repository, container.environment),
                environment={**_visible_gpus(instance_type), **container.environment},
                log_file=log_file,
                toolchain=self.settings.toolchain,
            )
        server.preparations, server.gpus = tuple(preparations), nvml.gpu_count(instance_type)
        with self._lock:
            self._servers.add(server)
            closed = self.closed
        if closed:
            self.stop(server)
        return server

    def stop(self, server: ModelServer) -> None:
        server.stop()
        with self._lock:
            self._servers.discard(server)
        shutil.rmtree(server.repository, ignore_errors=True)

    def close(self) -> None:
        """Stops all servers, side by side."""
        with self._lock:
            self.closed = True
            servers = list(self._servers)
        for server in servers:
            server.request_stop()
        for server in servers:
            self.stop(server)


def check_driver(image: str, instance_type: str, host_ami: str | None) -> None:
    """Raises `Unavailable` if the image does not start with the GPU driver that the host would have on AWS."""
    version = None if "-cpu" in image else version_in(image)  # without CUDA it starts anywhere
    if starts(version, instance_type, host_ami) is False:
        driver = driver_of(instance_type, host_ami)
        raise Unavailable(
            "The primary container did not pass the ping health check: "
            f"Triton {version} does not start with NVIDIA driver {driver} of {instance_type}."
        )


def _visible_gpus(instance_type: str) -> dict[str, str]:
    """Returns the variables that show a server as many GPUs as its instance type has."""
    if not (gpus := nvml.gpu_count(instance_type)):
        return {}
    return {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": ",".join(map(str, range(gpus)))}
