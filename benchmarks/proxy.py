"""Our proxy before Triton beside Triton's own front end for SageMaker, on the same models.

  python -m model_build build spellcheck --target cpu
  python benchmarks/proxy.py

Two servers of each model take turns in blocks, in changing order, so that each figure is a median over pairs that saw
the same machine. The null model is a constant behind Triton's response cache: an answer costs Triton as little as it
can, and whatever the proxy adds is plain to see.

  added ms        median time of a request at one caller, kept connection, proxy minus front end
  CPU us          of the proxy's own process, and of all processes of each server, by the kernel, a request. Neighbours
                  on the same core can only add to it, so the goal is judged by the pairs with the least (first decile)
  requests ratio  requests a second of spellcheck in closed loop (bare_loop.py), proxy over front end. With one caller
                  that is the added time said in another way; the goal is judged where the server has enough to do

Triton's front end listens on all addresses while this runs. Exits with 1 when a goal is not met. The last line is one
JSON document.
"""

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import psutil
from plain_triton import plain_triton
from side_by_side import machine

from inference_recommender.payloads import request_body
from local_aws.process.triton import TritonServer
from workloads import ROOT, load_artifact, load_workload

PORT = 18_080
BLOCK = 50
CONCURRENCY = (1, 4, 16)
NULL_MODEL = """
import numpy as np
import triton_python_backend_utils as pb_utils

ANSWER = np.array([[b"null"]], dtype=np.object_)

class TritonPythonModel:
    def execute(self, requests):
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT", ANSWER)]) for _ in requests]
"""
NULL_CONFIG = """
backend: "python"
max_batch_size: 8
input [{ name: "TEXT", data_type: TYPE_STRING, dims: [1] }]
output [{ name: "OUTPUT", data_type: TYPE_STRING, dims: [1] }]
response_cache { enable: true }
"""
NULL_REQUEST = json.dumps({"inputs": [{"name": "TEXT", "datatype": "BYTES", "shape": [1, 1], "data": ["a"]}]}).encode()


@dataclass(frozen=True, kw_only=True, slots=True)
class Server:
    url: str
    pid: int
    """The process whose descendants serve."""
    proxy: int | None
    """The proxy's own process."""

    def cpu_s(self) -> float:
        root = psutil.Process(self.pid)
        return sum(_cpu_s(process) for process in (root, *root.children(recursive=True)))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=200, help="pairs of blocks of requests (default 200)")
    parser.add_argument("--rounds", type=int, default=8, help="pairs of loads of spellcheck (default 8)")
    parser.add_argument("--seconds", type=float, default=2.0, help="of each load (default 2)")
    options = parser.parse_args()
    with _null_servers() as (front, proxy):
        null = _one_caller(front, proxy, NULL_REQUEST, options.pairs)
    with _spellcheck_servers() as (front, proxy):
        row = load_workload("spellcheck").payloads()[0]
        body = request_body(row)
        single = _one_caller(front, proxy, body, options.pairs // 4)
        rates = {str(n): _rates(front, proxy, body, n, options.rounds, options.seconds) for n in CONCURRENCY}
    goals = [
        ("adds at most 0.2 ms to the median", null["added_ms"] <= 0.2, null["added_ms"]),
        ("takes at most 60 us of CPU a request", null["least_proxy_cpu_us"] <= 60, null["least_proxy_cpu_us"]),
        *(
            (f"keeps 98 % of spellcheck's requests a second at {n}", found["ratio"] >= 0.98, found["ratio"])
            for n, found in rates.items()
            if n != "1"
        ),
    ]
    for name, found in (("null model", null), ("spellcheck", single)):
        print(f"{name}, one caller: {found['added_ms']:+.3f} ms to {found['front_ms']:.3f} ms, ", end="")
        print(f"proxy {found['proxy_cpu_us']:.0f} us of CPU, least {found['least_proxy_cpu_us']:.0f}, ", end="")
        print(f"all processes {found['added_cpu_us']:+.0f} us")
    for n, found in rates.items():
        print(f"spellcheck, {n} at once: {found['ratio']:.3f} of {found['front_per_s']:.0f} requests a second")
    for goal, met, got in goals:
        print(f"{'met    ' if met else 'NOT met'} {goal}: {got:g}")
    document = {
        "null": null,
        "spellcheck": single,
        "requests": rates,
        "load_average": os.getloadavg(),
        "machine": machine(["uvloop", "httptools"]),
        "goals": [{"goal": goal, "met": met, "got": got} for goal, met, got in goals],
    }
    print(json.dumps(document))
    return 0 if all(met for _, met, _ in goals) else 1


@contextmanager
def _null_servers() -> Iterator[tuple[Server, Server]]:
    with tempfile.TemporaryDirectory() as scratch:
        model = Path(scratch) / "repository" / "null"
        (model / "1").mkdir(parents=True)
        (model / "1" / "model.py").write_text(NULL_MODEL, "utf-8")
        (model / "config.pbtxt").write_text(NULL_CONFIG, "utf-8")
        with _servers(
            model.parent, "null", {"SAGEMAKER_TRITON_ADDITIONAL_ARGS": "--cache-config=local,size=1048576"}
        ) as both:
            yield both


@contextmanager
def _spellcheck_servers() -> Iterator[tuple[Server, Server]]:
    artifact = load_artifact(ROOT, "spellcheck", "cpu")
    repository = ROOT / "build" / "spellcheck" / "cpu" / "repository"
    with _servers(repository, artifact.default_model, dict(artifact.environment)) as both:
        yield both


@contextmanager
def _servers(repository: Path, model: str, environment: dict[str, str]) -> Iterator[tuple[Server, Server]]:
    """Yields the front end's and the proxy's."""
    flags = ["--allow-http=false", "--allow-grpc=false", "--allow-metrics=false"]
    flags += ["--allow-sagemaker=true", f"--sagemaker-port={PORT}"]
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        front = stack.enter_context(
            plain_triton(
                repository,
                default_model=model,
                environment=environment,
                flags=flags,
                url=f"http://127.0.0.1:{PORT}",
                ready="/ping",
            )
        )
        ours = stack.enter_context(
            TritonServer.start(
                repository, default_model=model, environment=environment, log_file=Path(folder) / "triton.log"
            )
        )
        parent = psutil.Process(ours.pid).ppid()
        yield (
            Server(url=front.url, pid=front.pid, proxy=None),
            Server(url=ours.sagemaker_url, pid=parent, proxy=parent),
        )


def _one_caller(front: Server, proxy: Server, body: bytes, pairs: int) -> dict[str, float]:
    """Returns medians over pairs of blocks, in ms, and CPU in us a request."""
    callers = {server.url: _Caller(server.url, body) for server in (front, proxy)}
    for caller in callers.values():
        caller.block(4 * BLOCK)
    assert proxy.proxy is not None
    own = psutil.Process(proxy.proxy)
    before, medians, own_us = {server.url: server.cpu_s() for server in (front, proxy)}, [], []
    for turn in range(pairs):
        order, start, got = (front, proxy) if turn % 2 else (proxy, front), _cpu_s(own), {}
        for server in order:
            got[server.url] = statistics.median(callers[server.url].block(BLOCK))
        medians.append((got[front.url], got[proxy.url]))
        own_us.append((_cpu_s(own) - start) / BLOCK * 1e6)
    count = pairs * BLOCK
    cpu = {server.url: (server.cpu_s() - before[server.url]) / count * 1e6 for server in (front, proxy)}
    return {
        "front_ms": round(statistics.median(each for each, _ in medians), 4),
        "proxy_ms": round(statistics.median(each for _, each in medians), 4),
        "added_ms": round(statistics.median(ours - theirs for theirs, ours in medians), 4),
        "ratio": round(statistics.median(ours / theirs for theirs, ours in medians), 3),
        "proxy_cpu_us": round(statistics.median(own_us), 1),
        "least_proxy_cpu_us": round(statistics.quantiles(own_us, n=10)[0], 1),
        "added_cpu_us": round(cpu[proxy.url] - cpu[front.url], 1),
        "pairs": pairs,
    }


class _Caller:
    """One kept connection that sends the same request again and again."""

    def __init__(self, url: str, body: bytes) -> None:
        place = urlsplit(url)
        assert place.hostname is not None
        head = f"POST {place.path}/invocations HTTP/1.1\r\nHost: {place.netloc}\r\nContent-Type: application/json\r\n"
        self._request = f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body
        self._socket = socket.create_connection((place.hostname, place.port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def block(self, count: int) -> list[float]:
        milliseconds = []
        for _ in range(count):
            start = time.perf_counter()
            self._socket.sendall(self._request)
            answer = self._socket.recv(65536)
            milliseconds.append((time.perf_counter() - start) * 1000)
            if not answer.startswith(b"HTTP/1.1 200"):
                raise SystemExit(f"not an answer: {answer[:300]!r}")
        return milliseconds


def _rates(
    front: Server, proxy: Server, body: bytes, concurrency: int, rounds: int, seconds: float
) -> dict[str, float]:
    seen, cpu_us = [], []
    for turn in range(rounds):
        order = (front, proxy) if turn % 2 else (proxy, front)
        got = {}
        for server in order:
            before = server.cpu_s()
            got[server.url] = (rate := _rate(server.url, body, concurrency, seconds)), before, server.cpu_s(), rate
        seen.append((got[front.url][0], got[proxy.url][0]))
        each_cpu = [(end - start) / (rate * seconds) * 1e6 for _, start, end, rate in (got[front.url], got[proxy.url])]
        cpu_us.append((each_cpu[0], each_cpu[1]))
    return {
        "front_per_s": round(statistics.median(each for each, _ in seen), 1),
        "proxy_per_s": round(statistics.median(each for _, each in seen), 1),
        "ratio": round(statistics.median(ours / theirs for theirs, ours in seen), 3),
        "front_cpu_us": round(statistics.median(each for each, _ in cpu_us)),
        "proxy_cpu_us": round(statistics.median(each for _, each in cpu_us)),
        "rounds": rounds,
    }


def _rate(url: str, body: bytes, concurrency: int, seconds: float) -> float:
    with tempfile.TemporaryDirectory() as folder:
        sent, out = Path(folder, "body"), Path(folder, "out")
        sent.write_bytes(body)
        program = Path(__file__).with_name("bare_loop.py")
        command = [sys.executable, program, f"{url}/invocations", str(concurrency), str(seconds), sent, out]
        subprocess.run(command, check=True)
        # It leaves out the first tenth.
        return len(json.loads(out.read_text())) / 0.9 / seconds


def _cpu_s(process: psutil.Process) -> float:
    """Returns the CPU time of a process's threads in seconds; psutil has it in hundredths alone."""
    threads = Path(f"/proc/{process.pid}/task").glob("*/schedstat")
    return sum(int(thread.read_text().split()[0]) for thread in threads) / 1e9


if __name__ == "__main__":
    sys.exit(main())
