"""Our load generator beside NVIDIA's perf_analyzer and Locust: what they measure of one null model, and what they cost.

  python3.11 -m venv build/venv-generators
  build/venv-generators/bin/pip install --requirement benchmarks/generator-requirements.txt
  python benchmarks/generator.py                   every tool at 1, 2, 4, 8 and 16 at once, in turn, medians

The null model is a Python backend's constant behind Triton's response cache, so an answer costs the server about as
little as Triton allows. All three ask it over HTTP with the same JSON tensor, closed loop.

  requests a second   counted by Triton itself over a window in which the tool is well under way
  CPU per request     of the tool with all its processes over the same window, by the kernel
  p50, p99            as the tool itself reports them; Locust's from its request event, since its report rounds to ms

Tools and server share the cores, as they do whenever one machine tests itself: a tool that takes less leaves more to
the server. Beside them, a bare loop of three system calls a request (bare_loop.py) shows how much of the CPU is the
kernel's, which no tool can do without. Goals are judged by the median of the ratios within each round. perf_analyzer is
tritonclient 2.51's, the newest that starts here; the two libraries that it wants (libb64, libcudart) are those that
nvidia-pytriton's wheel carries. It runs in its cheapest mode, synchronous, and with --async, in which it ends however
few the cores. Exits with 1 when a goal is not met. The last line is one JSON document.
"""

import argparse
import csv
import json
import operator
import os
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from side_by_side import machine

from inference_recommender.generator.plan import LoadPlan, Phase, StoppingConditions, TrafficPattern
from inference_recommender.payloads import payload_archive
from local_aws.triton import TritonServer
from local_aws.triton_toolchain import DEFAULT_TOOLCHAIN
from workloads import ROOT

PEERS = ROOT / "build" / "venv-generators" / "bin"
SETTLE_S = 1.0
"""From the first answers to the window."""
START_TIMEOUT_S = 30.0
END_TIMEOUT_S = 15.0
TEXT = "waterproof hiking boots"

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


@dataclass(frozen=True, kw_only=True, slots=True)
class Figures:
    requests_per_second: float
    cpu_us_per_request: float
    p50_ms: float | None
    p99_ms: float | None
    """None where the tool did not end, so that it has no report."""


Start = Callable[[str, int, float, Path], "subprocess.Popen[bytes]"]
"""(server's URL, concurrency, seconds to run for at least, folder to leave a report in)."""
Latencies = Callable[[Path], tuple[float, float]]
"""p50 and p99 in ms, from the folder."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3, help="runs of each tool at each concurrency (default 3)")
    parser.add_argument("--seconds", type=float, default=4.0, help="of each window (default 4)")
    parser.add_argument("--concurrency", type=int, nargs="+", default=[1, 2, 4, 8, 16], metavar="N")
    options = parser.parse_args()
    tools = {name: tool for name, tool in TOOLS.items() if _is_there(name)}
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
    print(
        json.dumps(
            {
                "benchmark": "generator",
                **machine(["uvloop", "httptools"]),
                "peers": _peer_versions(tools),
                "concurrency": {
                    n: {tool: asdict(figures) for tool, figures in of.items()} for n, of in medians.items()
                },
                "goals": goals,
            }
        )
    )
    return int(not all(goal["met"] for goal in goals))


def _rounds(
    tools: dict[str, tuple[Start, Latencies]], url: str, concurrency: int, rounds: int, seconds: float
) -> dict[str, list[Figures]]:
    """Of each tool, round by round. In a round they run one after the other, each time in another order."""
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
    return Figures(**{key: _middle(asdict(one)[key] for one in of) for key in asdict(of[0])})


def _middle(values: Iterable[float | None]) -> float | None:
    """The median of those that there are."""
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
    """perf_analyzer at times goes on and on, and then has no report."""
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
    """User and system time of a process and its children, those that ended included."""
    parent = psutil.Process(pid)
    times = [one.cpu_times() for one in (parent, *parent.children(recursive=True))]
    return sum(one.user + one.system for one in times) + times[0].children_user + times[0].children_system


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
    # That it used its core to the full is what is asked of it here, so its own verdict (4) is no failure.
    program = (
        "import sys; from inference_recommender.generator.__main__ import main; "
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
    # Three windows whatever they say of stability: the time is ours to choose.
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


def _bare(url: str, concurrency: int, seconds: float, folder: Path) -> "subprocess.Popen[bytes]":
    (folder / "body.json").write_text(json.dumps(_request()), "utf-8")
    command: list[str | Path] = [sys.executable, Path(__file__).with_name("bare_loop.py")]
    command += [f"{url}/v2/models/null/infer", str(concurrency), str(seconds + 1)]
    return subprocess.Popen([*command, folder / "body.json", folder / "latencies.json"])


def _request() -> dict[str, Any]:
    return {"inputs": [{"name": "TEXT", "shape": [1, 1], "datatype": "BYTES", "data": [TEXT]}]}


def _locust(url: str, concurrency: int, seconds: float, folder: Path) -> "subprocess.Popen[bytes]":
    (folder / "locustfile.py").write_text(LOCUSTFILE, "utf-8")
    environment = {**os.environ, "BODY": json.dumps(_request()), "LATENCIES": str(folder / "latencies.json")}
    command: list[str | Path] = [
        PEERS / "locust",
        "--headless",
        "-f",
        folder / "locustfile.py",
        "-H",
        url,
        "-u",
        str(concurrency),
    ]
    command += ["-r", str(concurrency), "-t", f"{int(seconds + 1)}s", "--only-summary", "--loglevel", "ERROR"]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment, cwd=folder)


def _listed_latencies(folder: Path) -> tuple[float, float]:
    return _p50_and_p99(json.loads((folder / "latencies.json").read_text("utf-8")))


def _p50_and_p99(milliseconds: Sequence[float]) -> tuple[float, float]:
    p50, p99 = np.percentile(milliseconds, [50, 99])
    return float(p50), float(p99)


OURS, BARE, PERF_ANALYZER, ASYNC = "ours", "bare loop", "perf_analyzer", "… --async"
TOOLS: dict[str, tuple[Start, Latencies]] = {
    OURS: (_ours, _our_latencies),
    BARE: (_bare, _listed_latencies),
    PERF_ANALYZER: (_perf_analyzer, _perf_analyzer_latencies),
    ASYNC: (lambda *where: _perf_analyzer(*where, "--async"), _perf_analyzer_latencies),
    "locust": (_locust, _listed_latencies),
}


def _is_there(tool: str) -> bool:
    program = PEERS / (PERF_ANALYZER if tool == ASYNC else tool)
    there = tool in (OURS, BARE) or program.exists()
    if not there:
        print(f"Left out: {tool}, for {program} is not there; --help says how it is made.", file=sys.stderr)
    return there


def _peer_versions(tools: Sequence[str] | dict[str, Any]) -> dict[str, str]:
    pins = (line.split("==") for line in Path(__file__).with_name("generator-requirements.txt").read_text().split())
    versions = {name[0]: name[1] for name in pins if len(name) == 2}
    named = {PERF_ANALYZER: f"of tritonclient {versions['tritonclient']}", "locust": versions["locust"]}
    return {tool: version for tool, version in named.items() if tool in tools}


@contextmanager
def _null_triton() -> Iterator[str]:
    with tempfile.TemporaryDirectory() as scratch:
        model = Path(scratch) / "repository" / "null"
        (model / "1").mkdir(parents=True)
        (model / "1" / "model.py").write_text(MODEL, "utf-8")
        (model / "config.pbtxt").write_text(CONFIG, "utf-8")
        environment = {"SAGEMAKER_TRITON_ADDITIONAL_ARGS": "--cache-config=local,size=1048576"}
        with TritonServer.start(
            model.parent, default_model="null", environment=environment, log_file=Path(scratch) / "triton.log"
        ) as server:
            yield server.http_url


def _goals(seen: dict[int, dict[str, list[Figures]]]) -> Iterator[dict[str, Any]]:
    """By the median over rounds of our figure divided by perf_analyzer's: what else ran then ran beside both."""
    for concurrency, of in seen.items():
        if PERF_ANALYZER not in of:
            continue
        for key, goal, holds, bound in (
            ("cpu_us_per_request", "CPU per request ≤ 0.25 × perf_analyzer's", operator.le, 0.25),
            ("p99_ms", "p99 ≤ perf_analyzer's", operator.le, 1.0),
            ("requests_per_second", "requests a second ≥ perf_analyzer's", operator.ge, 1.0),
        ):
            got, bare = (_ratio(of, tool, key) for tool in (OURS, BARE))
            if got is not None and bare is not None:
                ratios = {"got": round(got, 3), "bare_loop": round(bare, 3), "met": holds(got, bound)}
                yield {"goal": f"{goal} at {concurrency}", **ratios}


def _ratio(of: dict[str, list[Figures]], tool: str, key: str) -> float | None:
    """To perf_analyzer in those rounds in which it has the figure; where it has none, to it with --async."""
    for peer in (PERF_ANALYZER, ASYNC):
        pairs = [(getattr(one, key), getattr(two, key)) for one, two in zip(of[tool], of[peer], strict=True)]
        if ratios := [one / two for one, two in pairs if two is not None]:
            return statistics.median(ratios)
    return None


def _show(medians: dict[int, dict[str, Figures]], goals: list[dict[str, Any]]) -> None:
    print(f"{'at once':>7}  {'tool':14}{'requests/s':>11}{'p50 ms':>9}{'p99 ms':>9}{'CPU µs/request':>16}{'× ours':>8}")
    for concurrency, of in medians.items():
        for tool, one in of.items():
            ratio = one.cpu_us_per_request / of[OURS].cpu_us_per_request
            print(
                f"{concurrency:>7}  {tool:14}{one.requests_per_second:>11,.0f}{_ms(one.p50_ms)}{_ms(one.p99_ms)}"
                f"{one.cpu_us_per_request:>16.1f}{ratio:>8.2f}"
            )
    for goal in goals:
        state = "met    " if goal["met"] else "NOT met"
        print(f"{state} {goal['goal']}: {goal['got']} (the bare loop: {goal['bare_loop']})")


def _ms(value: float | None) -> str:
    return f"{'-' if value is None else f'{value:.3f}':>9}"


if __name__ == "__main__":
    sys.exit(main())
