"""Our load generator beside NVIDIA's perf_analyzer and Locust: results and cost with one null model.

  python3 -m venv build/venv-generators
  bash scripts/install_locked.sh build/venv-generators/bin/python benchmarks/generator/requirements.txt
  python benchmarks/generator/compare.py           every tool at 1, 2, 4, 8 and 16 connections, in turn, medians

The null model is a constant behind Triton's response cache. All tools send the same JSON tensor in a closed loop and
share the cores with the server. Triton counts the requests a second. The tools report P50 and P99. Goals are judged by
the median of the ratios within each round; exits with 1 if one is missed. perf_analyzer is that of tritonclient 2.51,
in its synchronous mode and with --async. Its libraries libb64 and libcudart come from nvidia-pytriton's wheel.
"""

import csv
import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from math import isnan, nan
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))  # run as a file, Python finds only this folder
from benchmarks import goals, harness
from benchmarks.goals import Goal
from benchmarks.harness import Comparison, Turn, Turns
from benchmarks.plain_triton import http_triton, processor_s
from inference_recommender.load_generator.load_plan import LoadPlan, Phase, StoppingConditions, TrafficPattern
from inference_recommender.payloads import payload_archive
from local_aws.process.triton_toolchain import DEFAULT_TOOLCHAIN
from workloads import ROOT, NoVerdict

CONCURRENCY = (1, 2, 4, 8, 16)
SETTLE_S = 1.0
"""From the first answers to the window."""
START_TIMEOUT_S, END_TIMEOUT_S = 30.0, 15.0

MODEL = """
import numpy as np
import triton_python_backend_utils as pb_utils

ANSWER = np.array([[b"null"]], dtype=np.object_)

class TritonPythonModel:
    def execute(self, requests):
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT", ANSWER)]) for _ in requests]
"""
CONFIG = """
name: "null"
backend: "python"
max_batch_size: 1
input [{ name: "TEXT", data_type: TYPE_STRING, dims: [1] }]
output [{ name: "OUTPUT", data_type: TYPE_STRING, dims: [1] }]
response_cache { enable: true }
"""


PEERS = ROOT / "build" / "venv-generators" / "bin"
TEXT = "waterproof hiking boots"
TENSOR = {"name": "TEXT", "shape": [1, 1], "datatype": "BYTES", "data": [TEXT]}
LOCUSTFILE = """
import json, os
from locust import FastHttpUser, constant, events, task

latencies_ms = []

@events.request.add_listener
def note(response_time, exception, **_):
    assert exception is None, exception
    latencies_ms.append(response_time)

@events.quit.add_listener
def tell(**_):
    with open(os.environ["LATENCIES"], "w") as file:
        json.dump(latencies_ms[len(latencies_ms) // 10:], file)

class User(FastHttpUser):
    wait_time = constant(0)
    body = os.environ["BODY"].encode()

    @task
    def ask(self):
        self.client.post("/v2/models/null/infer", data=self.body, headers={"Content-Type": "application/json"})
"""

Start = Callable[[str, int, float, Path], "subprocess.Popen[bytes]"]
"""(server's URL, concurrency, seconds to run for at least, folder to leave a report in)."""
Latencies = Callable[[Path], tuple[float, float]]
"""p50 and p99 in ms, from the folder."""


def _ours(url: str, concurrency: int, seconds: float, folder: Path) -> "subprocess.Popen[bytes]":
    (folder / "payloads.tar.gz").write_bytes(payload_archive([{"text": TEXT}]))
    phase = Phase(initial_number_of_users=concurrency, duration_in_seconds=int(seconds + 1))
    plan = LoadPlan(
        url=f"{url}/v2/models/null/infer",
        payloads=folder / "payloads.tar.gz",
        traffic_pattern=TrafficPattern(traffic_type="PHASES", phases=(phase,)),
        stopping_conditions=StoppingConditions(flat_invocations="Continue"),
    )
    plan.write_json(folder / "plan.json")
    command: list[str | Path] = [sys.executable, "-m", "inference_recommender.load_generator"]
    command += [folder / "plan.json", "--out", folder]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, cwd=ROOT)


def _our_latencies(folder: Path) -> tuple[float, float]:
    with np.load(folder / "records.npz", allow_pickle=False) as records:
        ms = (records["finished_s"] - records["sent_s"]) * 1000
    return _p50_and_p99(ms[len(ms) // 10 :])


def _perf_analyzer(url: str, concurrency: int, seconds: float, folder: Path, *mode: str) -> "subprocess.Popen[bytes]":
    libraries = folder / "lib"
    libraries.mkdir()
    carried = next(DEFAULT_TOOLCHAIN.glob("lib/python3*/site-packages/nvidia_pytriton.libs"))
    (libraries / "libb64.so.0d").symlink_to(next(carried.glob("libb64-*.so.0d")))
    (libraries / "libcudart.so.12").symlink_to(next(carried.glob("libcudart-*.so.12*")))
    # Three windows, however stable they are, so that every tool has the same time.
    window_ms = int(seconds / 3 * 1000) + 1
    command: list[str | Path] = [PEERS / "perf_analyzer", "-m", "null", "-u", url.removeprefix("http://"), "-i", "http"]
    command += ["--input-tensor-format", "json", "--output-tensor-format", "json", "--string-data", TEXT]
    command += ["--concurrency-range", f"{concurrency}:{concurrency}", "--measurement-interval", str(window_ms)]
    command += ["--stability-percentage", "999", "--max-trials", "3", "-f", folder / "report.csv", *mode]
    environment = {**os.environ, "LD_LIBRARY_PATH": str(libraries)}
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, env=environment)


def _perf_analyzer_latencies(folder: Path) -> tuple[float, float]:
    with (folder / "report.csv").open() as file:
        row = next(csv.DictReader(file))
    return float(row["p50 latency"]) / 1000, float(row["p99 latency"]) / 1000


def _locust(url: str, concurrency: int, seconds: float, folder: Path) -> "subprocess.Popen[bytes]":
    (folder / "locustfile.py").write_text(LOCUSTFILE, "utf-8")
    environment = {**os.environ, "BODY": json.dumps({"inputs": [TENSOR]}), "LATENCIES": str(folder / "latencies.json")}
    command: list[str | Path] = [PEERS / "locust", "--headless", "-f", folder / "locustfile.py", "-H", url]
    command += ["-u", str(concurrency), "-r", str(concurrency), "-t", f"{int(seconds + 1)}s"]
    command += ["--only-summary", "--loglevel", "ERROR"]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment, cwd=folder)


def _p50_and_p99(milliseconds: Sequence[float]) -> tuple[float, float]:
    p50, p99 = np.percentile(milliseconds, [50, 99])
    return float(p50), float(p99)


OURS, PERF_ANALYZER, ASYNC = "ours", "perf_analyzer", "… --async"
TOOLS: dict[str, tuple[Start, Latencies]] = {
    OURS: (_ours, _our_latencies),
    PERF_ANALYZER: (_perf_analyzer, _perf_analyzer_latencies),
    ASYNC: (lambda *where: _perf_analyzer(*where, "--async"), _perf_analyzer_latencies),
    "locust": (_locust, lambda folder: _p50_and_p99(json.loads((folder / "latencies.json").read_text("utf-8")))),
}


def main() -> int:
    options = harness.options(__doc__, rounds=(3, "runs of each tool"), seconds=(4, "of each window"))
    names = list(TOOLS) if PEERS.exists() else [OURS]
    if len(names) == 1:
        print(f"The other tools are left out, because there is no {PEERS}: see --help.", file=sys.stderr)
    with _null_triton() as url:
        seen = {
            number: harness.in_turn(
                names, partial(_measure, url, number, options.seconds), options.rounds, warm_up=False
            )
            for number in CONCURRENCY
        }
    return report(seen)


def report(seen: dict[int, Turns]) -> int:
    """Prints P50, CPU time of a request, P99 and the rate of each tool by connections. Returns the exit code."""
    compared = list(harness.compare_loads("connections", seen, TOOLS))
    document = {number: each.document() for number, each in zip(seen, compared, strict=True)}
    judged = [goal for each in compared for goal in judge(each)]
    return goals.finish("generator", ["uvloop", "httptools"], {"connections": document}, judged)


def judge(compared: Comparison) -> Iterator[Goal]:
    """Judges by the median over rounds of perf_analyzer's figure over ours, or of its --async for a missing report."""
    for figure, limit in (("cpu_ms", 4.0), ("p99_ms", 1.0), ("mean_ms", 1.0)):
        reports = compared.turns.get(PERF_ANALYZER, ())
        peer = ASYNC if any(isnan(getattr(turn, figure)) for turn in reports) else PERF_ANALYZER
        yield from harness.pair_goals(compared, [(OURS, peer, limit)], figure)


def _measure(url: str, concurrency: int, seconds: float, name: str) -> Turn:
    print(f"… {name} at {concurrency}", file=sys.stderr, flush=True)
    start, latencies = TOOLS[name]
    with tempfile.TemporaryDirectory() as scratch:
        before = _answered(url)
        process = start(url, concurrency, seconds + 2 * SETTLE_S, Path(scratch))
        try:
            _wait_for_answers(url, before + 50, process)
            time.sleep(SETTLE_S)
            at, answered, cpu_s = time.perf_counter(), _answered(url), processor_s(process.pid)
            time.sleep(seconds)
            wall_s = time.perf_counter() - at
            answered, cpu_s = _answered(url) - answered, processor_s(process.pid) - cpu_s
            p50_ms, p99_ms = latencies(Path(scratch)) if _ends(process) else (nan, nan)
        finally:
            process.kill()
            process.wait()
    return Turn(p50_ms, cpu_s * 1000 / answered, wall_s * 1000 / answered, p99_ms)


def _ends(process: "subprocess.Popen[bytes]") -> bool:
    """Returns whether the tool ends by itself. perf_analyzer sometimes does not, and then has no report."""
    try:
        status = process.wait(END_TIMEOUT_S)
        if status not in (0, NoVerdict.exit_code):  # our generator is meant to use its core to the full, and says so
            raise RuntimeError(f"{process.args!r} ended with {status}")
    except subprocess.TimeoutExpired:
        print("(no report)", file=sys.stderr, end=" ", flush=True)
        return False
    return True


def _wait_for_answers(url: str, count: int, process: "subprocess.Popen[bytes]") -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while _answered(url) < count:
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"{process.args!r} sent nothing (exit status {process.poll()})")
        time.sleep(0.05)


def _answered(url: str) -> int:
    with urllib.request.urlopen(f"{url}/v2/models/null/stats") as response:
        return int(json.load(response)["model_stats"][0]["inference_stats"]["success"]["count"])


@contextmanager
def _null_triton() -> Iterator[str]:
    with tempfile.TemporaryDirectory() as scratch:
        model = Path(scratch) / "repository" / "null"
        (model / "1").mkdir(parents=True)
        (model / "1" / "model.py").write_text(MODEL, "utf-8")
        (model / "config.pbtxt").write_text(CONFIG, "utf-8")
        environment = {"SAGEMAKER_TRITON_ADDITIONAL_ARGS": "--cache-config=local,size=1048576"}
        with http_triton(model.parent, "null", environment, "--allow-grpc=false") as server:
            yield server.url


if __name__ == "__main__":
    sys.exit(main())
