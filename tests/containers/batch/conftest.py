"""A small model and the batch program, each made once and not to be changed, and S3 served by moto."""

import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from moto.server import ThreadedMotoServer

from tests.containers.batch.batch_run import install, write_model


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("model") / "1")


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return install(tmp_path_factory.mktemp("program"))


@pytest.fixture(scope="module")
def environment() -> Iterator[dict[str, str]]:
    server = ThreadedMotoServer(port=0)
    server.start()
    host, port = server.get_host_and_port()
    # All of moto's servers in one process share what they hold.
    urllib.request.urlopen(urllib.request.Request(f"http://localhost:{port}/moto-api/reset", method="POST")).close()
    yield {
        "AWS_ENDPOINT_URL": f"http://{host}:{port}",
        "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": "testing",
        "AWS_DEFAULT_REGION": "us-east-1",
    }
    server.stop()


@pytest.fixture
def client(environment: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Any:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    made = boto3.client("s3")
    made.create_bucket(Bucket="nightly")
    return made
