"""Starts the load generators that compare.py compares, and reads their reports."""

import csv
import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from inference_recommender.load_generator.plan import LoadPlan, Phase, StoppingConditions, TrafficPattern
from inference_recommender.payloads import payload_archive
from local_aws.process.triton_toolchain import DEFAULT_TOOLCHAIN
from workloads import ROOT

PEERS = ROOT / "build" / "venv-generators" / "bin"
TEXT = "waterproof hiking boots"
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
    # Here it is meant to use its core to the full, so that its own verdict (4) is no failure.
    program = (
        "import sys; from inference_recommender.load_generator.__main__ import main; "
        f"sys.exit(main([{str(folder / 'plan.json')!r}, '--out', {str(folder)!r}]) not in (0, 4))"
    )
    return subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.DEVNULL, cwd=ROOT)


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


def _request() -> dict[str, Any]:
    return {"inputs": [{"name": "TEXT", "shape": [1, 1], "datatype": "BYTES", "data": [TEXT]}]}


def _locust(url: str, concurrency: int, seconds: float, folder: Path) -> "subprocess.Popen[bytes]":
    (folder / "locustfile.py").write_text(LOCUSTFILE, "utf-8")
    environment = {**os.environ, "BODY": json.dumps(_request()), "LATENCIES": str(folder / "latencies.json")}
    command: list[str | Path] = [PEERS / "locust", "--headless", "-f", folder / "locustfile.py", "-H", url]
    command += [
        "-u",
        str(concurrency),
        "-r",
        str(concurrency),
        "-t",
        f"{int(seconds + 1)}s",
        "--only-summary",
        "--loglevel",
        "ERROR",
    ]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment, cwd=folder)


def _listed_latencies(folder: Path) -> tuple[float, float]:
    return _p50_and_p99(json.loads((folder / "latencies.json").read_text("utf-8")))


def _p50_and_p99(milliseconds: Sequence[float]) -> tuple[float, float]:
    p50, p99 = np.percentile(milliseconds, [50, 99])
    return float(p50), float(p99)


OURS, PERF_ANALYZER, ASYNC = "ours", "perf_analyzer", "… --async"
TOOLS: dict[str, tuple[Start, Latencies]] = {
    OURS: (_ours, _our_latencies),
    PERF_ANALYZER: (_perf_analyzer, _perf_analyzer_latencies),
    ASYNC: (lambda *where: _perf_analyzer(*where, "--async"), _perf_analyzer_latencies),
    "locust": (_locust, _listed_latencies),
}


def is_there(tool: str) -> bool:
    program = PEERS / (PERF_ANALYZER if tool == ASYNC else tool)
    there = tool == OURS or program.exists()
    if not there:
        print(f"Left out: {tool}. There is no {program}; see --help.", file=sys.stderr)
    return there
