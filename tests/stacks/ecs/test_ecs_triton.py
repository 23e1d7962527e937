"""The command of an ECS task's Triton, run for real: what its callers reach, and what they do not."""

import os
import platform
import socket
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import requests
import tritonclient.grpc
from tritonclient.utils import InferenceServerException

from local_aws.process.guarded_process import GuardedProcess
from local_aws.process.triton_toolchain import DEFAULT_TOOLCHAIN, TritonToolchain
from stacks.ecs.service import MODEL_FOLDER, TRITON
from tests.local_aws.conftest import ECHO_CONFIG, ECHO_MODEL, echo_request, wait_until

pytestmark = [pytest.mark.integration, pytest.mark.slow]


@dataclass(frozen=True)
class Served:
    url: str
    grpc: str


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder: Path = tmp_path_factory.mktemp("ecs")
    model = folder / "models" / "echo"
    (model / "1").mkdir(parents=True)
    (model / "config.pbtxt").write_text(ECHO_CONFIG)
    (model / "1" / "model.py").write_text(ECHO_MODEL)
    tools = TritonToolchain.locate(DEFAULT_TOOLCHAIN, platform.system(), platform.machine())
    environment = tools.environment(folder)
    environment["PATH"] = f"{tools.server.parent}:{environment['PATH']}"
    shell, option, script = TRITON.command
    with socket.socket() as http, socket.socket() as grpc:
        for probe in (http, grpc):
            probe.bind(("127.0.0.1", 0))
        ports = {"8000": str(http.getsockname()[1]), "8001": str(grpc.getsockname()[1])}
    for old, new in {MODEL_FOLDER: str(model.parent), **ports}.items():
        script = script.replace(old, new)
    script += f" --http-address=127.0.0.1 --grpc-address=127.0.0.1 --backend-directory={tools.lay_out_backends(folder)}"
    script += " --exit-timeout-secs=0"
    with (folder / "log").open("wb") as log:
        process = GuardedProcess.start(
            [shell, option, script], environment=environment, stdout=log, stderr=subprocess.STDOUT
        )
    url = f"http://127.0.0.1:{ports['8000']}"

    def ready() -> bool:
        assert process.exit_status is None, (folder / "log").read_text()
        try:
            return requests.get(f"{url}/v2/health/ready", timeout=5).ok
        except requests.ConnectionError:
            return False

    wait_until(ready)
    yield Served(url=url, grpc=f"127.0.0.1:{ports['8001']}")
    process.stop()


@pytest.fixture(scope="module")
def url(served: Served) -> str:
    return served.url


def test_inference_health_and_metadata_answer(url: str) -> None:
    assert requests.post(f"{url}/v2/models/echo/infer", echo_request("a"), timeout=60).status_code == 200
    assert requests.get(f"{url}/v2/models/echo", timeout=60).json()["name"] == "echo"


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/v2/repository/index"),
        ("POST", "/v2/repository/models/evil/load"),
        ("POST", "/v2/systemsharedmemory/region/a/register"),
        ("GET", "/v2/models/echo/config"),
        ("GET", "/v2/models/echo/stats"),
        ("POST", "/v2/logging"),
        ("GET", "/v2/trace/setting"),
    ],
)
def test_everything_else_is_closed(url: str, method: str, path: str) -> None:
    answer = requests.request(method, f"{url}{path}", data="{}", headers={"key": os.urandom(8).hex()}, timeout=60)
    assert answer.status_code == 403
    assert "This API is restricted" in answer.text


def test_a_client_of_grpc_is_answered(served: Served) -> None:
    tensor = tritonclient.grpc.InferInput("TEXT", [2, 1], "BYTES")
    tensor.set_data_from_numpy(np.array([["runing sheos"], ["süß"]], dtype=object))
    with tritonclient.grpc.InferenceServerClient(served.grpc) as client:
        assert client.infer("echo", [tensor]).as_numpy("OUT").shape == (2, 1)


def test_a_closed_protocol_is_closed_over_grpc_too(served: Served) -> None:
    with (
        tritonclient.grpc.InferenceServerClient(served.grpc) as client,
        pytest.raises(InferenceServerException, match="This protocol is restricted"),
    ):
        client.get_model_repository_index()
