"""The Neuron server with a stand-in for its device, beside the server of another checkout: what a request costs.

  python benchmarks/neuron_server.py                              this checkout alone
  git worktree add /tmp/before COMMIT
  python benchmarks/neuron_server.py --beside /tmp/before         in pairs, in changing order; medians and their ratios

The device is a sleep of `--device-ms` for each batch of up to 16 rows, so what is seen is the server's own: HTTP, JSON,
batching, tokens. Our load generator asks it in a closed loop, one row a request, for each number of users in turn.

  requests a second   over the whole run
  p50, p99            milliseconds at the client
  CPU per request     microseconds of the launcher and its workers, by the kernel

Server and generator share the cores. Exits with 1 where this checkout answers fewer requests a second than the other or
takes more CPU for one, by the median of the pairs and beyond `NOISE`. The last line is one JSON document.
"""

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
from side_by_side import ROOT, machine

from containers.encoder.settings import Settings
from containers.neuron.server_settings import ServerSettings
from inference_recommender.load_generator.plan import LoadPlan, Phase, TrafficPattern
from inference_recommender.load_generator.process import GeneratorProcess
from tests.containers.encoder.encoder_miniature import CLASSIFICATION, make_tokenizer

NOISE = 0.05
FIGURES = ("requests_per_second", "p50_ms", "p99_ms", "cpu_us")
DEVICE = """
import os, sys, time
import numpy as np
from containers.encoder import load_engine

class Device:
    def run(self, tensors):
        time.sleep(float(os.environ["DEVICE_MS"]) / 1000)
        return {"logits": np.zeros((len(tensors["input_ids"]), 3), np.float32)}

load_engine.load = lambda folder, settings: Device()
"""
"""What Python runs before it runs a worker."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--beside", type=Path, metavar="CHECKOUT", help="another checkout, whose server takes turns")
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--seconds", type=int, default=4)
    parser.add_argument("--users", type=int, nargs="+", default=[16, 64])
    parser.add_argument("--workers", type=int, default=1, help="processes, each with a device")
    parser.add_argument("--device-ms", type=float, default=3.0)
    options = parser.parse_args()
    checkouts = {"this": ROOT, **({"other": options.beside.resolve()} if options.beside else {})}
    seen: dict[int, list[dict[str, dict[str, float]]]] = {users: [] for users in options.users}
    with tempfile.TemporaryDirectory() as folder:
        make_model(Path(folder, "model"), options.workers)
        for turn in range(options.pairs):
            for users in options.users:
                names = list(checkouts) if turn % 2 else list(reversed(checkouts))
                pair = {
                    name: measure(checkouts[name], Path(folder), users, options.seconds, options.device_ms)
                    for name in names
                }
                seen[users].append(pair)
    return report(seen, options.beside is not None)


def make_model(folder: Path, workers: int) -> None:
    folder.mkdir()
    settings: Settings = CLASSIFICATION
    (folder / "settings.json").write_text(settings.to_json())
    make_tokenizer().save(str(folder / "tokenizer.json"))
    (folder / "model.onnx").touch()
    (folder / "sitecustomize.py").write_text(DEVICE)
    serving = ServerSettings(
        model="intent",
        max_batch_size=16,
        dynamic_batching=True,
        preferred_batch_sizes=(),
        max_queue_delay_ms=0.0,
        model_instances=workers,
        placement="one-per-core",
        pipeline_cores=1,
    )
    (folder / "server.json").write_text(serving.to_json())
    tensor = {"name": "TEXT", "shape": [1, 1], "datatype": "BYTES", "data": ["red shoes for men"]}
    (folder / "payloads").mkdir()
    (folder / "payloads" / "0.json").write_text(json.dumps({"inputs": [tensor]}))


def measure(checkout: Path, folder: Path, users: int, seconds: int, device_ms: float) -> dict[str, float]:
    with running(checkout, folder / "model", device_ms) as (port, process):
        plan = LoadPlan(
            url=f"http://127.0.0.1:{port}/invocations",
            payloads=folder / "model" / "payloads",
            traffic_pattern=TrafficPattern(
                traffic_type="PHASES", phases=(Phase(initial_number_of_users=users, duration_in_seconds=seconds),)
            ),
        )
        before = processor_s(process)
        with GeneratorProcess.start(plan, folder / "load") as generator:
            outcome = generator.outcome()
        used = processor_s(process) - before
    assert outcome.summary, outcome.reason
    assert outcome.summary["errors"] == 0, outcome.summary["first_error"]
    invocations = outcome.summary["invocations"]
    figures = {
        "requests_per_second": invocations / outcome.summary["duration_s"],
        "p50_ms": outcome.summary["client_latency_ms"]["p50"],
        "p99_ms": outcome.summary["client_latency_ms"]["p99"],
        "cpu_us": used / invocations * 1e6,
    }
    print(f"… {checkout.name:12} {users:3} users", *(f"{figures[name]:10.2f}" for name in FIGURES), file=sys.stderr)
    return figures


@contextmanager
def running(checkout: Path, model: Path, device_ms: float) -> Iterator[tuple[int, psutil.Process]]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    environment = {
        **os.environ,
        "PYTHONPATH": f"{model}:{checkout}",
        "MODEL_FOLDER": str(model),
        "HOST": "127.0.0.1",
        "PORT": str(port),
        "DEVICE_MS": str(device_ms),
    }
    with subprocess.Popen(
        [sys.executable, "-m", "containers.neuron"], cwd=checkout, env=environment, stderr=subprocess.PIPE, text=True
    ) as server:
        try:
            assert server.stderr
            said = server.stderr.readline()
            assert said.startswith("Serving with"), said + server.stderr.read()
            yield port, psutil.Process(server.pid)
        finally:
            server.terminate()


def processor_s(process: psutil.Process) -> float:
    return sum(sum(each.cpu_times()[:2]) for each in [process, *process.children(recursive=True)])


def report(seen: dict[int, list[dict[str, dict[str, float]]]], paired: bool) -> int:
    results: dict[int, dict[str, float]] = {}
    worse = False
    print(f"{'users':>5} {'server':8}" + "".join(f"{name:>21}" for name in FIGURES))
    for users, pairs in seen.items():
        for server in pairs[0]:
            medians = {name: statistics.median(pair[server][name] for pair in pairs) for name in FIGURES}
            results[users] = {
                **results.get(users, {}),
                **{f"{server}_{name}": value for name, value in medians.items()},
            }
            print(f"{users:5} {server:8}" + "".join(f"{medians[name]:21.2f}" for name in FIGURES))
        if paired:
            ratios = {name: statistics.median(p["this"][name] / p["other"][name] for p in pairs) for name in FIGURES}
            results[users] |= {f"ratio_{name}": ratio for name, ratio in ratios.items()}
            worse |= ratios["requests_per_second"] < 1 - NOISE or ratios["cpu_us"] > 1 + NOISE
            print(f"{users:5} {'ratio':8}" + "".join(f"{ratios[name]:21.2f}" for name in FIGURES))
    print(json.dumps({"machine": machine(["httptools", "tokenizers", "uvloop"]), "users": results}))
    return int(worse)


if __name__ == "__main__":
    sys.exit(main())
