"""Our load generator beside NVIDIA's perf_analyzer and Locust: results and cost with one null model.

  python3 -m venv build/venv-generators
  bash scripts/install_locked.sh build/venv-generators/bin/python benchmarks/generator/requirements.txt
  python benchmarks/generator/compare.py           every tool at 1, 2, 4, 8 and 16 connections, in turn, medians

The null model is a Python backend's constant behind Triton's response cache, so an answer costs the server little. All
tools send the same JSON tensor over HTTP in a closed loop.

  requests a second   counted by Triton over a window
  CPU per request     of the tool's processes over the same window
  p50, p99            reported by the tool; Locust's from its request event, because its report rounds to ms

Tools and server share the cores. Goals are judged by the median of the ratios within each round. perf_analyzer is that
of tritonclient 2.51, the newest that starts here, in its synchronous mode and with --async. Its libraries libb64 and
libcudart come from nvidia-pytriton's wheel. Exits with 1 if a goal is missed.
"""

import argparse
import json
import operator
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psutil

sys.path.insert(0, str(Path(__file__).parents[2]))  # run as a file, Python finds only this folder
from benchmarks import harness
from benchmarks.generator.tools import (
    ASYNC,
    OURS,
    PERF_ANALYZER,
    TOOLS,
    Latencies,
    Start,
    is_there,
)
from benchmarks.plain_triton import plain_triton

PORT = 18_002
SETTLE_S = 1.0
"""From the first answers to the window."""
START_TIMEOUT_S = 30.0
END_TIMEOUT_S = 15.0

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


@dataclass(frozen=True, kw_only=True, slots=True)
class Figures:
    requests_per_second: float
    cpu_us_per_request: float
    p50_ms: float | None
    p99_ms: float | None
    """None where the tool did not end, so that it has no report."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3, help="runs of each tool at each concurrency (default 3)")
    parser.add_argument("--seconds", type=float, default=4.0, help="of each window (default 4)")
    parser.add_argument("--concurrency", type=int, nargs="+", default=[1, 2, 4, 8, 16], metavar="N")
    options = parser.parse_args()
    tools = {name: tool for name, tool in TOOLS.items() if is_there(name)}
    with _null_triton() as url:
        seen = {
            concurrency: _rounds(tools, url, concurrency, options.rounds, options.seconds)
            for concurrency in options.concurrency
        }
    medians = {
        concurrency: {tool: _median(of) for tool, of in by_tool.items()} for concurrency, by_tool in seen.items()
    }
    goals = list(_goals(seen))
    _show(medians, goals)
    figures = {n: {tool: asdict(row) for tool, row in of.items()} for n, of in medians.items()}
    document = {"concurrency": figures, "goals": goals}
    return harness.finish("generator", ["uvloop", "httptools"], document, goals)


def _rounds(
    tools: dict[str, tuple[Start, Latencies]], url: str, concurrency: int, rounds: int, seconds: float
) -> dict[str, list[Figures]]:
    """Measures every tool in every round; in a round the tools run one after the other, each time in another order."""
    seen: dict[str, list[Figures]] = {name: [] for name in tools}
    for number in range(rounds):
        order = list(tools)[number % len(tools) :] + list(tools)[: number % len(tools)]
        for name in order:
            print(f"… {name} at {concurrency}", file=sys.stderr, end=": ", flush=True)
            figures = _measure(*tools[name], url, concurrency, seconds)
            print(f"{figures.requests_per_second:,.0f}/s, {figures.cpu_us_per_request:.1f} µs of CPU", file=sys.stderr)
            seen[name].append(figures)
    return seen


def _median(of: Sequence[Figures]) -> Figures:
    return Figures(**{key: _middle(asdict(figures)[key] for figures in of) for key in asdict(of[0])})


def _middle(values: Iterable[float | None]) -> float | None:
    """Returns the median of the figures that there are."""
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


def _measure(start: Start, latencies: Latencies, url: str, concurrency: int, seconds: float) -> Figures:
    with tempfile.TemporaryDirectory() as scratch:
        before = _answered(url)
        process = start(url, concurrency, seconds + 2 * SETTLE_S, Path(scratch))
        try:
            _wait_for_answers(url, before + 50, process)
            time.sleep(SETTLE_S)
            at, answered, cpu_s = time.perf_counter(), _answered(url), _cpu_s(process.pid)
            time.sleep(seconds)
            wall_s = time.perf_counter() - at
            answered, cpu_s = _answered(url) - answered, _cpu_s(process.pid) - cpu_s
            p50_ms, p99_ms = latencies(Path(scratch)) if _ends(process) else (None, None)
        finally:
            process.kill()
            process.wait()
    return Figures(
        requests_per_second=answered / wall_s,
        cpu_us_per_request=cpu_s / answered * 1e6,
        p50_ms=p50_ms,
        p99_ms=p99_ms,
    )


def _ends(process: "subprocess.Popen[bytes]") -> bool:
    """Returns whether the tool ends by itself. perf_analyzer sometimes does not, and then has no report."""
    try:
        status = process.wait(END_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        print("(no report)", file=sys.stderr, end=" ", flush=True)
        return False
    if status:
        raise RuntimeError(f"{process.args!r} ended with {status}")
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


def _cpu_s(pid: int) -> float:
    """Returns the user and system time of a process and its children, those that ended included."""
    parent = psutil.Process(pid)
    times = [process.cpu_times() for process in (parent, *parent.children(recursive=True))]
    return sum(time.user + time.system for time in times) + times[0].children_user + times[0].children_system


@contextmanager
def _null_triton() -> Iterator[str]:
    with tempfile.TemporaryDirectory() as scratch:
        model = Path(scratch) / "repository" / "null"
        (model / "1").mkdir(parents=True)
        (model / "1" / "model.py").write_text(MODEL, "utf-8")
        (model / "config.pbtxt").write_text(CONFIG, "utf-8")
        environment = {"SAGEMAKER_TRITON_ADDITIONAL_ARGS": "--cache-config=local,size=1048576"}
        flags = ["--allow-grpc=false", "--allow-metrics=false", "--http-address=127.0.0.1", f"--http-port={PORT}"]
        with plain_triton(
            model.parent,
            default_model="null",
            environment=environment,
            flags=flags,
            url=f"http://127.0.0.1:{PORT}",
            ready="/v2/models/null/ready",
        ) as server:
            yield server.url


def _goals(seen: dict[int, dict[str, list[Figures]]]) -> Iterator[dict[str, Any]]:
    """Judges by the median over rounds of our figure over perf_analyzer's."""
    for concurrency, of in seen.items():
        if PERF_ANALYZER not in of:
            continue
        for key, goal, holds, bound in (
            ("cpu_us_per_request", "CPU per request ≤ 0.25 × perf_analyzer's", operator.le, 0.25),
            ("p99_ms", "p99 ≤ perf_analyzer's", operator.le, 1.0),
            ("requests_per_second", "requests a second ≥ perf_analyzer's", operator.ge, 1.0),
        ):
            if (got := _ratio(of, key)) is not None:
                yield {"goal": f"{goal} at {concurrency}", "got": round(got, 3), "met": holds(got, bound)}


def _ratio(of: dict[str, list[Figures]], key: str) -> float | None:
    """Returns our ratio to perf_analyzer in rounds where it has the figure, or else to its --async."""
    for peer in (PERF_ANALYZER, ASYNC):
        pairs = [(getattr(ours, key), getattr(theirs, key)) for ours, theirs in zip(of[OURS], of[peer], strict=True)]
        if ratios := [ours / theirs for ours, theirs in pairs if theirs is not None]:
            return statistics.median(ratios)
    return None


def _show(medians: dict[int, dict[str, Figures]], goals: list[dict[str, Any]]) -> None:
    print(f"{'at once':>7}  {'tool':14}{'requests/s':>11}{'p50 ms':>9}{'p99 ms':>9}{'CPU µs/request':>16}{'× ours':>8}")
    for concurrency, of in medians.items():
        for tool, figures in of.items():
            ratio = figures.cpu_us_per_request / of[OURS].cpu_us_per_request
            print(
                f"{concurrency:>7}  {tool:14}{figures.requests_per_second:>11,.0f}"
                f"{_ms(figures.p50_ms)}{_ms(figures.p99_ms)}"
                f"{figures.cpu_us_per_request:>16.1f}{ratio:>8.2f}"
            )
    print(*harness.goal_lines(goals), sep="\n")


def _ms(value: float | None) -> str:
    return f"{'-' if value is None else f'{value:.3f}':>9}"


if __name__ == "__main__":
    sys.exit(main())
