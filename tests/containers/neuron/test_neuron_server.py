"""The Neuron server in processes on loopback: several workers, load, errors, loading, shutdown and failures."""

import asyncio
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import aiohttp
import numpy as np
import pytest
from tritonclient.http import InferenceServerClient, InferInput, InferRequestedOutput

from containers.container_errors import ContainerError
from containers.encoder.goldens import GOLDENS
from containers.encoder.predictor import Predictor
from containers.neuron.__main__ import plan
from inference_recommender import kserve
from inference_recommender.client import HttpServer, InferenceClient
from tests import fake_neuron
from tests.builders import free_port
from tests.containers.neuron.neuron_server import (
    END_S,
    SERVING,
    START_S,
    RunningServer,
    compile_neuron,
    document,
    labels,
    make_onnx,
    running,
)
from tests.local_aws.conftest import wait_until
from workloads import ROOT

pytestmark = pytest.mark.integration

TEXTS = ["red shoes", "a lamp for a desk", "blue socks", "b", "what is a lamp", "go to my orders"]
LIMIT = 6_291_456


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns a model for CPU with three workers."""
    serving = replace(SERVING, model_instances=3, max_queue_delay_ms=2.0)
    return make_onnx(tmp_path_factory.mktemp("onnx") / "model", serving)


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[RunningServer]:
    with running(folder, folder.with_name("server.log")) as started:
        yield started


@pytest.fixture(scope="module")
def expected(folder: Path) -> dict[str, str]:
    """Returns the label that of each text in a single request."""
    predictor = Predictor.load(folder)
    found: dict[str, str] = {}
    for text in TEXTS:
        [answer] = predictor.predict([{"text": text}])
        assert isinstance(answer, dict)
        found[text] = str(answer["LABEL"])
    assert len(set(found.values())) > 1, "texts of one label cannot be told apart"
    return found


@pytest.mark.parametrize("is_binary", [True, False])
def test_this_projects_client_is_answered(server: RunningServer, expected: dict[str, str], is_binary: bool) -> None:
    with HttpServer(f"http://127.0.0.1:{server.port}", "intent", timeout_s=END_S) as asked:
        client = InferenceClient(asked, binary=is_binary, deadline_s=END_S)
        answer = client.infer({"TEXT": [[text] for text in TEXTS]})
    assert [label.decode() for [label] in answer["LABEL"].tolist()] == [expected[text] for text in TEXTS]
    assert (answer["SCORE"].dtype.name, answer["SCORE"].shape) == ("float32", (6, 1))


@pytest.mark.parametrize("is_binary", [True, False])
def test_tritons_client_is_answered(server: RunningServer, expected: dict[str, str], is_binary: bool) -> None:
    texts = InferInput("TEXT", [len(TEXTS), 1], "BYTES")
    texts.set_data_from_numpy(np.array([[text] for text in TEXTS], object), binary_data=is_binary)
    outputs = [InferRequestedOutput(name, binary_data=is_binary) for name in ("SCORE", "LABEL")]
    with InferenceServerClient(f"127.0.0.1:{server.port}", network_timeout=END_S) as client:
        assert client.is_server_live()
        assert client.is_model_ready("intent")
        answer = client.infer("intent", [texts], outputs=outputs, request_id="7")
    found = [label.decode() if is_binary else label for [label] in answer.as_numpy("LABEL").tolist()]
    assert found == [expected[text] for text in TEXTS]
    assert (answer.as_numpy("SCORE").dtype.name, answer.get_response()["id"]) == ("float32", "7")


def test_sagemakers_binary_form_is_answered_in_that_form(server: RunningServer, expected: dict[str, str]) -> None:
    sent = kserve.encode({"TEXT": [["red shoes"]]}, ["LABEL"])
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=END_S)
    with closing(connection):
        connection.request("POST", "/invocations", sent.content, {"Content-Type": f"{kserve.BINARY}{sent.header_size}"})
        response = connection.getresponse()
        content = response.read()
    assert response.status == 200
    size = response.headers["Content-Type"].removeprefix(kserve.BINARY)
    answer = kserve.decode(kserve.Body.received(content, size), ["LABEL"])
    assert answer["LABEL"].tolist() == [[expected["red shoes"].encode()]]


def test_under_load_all_workers_answer_and_each_client_gets_its_own_answer(
    server: RunningServer, expected: dict[str, str]
) -> None:
    """The kernel spreads connections over the workers; their processor time shows that each has worked."""
    before = {process: processor_seconds(process) for process in server.workers()}
    assert len(before) == 3
    answers = asyncio.run(load(server.port, callers=48, requests_each=10))
    assert len(answers) == 480
    assert all(status == 200 and label == expected[text] for text, status, label in answers)
    assert all(processor_seconds(process) > spent for process, spent in before.items())


async def load(port: int, callers: int, requests_each: int) -> list[tuple[str, int, str]]:
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:

        async def call(caller: int) -> list[tuple[str, int, str]]:
            answers = []
            for number in range(requests_each):
                text = TEXTS[(caller + number) % len(TEXTS)]
                async with session.post(f"http://127.0.0.1:{port}/invocations", data=document(text)) as response:
                    answers.append((text, response.status, labels(await response.json())[0]))
            return answers

        return [answer for own in await asyncio.gather(*map(call, range(callers))) for answer in own]


def processor_seconds(process: int) -> float:
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "message"),
    [
        ("POST", "/invocations", document("x " * 40), 400, "Row 0 has 42 tokens, at most 32 are allowed."),
        ("POST", "/invocations", b" " * (LIMIT + 1), 413, "The body has more than 6291456 bytes."),
        ("GET", "/v2/models/other/ready", b"", 404, "GET /v2/models/other/ready: Not Found."),
        ("GET", "/invocations", b"", 405, "GET /invocations: Method Not Allowed."),
    ],
)
def test_an_invalid_request_is_refused(
    server: RunningServer, method: str, path: str, body: bytes, status: int, message: str
) -> None:
    assert server.request(method, path, body) == (status, {"error": message})


def test_a_body_may_have_sagemakers_size(server: RunningServer) -> None:
    body = document("red shoes").ljust(LIMIT)
    assert server.request("POST", "/invocations", body)[0] == 200


def test_while_the_model_loads_connections_are_refused(folder: Path, tmp_path: Path) -> None:
    """A worker that stands still while it loads keeps all of them from listening."""
    gate = tmp_path / "gate"
    (tmp_path / "sitecustomize.py").write_text(
        "import os, time\n"
        "from containers.encoder import goldens\n"
        "check = goldens.check\n"
        "def wait_and_check(*arguments):\n"
        "    open(os.environ['GATE'] + str(os.getpid()), 'x').close()\n"
        "    while not os.path.exists(os.environ['GATE']):\n"
        "        time.sleep(0.05)\n"
        "    check(*arguments)\n"
        "goldens.check = wait_and_check\n"
    )
    path = os.pathsep.join([str(tmp_path), str(ROOT)])
    server = RunningServer(folder, tmp_path / "server.log", {"PYTHONPATH": path, "GATE": str(gate)})
    try:
        wait_until(lambda: len(list(tmp_path.glob("gate*"))) == 3)
        with pytest.raises(ConnectionRefusedError):
            server.request("GET", "/ping")
        gate.touch()
        server.wait_until_ready()
        assert server.infer("red shoes")[0] == 200
        wait_until(lambda: server.log.read_text() != "")
    finally:
        assert server.stop() == 0
    assert server.log.read_text() == "Serving with 3 workers.\n"


def test_after_sigterm_open_requests_are_answered(tmp_path: Path) -> None:
    """A request waits for a batch that starts only when its time is up, which is after the signal."""
    delayed = make_onnx(tmp_path / "model", replace(SERVING, max_queue_delay_ms=2500.0))
    with running(delayed, tmp_path / "server.log") as server:
        assert asyncio.run(stop_during_a_request(server)) == (200, 0)
        with pytest.raises(ConnectionRefusedError):
            server.request("GET", "/ping")


async def stop_during_a_request(server: RunningServer) -> tuple[int, int]:
    """Returns the statuses of the request and of the server's end.

    The worker answers connections in the order in which they came, so once it answers a second one it has the request.
    """
    async with aiohttp.ClientSession() as session:

        async def call() -> int:
            async with session.post(f"http://127.0.0.1:{server.port}/invocations", data=document("a")) as response:
                return response.status

        task = asyncio.create_task(call())
        await asyncio.sleep(0.1)
        await asyncio.to_thread(server.request, "GET", "/ping")
        server.process.send_signal(signal.SIGTERM)
        return await task, await asyncio.to_thread(server.process.wait, END_S)


def test_a_worker_that_dies_stops_the_server_with_a_reason(folder: Path, tmp_path: Path) -> None:
    with running(folder, tmp_path / "server.log") as server:
        workers = server.workers()
        os.kill(workers[1], signal.SIGKILL)
        assert server.process.wait(END_S) == 3
        assert f"Worker 1 was killed by signal 9. {STOPS}" in server.log.read_text()
        assert not any(Path(f"/proc/{worker}").exists() for worker in workers)


@pytest.mark.slow
def test_a_worker_that_hangs_stops_the_server(folder: Path, tmp_path: Path) -> None:
    with running(folder, tmp_path / "server.log") as server:
        os.kill(server.workers()[1], signal.SIGSTOP)
        assert server.process.wait(END_S) == 3
    assert f"Worker 1 has sent no report for 20 s. {STOPS}\n" in server.log.read_text()


@pytest.mark.slow
def test_a_core_that_hangs_stops_the_server_without_a_request(folder: Path, tmp_path: Path) -> None:
    """Its worker answers health checks; only the device, which a probe asks, does not."""
    (tmp_path / "sitecustomize.py").write_text(
        "import os, time\n"
        "from containers.encoder.engines import onnx_engine\n"
        "run = onnx_engine.OnnxEngine.run\n"
        "def wait_and_run(self, tensors):\n"
        "    while os.path.exists(os.path.join(os.environ['STUCK'], str(os.getpid()))):\n"
        "        time.sleep(0.05)\n"
        "    return run(self, tensors)\n"
        "onnx_engine.OnnxEngine.run = wait_and_run\n"
    )
    path = os.pathsep.join([str(tmp_path), str(ROOT)])
    with running(folder, tmp_path / "server.log", PYTHONPATH=path, STUCK=str(tmp_path)) as server:
        (tmp_path / str(server.workers()[0])).touch()
        assert server.process.wait(END_S) == 3
    assert f"Worker 0 has not answered for 20 s. {STOPS}\n" in server.log.read_text()


def test_workers_do_not_outlive_a_launcher_that_is_killed(folder: Path, tmp_path: Path) -> None:
    with running(folder, tmp_path / "server.log") as server:
        workers = server.workers()
        server.process.kill()
        server.process.wait(END_S)
        wait_until(lambda: not any(Path(f"/proc/{worker}").exists() for worker in workers))


def start_and_fail(**environment: str) -> tuple[int, str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("NEURON_RT")}
    ended = subprocess.run(
        [sys.executable, "-m", "containers.neuron"],
        env={**clean, "PYTHONPATH": str(ROOT), "HOST": "127.0.0.1", **environment},
        capture_output=True,
        text=True,
        timeout=START_S,
        check=False,
    )
    return ended.returncode, ended.stderr.strip()


STOPS = "The server stops, so that the container is started again."
NEEDS = "A model's folder has settings.json, server.json, tokenizer.json and the compiled model."


def test_without_settings_or_a_complete_model_the_server_does_not_start(tmp_path: Path) -> None:
    missing = tmp_path / "none"
    reason = f"FileNotFoundError: [Errno 2] No such file or directory: '{missing}/settings.json'"
    expected = f"{missing}: its settings cannot be read ({reason}). {NEEDS}"
    assert start_and_fail(MODEL_FOLDER=str(missing)) == (3, expected)
    folder = make_onnx(tmp_path / "model", SERVING)
    (folder / "model.onnx").unlink()
    code, message = start_and_fail(MODEL_FOLDER=str(folder), PORT=str(free_port()))
    assert (code, message.startswith("Worker 0 could not load the model: ")) == (3, True), message
    assert message.endswith(STOPS)


def test_a_port_that_is_invalid_or_taken_is_an_error(folder: Path) -> None:
    with pytest.raises(ContainerError, match=r"^PORT: got '0'\. Allowed: 1 to 65535\.$"):
        plan({"MODEL_FOLDER": str(folder), "PORT": "0"})
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        code, message = start_and_fail(MODEL_FOLDER=str(folder), PORT=port)
    assert (code, message.startswith(f"Cannot listen on port {port}: ")) == (3, True), message


class TestNeuron:
    """Graphs of the fake, in processes that find it as torch_neuron.

    test_neuron_cores has other placements, test_encoder_engines data parallelism and a missing package.
    """

    @pytest.fixture
    def compiled(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        return compile_neuron(tmp_path / "model", monkeypatch)

    @pytest.fixture
    def path(self, tmp_path: Path) -> str:
        return fake_neuron.write_package(tmp_path / "packages", "torch_neuron")

    def test_each_core_has_a_worker_and_one_that_differs_from_the_original_does_not_serve(
        self, compiled: Path, path: str, tmp_path: Path
    ) -> None:
        (compiled / "server.json").write_text(SERVING.to_json())
        with running(compiled, tmp_path / "server.log", PYTHONPATH=path, NEURON_RT_NUM_CORES="2") as server:
            assert [visible_cores(worker) for worker in server.workers()] == ["0", "1"]
            answers = asyncio.run(load(server.port, callers=8, requests_each=5))
        predictor = Predictor.load(compiled)
        for text, status, label in answers:
            [expected] = predictor.predict([{"text": text}])
            assert isinstance(expected, dict)
            assert (status, label) == (200, expected["LABEL"])
        [first, *others] = json.loads((compiled / GOLDENS).read_text())
        (compiled / GOLDENS).write_text(json.dumps([{**first, "outputs": {"logits": [9.0, 0.0, 0.0]}}, *others]))
        environment = {"NEURON_RT_NUM_CORES": "1", "PORT": str(free_port()), "PYTHONPATH": path}
        code, message = start_and_fail(MODEL_FOLDER=str(compiled), **environment)
        assert code == 3
        refusal = message.splitlines()[-1]
        assert refusal.startswith(
            "Worker 0 on NeuronCore 0 could not load the model: the outputs of its NeuronCores differ from the "
            f"original's: row {first['row']} of evaluation.jsonl on 8 tokens, logits: difference "
        )
        assert "(parity.max_logit_difference 0.0001)" in refusal


def visible_cores(process: int) -> str:
    variables = Path(f"/proc/{process}/environ").read_bytes().split(b"\0")
    [value] = [variable for variable in variables if variable.startswith(b"NEURON_RT_VISIBLE_CORES=")]
    return value.decode().partition("=")[2]
