"""Starts a Triton for a SageMaker model: fetch the archive, unpack it, choose the default model, start.

The one place where a model of the control plane becomes a process. It keeps account of every server it started, so
that stopping the account stops them all. It knows nothing of endpoints and jobs.
"""

import itertools
import shutil
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from local_aws.process.triton import TritonServer
from local_aws.sagemaker import archive


@dataclass(frozen=True, kw_only=True, slots=True)
class Container:
    """A model as SageMaker knows it: where its archive lies, and the environment its container gets."""

    model_data_url: str
    environment: Mapping[str, str]

    @classmethod
    def of(cls, definition: Mapping[str, Any]) -> "Container":
        """From a ContainerDefinition of the API. Raises `InvalidModelArchive`."""
        return cls(
            model_data_url=archive.model_data_url(definition),
            environment={key: str(value) for key, value in (definition.get("Environment") or {}).items()},
        )


@dataclass(slots=True)
class ModelHost:
    """Everything a Triton on this machine needs besides the model."""

    account_id: str
    state: Path
    toolchain: Path
    _servers: set[TritonServer] = field(default_factory=set)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _numbers: "itertools.count[int]" = field(default_factory=itertools.count)
    _closed: bool = False

    def start(self, container: Container, name: str) -> TritonServer:
        """A Triton that answers for `container`; `name` names its folder and log. Raises `LocalAccountError`."""
        folder = f"{name}-{next(self._numbers)}"
        repository = self.state / "models" / folder
        url = container.model_data_url
        archive.unpack(archive.fetch(url, self.account_id), url, repository)
        server = TritonServer.start(
            repository,
            default_model=archive.default_model(repository, container.environment),
            environment=container.environment,
            log_file=self.state / "logs" / f"{folder}.log",
            toolchain=self.toolchain,
        )
        with self._lock:
            self._servers.add(server)
            closed = self._closed
        if closed:
            self.stop(server)
        return server

    def stop(self, server: TritonServer) -> None:
        server.stop()
        with self._lock:
            self._servers.discard(server)
        shutil.rmtree(server.repository, ignore_errors=True)

    @property
    def closed(self) -> bool:
        """Servers end because the account does, and not of themselves."""
        return self._closed

    def close(self) -> None:
        """Stop every server at once."""
        with self._lock:
            self._closed = True
            servers = list(self._servers)
        for server in servers:
            server.request_stop()
        for server in servers:
            self.stop(server)


def say(text: str) -> None:
    """Tell the person at the terminal what the account does."""
    print(f"local_aws: {text}", file=sys.stderr, flush=True)
