"""The Neuron server beside Triton's Python backend with a stand-in for the device: the cost of a request.

  python benchmarks/neuron_server.py

The device has 16 NeuronCores, 4 to a chip. Each takes 4 rows at once for 3 ms and no CPU. So the figures show the
server's own cost. In Triton a Python model does the same work with the same code, with dynamic batching and an instance
for each chip. Our load generator sends one row a request in a closed loop. `cpu_us` is CPU time for each request.

Exits with 1 if our server answers fewer requests a second than Triton or takes more CPU time, by the median of the
ratios and beyond `NOISE`.
"""

import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))
from benchmarks import goals, harness
from benchmarks.harness import ROOT, Turn, Turns
from benchmarks.plain_triton import http_triton, processor_s
from containers.encoder.goldens import GOLDENS, PARITY, Golden, ParityLimits, to_json
from containers.neuron.placement import ServerSettings
from inference_recommender.load_generator.load_plan import LoadPlan, Phase, TrafficPattern
from inference_recommender.load_generator.process import GeneratorProcess
from inference_recommender.payloads import payload_archive
from tests.containers.encoder.encoder_miniature import CLASSIFICATION, make_tokenizer
from tests.containers.neuron.neuron_server import running

Serve = Callable[[Path], AbstractContextManager[tuple[int, int]]]

NOISE = 0.05
CORES, CORES_PER_CHIP = 16, 4
USERS, SECONDS = (16, 64), 4
DEVICE_MS = {"DEVICE_MS": "3.0"}
PAYLOADS = "payloads.tar.gz"
DEVICE = """
import os, time
import numpy as np
from containers.encoder.engines import engine, load_engine

class Cores:
    def __init__(self, count, settings):
        self.rows = count * settings.batch_size
        self.labels = len(settings.labels)

    def run(self, tensors):
        rows = len(tensors["input_ids"])
        time.sleep(-(-rows // self.rows) * float(os.environ["DEVICE_MS"]) / 1000)
        if file := os.environ.get("COMPUTED"):
            texts = [[chr(93 + token) for token in row if token > 3] for row in tensors["input_ids"].tolist()]
            with open(file, "a") as lines:
                lines.write("".join(" ".join(text) + chr(10) for text in texts if text))
        return {"logits": np.zeros((rows, self.labels), np.float32)}

def load(folder, settings):
    count = int(os.environ["NEURON_RT_NUM_CORES"])
    if count > 4:
        return engine.Lanes([Cores(4, settings)] * (count // 4), 4 * settings.batch_size)
    return Cores(count, settings)

load_engine.load = load
"""
"""Python runs this before it runs a worker."""
TRITON_MODEL = """
import sys
from pathlib import Path
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils

sys.path[:0] = ["MODEL_FOLDER", "CHECKOUT"]
import device
from containers.encoder.predictor import Predictor


class TritonPythonModel:
    def initialize(self, args):
        self.predictor = Predictor.load(Path("MODEL_FOLDER"))

    def execute(self, requests):
        texts = [pb_utils.get_input_tensor_by_name(request, "TEXT").as_numpy().ravel().tolist() for request in requests]
        answers = iter(self.predictor.predict([{"text": text} for each in texts for text in each]))
        return [self.response([next(answers) for _ in each]) for each in texts]

    def response(self, rows):
        columns = {"LABEL": np.object_, "SCORE": np.float32}
        return pb_utils.InferenceResponse(
            [
                pb_utils.Tensor(name, np.array([row[name] for row in rows], kind).reshape(-1, 1))
                for name, kind in columns.items()
            ]
        )
"""
TRITON_CONFIG = """
name: "intent"
backend: "python"
max_batch_size: 16
dynamic_batching {{}}
instance_group [ {{ kind: KIND_CPU, count: {chips} }} ]
input [ {{ name: "TEXT", data_type: TYPE_STRING, dims: [ 1 ] }} ]
output [
  {{ name: "LABEL", data_type: TYPE_STRING, dims: [ 1 ] }},
  {{ name: "SCORE", data_type: TYPE_FP32, dims: [ 1 ] }}
]
"""


def main() -> int:
    rounds = harness.options(__doc__, rounds=(7, "turns of each server")).rounds
    with tempfile.TemporaryDirectory() as folder:
        make_model(Path(folder, "model"))
        seen = {users: harness.in_turn(SERVERS, partial(measure, Path(folder), users), rounds) for users in USERS}
    return report(seen)


def make_model(folder: Path) -> None:
    folder.mkdir()
    (folder / "settings.json").write_text(replace(CLASSIFICATION, batch_size=4).to_json())
    make_tokenizer().save(str(folder / "tokenizer.json"))
    (folder / PARITY).write_text(ParityLimits(0.0, 0.0, 0.0).to_json())
    batching: dict[str, Any] = {"max_batch_size": 16, "dynamic_batching": True, "preferred_batch_sizes": ()}
    placing: dict[str, Any] = {"model_instances": 1, "placement": "data-parallel", "pipeline_cores": 1}
    serving = ServerSettings(model="intent", max_queue_delay_ms=0.0, **batching, **placing)
    (folder / "server.json").write_text(serving.to_json())
    add_device(folder, labels=3, lengths=[32])
    (folder / PAYLOADS).write_bytes(payload_archive([{"text": "red shoes for men"}]))


def add_device(folder: Path, labels: int, lengths: Sequence[int]) -> None:
    """Writes the stand-in device, empty graphs, and golden rows that it passes."""
    golden = Golden(row=1, length=32, token_ids=(2, 3), type_ids=(0, 0), outputs={"logits": [0.0] * labels})
    (folder / GOLDENS).write_text(to_json([replace(golden, length=length) for length in lengths]))
    for length in lengths:
        (folder / f"model.{length}.neuron.pt").touch()
    (folder / "device.py").write_text(DEVICE)
    (folder / "sitecustomize.py").write_text("import device")


def measure(folder: Path, users: int, name: str) -> Turn:
    print(f"… {name}, {users} users", file=sys.stderr)
    phase = Phase(initial_number_of_users=users, duration_in_seconds=SECONDS)
    with SERVERS[name](folder / "model") as (port, pid):
        plan = LoadPlan(
            url=f"http://127.0.0.1:{port}/v2/models/intent/infer",
            payloads=folder / "model" / PAYLOADS,
            traffic_pattern=TrafficPattern(traffic_type="PHASES", phases=(phase,)),
        )
        before = processor_s(pid)
        with GeneratorProcess(plan, folder / "load") as generator:
            outcome = generator.outcome()
        used = processor_s(pid) - before
    assert outcome.summary, outcome.reason
    assert outcome.summary["errors"] == 0, outcome.summary["first_error"]
    invocations = outcome.summary["invocations"]
    latency, mean_ms = outcome.summary["client_latency_ms"], outcome.summary["duration_s"] * 1000 / invocations
    return Turn(latency["p50"], used * 1000 / invocations, mean_ms, latency["p99"])


@contextmanager
def running_ours(model: Path, **device: str) -> Iterator[tuple[int, int]]:
    """Starts the server. Yields its port and process id."""
    environment = {"PYTHONPATH": f"{model}:{ROOT}", "NEURON_RT_NUM_CORES": str(CORES), **DEVICE_MS, **device}
    with running(model, model.parent / "server.log", **environment) as server:
        yield server.port, server.process.pid


@contextmanager
def running_triton(model: Path) -> Iterator[tuple[int, int]]:
    version = model.parent / "repository" / "intent" / "1"
    version.mkdir(parents=True, exist_ok=True)
    (version / "model.py").write_text(TRITON_MODEL.replace("MODEL_FOLDER", str(model)).replace("CHECKOUT", str(ROOT)))
    (version.parent / "config.pbtxt").write_text(TRITON_CONFIG.format(chips=CORES // CORES_PER_CHIP))
    environment = {**DEVICE_MS, "NEURON_RT_NUM_CORES": str(CORES_PER_CHIP), "TOKENIZERS_PARALLELISM": "false"}
    with http_triton(version.parents[1], "intent", environment, "--allow-grpc=false") as server:
        yield int(server.url.rpartition(":")[2]), server.pid


SERVERS: dict[str, Serve] = {"triton": running_triton, "ours": running_ours}


def report(seen: dict[int, Turns]) -> int:
    """Prints P50, CPU time of a request, P99 and the rate of both servers by users. Returns the exit code."""
    compared = list(harness.compare_loads("users", seen, SERVERS))
    document = {users: each.document() for users, each in zip(seen, compared, strict=True)}
    pairs = [("ours", "triton", 1 - NOISE)]
    judged = [
        goal
        for each in compared
        for figure in ("mean_ms", "cpu_ms")
        for goal in harness.pair_goals(each, pairs, figure)
    ]
    return goals.finish("neuron_server", ["httptools", "tokenizers", "uvloop"], {"users": document}, judged)


if __name__ == "__main__":
    sys.exit(main())
