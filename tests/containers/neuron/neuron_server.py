"""Makes a model's folder for the Neuron server, and runs that server on loopback."""

import http.client
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from containers.encoder.goldens import GOLDENS, PARITY, ParityLimits, to_json
from containers.encoder.preprocess import Preprocessor
from containers.encoder.settings import Settings
from containers.encoder.tensors import Encoding
from containers.neuron.placement import ServerSettings
from model_build.neuron.backend import compile_network
from model_build.neuron.goldens import choose
from model_build.progress import silent
from tests import fake_neuron
from tests.builders import free_port
from tests.containers.encoder.encoder_miniature import CLASSIFICATION, Graph, make_folder, make_tokenizer
from tests.containers.neuron.stub_server import SERVING as SERVING
from workloads import ROOT, NeuronTarget, TextClassification

COMPILED = replace(CLASSIFICATION, pad_to=(8, 16, 32), batch_size=2)
START_S = 300.0
END_S = 300.0  # Seconds that bound a hanging test; they are no expectation of the machine's speed
SERVE = ROOT / "containers" / "neuron" / "serve"


def compile_neuron(folder: Path, monkeypatch: pytest.MonkeyPatch, settings: Settings = COMPILED) -> Path:
    """Compiles the miniature classifier with the fake, and writes the files that stand beside the graphs."""
    folder.mkdir(parents=True)
    fake_neuron.install(monkeypatch, "torch_neuron", folder.with_name(f"{folder.name}-site"))
    model = TextClassification(
        task="text-classification",
        checkpoint="./checkpoint",
        labels=settings.labels,
        max_input_tokens=settings.max_input_tokens,
    )
    target = NeuronTarget(runtime="neuron", batch_size=settings.batch_size, sequence_lengths=settings.pad_to)
    graph = Graph(settings).eval()
    write_goldens(graph, settings, folder)
    compile_network(graph, model, target, folder, silent)
    (folder / "settings.json").write_text(settings.to_json())
    make_tokenizer().save(str(folder / "tokenizer.json"))
    return folder


def write_goldens(graph: Graph, settings: Settings, folder: Path) -> None:
    """Writes two rows for each length, and limits that the graph keeps."""
    encoded = Preprocessor(make_tokenizer(), settings).encode([{"text": text} for text in ("red", "a lamp for a desk")])
    rows = [(number, code) for number, code in enumerate(encoded, 1) if isinstance(code, Encoding)]
    goldens = [golden for length in settings.pad_to for golden in choose(graph, settings, rows, length)]
    (folder / GOLDENS).write_text(to_json(goldens))
    (folder / PARITY).write_text(ParityLimits(1e-4, 1e-4, 0.0).to_json())


def make_onnx(folder: Path, serving: ServerSettings) -> Path:
    make_folder(folder, CLASSIFICATION, "model.onnx")
    (folder / "server.json").write_text(serving.to_json())
    return folder


class RunningServer:
    def __init__(self, folder: Path, log: Path, environment: dict[str, str]) -> None:
        self.log = log
        self.port = int(environment.get("PORT") or free_port())
        clean = {name: value for name, value in os.environ.items() if not name.startswith("NEURON_RT")}
        # `python` is the one that runs the tests.
        clean["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), clean["PATH"]])
        variables = {"MODEL_FOLDER": str(folder), "HOST": "127.0.0.1", "PORT": str(self.port), "PYTHONPATH": str(ROOT)}
        with log.open("w") as output:
            self.process = subprocess.Popen(
                [str(SERVE)],
                env={**clean, **variables, **environment},
                stderr=output,
                stdout=output,
            )

    def request(
        self,
        method: str,
        path: str,
        body: bytes = b"",
        content_type: str = "application/json",
        timeout_s: float = END_S,
    ) -> tuple[int, Any]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout_s)
        try:
            connection.request(method, path, body, {"Content-Type": content_type})
            response = connection.getresponse()
            text = response.read()
        finally:
            connection.close()
        return response.status, json.loads(text) if text else None

    def infer(self, *texts: str, path: str = "/invocations") -> tuple[int, Any]:
        return self.request("POST", path, document(*texts))

    def wait_until_ready(self) -> None:
        give_up = time.monotonic() + START_S
        while True:
            assert time.monotonic() < give_up, self.log.read_text()
            assert self.process.poll() is None, self.log.read_text()
            try:
                assert self.request("GET", "/ping")[0] == 200
                return
            except ConnectionRefusedError:
                time.sleep(0.02)

    def workers(self) -> list[int]:
        """Returns the workers' process ids."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text()
        return [int(child) for child in children.split()]

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(END_S)


@contextmanager
def running(folder: Path, log: Path, **environment: str) -> Iterator[RunningServer]:
    server = RunningServer(folder, log, environment)
    try:
        server.wait_until_ready()
        yield server
    finally:
        if server.process.poll() is None:
            server.stop()


def document(*texts: str) -> bytes:
    tensor = {"name": "TEXT", "shape": [len(texts), 1], "datatype": "BYTES", "data": list(texts)}
    return json.dumps({"inputs": [tensor]}).encode()


def labels(answer: Any) -> Sequence[str]:
    [output] = [output for output in answer["outputs"] if output["name"] == "LABEL"]
    data: list[str] = output["data"]
    return data
