"""Compares a fresh server's first requests with its later ones, with the generated warm-up and without.

For every workload built for `cpu`: a fresh Triton, then one request of each batch size that the scheduler aims at, then
the same again and again. The figure is first / steady, the median over several fresh servers; the steady state is the
median of the requests that follow. The largest rows of the evaluation are asked, as the warm-up was made from them.

    python benchmarks/warm_up.py [--rounds N] [WORKLOAD ...]

Exits with 1 when a warmed first request took more than FACTOR times the steady one. The last line is one JSON document.
"""

import argparse
import json
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path

from local_aws.process.triton import TritonServer
from model_build.triton.config_pbtxt import warm_up_sizes
from workloads import ROOT, Row, load_artifact, load_workload, workload_names

FACTOR = 3.0
STEADY_REQUESTS = 30


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workloads", nargs="*", metavar="WORKLOAD", help="default: all that are built for cpu")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    names = options.workloads or [
        name for name in workload_names(ROOT / "workloads") if (ROOT / "build" / name / "cpu/artifact.json").exists()
    ]
    results = {name: measure(name, options.rounds) for name in names}
    print(f"{'workload':20} {'rows':>4} {'steady ms':>10} {'first/steady':>13} {'without warm-up':>16}")
    for name, sizes in results.items():
        for size, figures in sizes.items():
            steady, warm, cold = (figures[key] for key in ("steady_ms", "first_to_steady", "first_to_steady_cold"))
            print(f"{name:20} {size:4} {steady:10.2f} {warm:13.2f} {cold:16.2f}")
    worst = max(figures["first_to_steady"] for sizes in results.values() for figures in sizes.values())
    print(f"The worst warmed first request took {worst:.2f} times the steady one; at most {FACTOR} is allowed.")
    print(json.dumps({"factor_allowed": FACTOR, "worst": worst, "workloads": results}))
    return int(worst > FACTOR)


def measure(name: str, rounds: int) -> dict[int, dict[str, float]]:
    """Returns the ratios for each batch size. Warmed and cold servers take turns."""
    workload = load_workload(name)
    sizes = warm_up_sizes(workload.workload.serving)
    longest = max((example.row for example in workload.evaluation()), key=lambda row: sum(map(len, row.values())))
    bodies = {size: body([longest] * size) for size in sizes}
    seen: dict[bool, list[dict[int, tuple[float, float]]]] = {True: [], False: []}
    for _ in range(rounds):
        for warm in (True, False):
            seen[warm].append(one_server(name, bodies, warm=warm))
    return {
        size: {
            "steady_ms": statistics.median(figures[size][1] for figures in seen[True]),
            "first_to_steady": statistics.median(figures[size][0] / figures[size][1] for figures in seen[True]),
            "first_to_steady_cold": statistics.median(figures[size][0] / figures[size][1] for figures in seen[False]),
        }
        for size in sizes
    }


def one_server(name: str, bodies: dict[int, bytes], *, warm: bool) -> dict[int, tuple[float, float]]:
    """Returns the first and the steady latency in ms for each batch size."""
    artifact = load_artifact(ROOT, name, "cpu")
    with tempfile.TemporaryDirectory() as scratch:
        repository = Path(scratch) / "repository"
        shutil.copytree(ROOT / "build" / name / "cpu" / "repository", repository)
        if not warm:
            without_warm_up(repository)
        with TritonServer.start(
            repository,
            default_model=artifact.default_model,
            environment=artifact.environment,
            log_file=Path(scratch) / "triton.log",
        ) as server:
            firsts = {size: ask(server, sent) for size, sent in bodies.items()}
            return {
                size: (firsts[size], statistics.median(ask(server, sent) for _ in range(STEADY_REQUESTS)))
                for size, sent in bodies.items()
            }


def without_warm_up(repository: Path) -> None:
    for file in repository.glob("*/config.pbtxt"):
        file.write_text(file.read_text("utf-8").partition("model_warmup {")[0], "utf-8")


def body(rows: list[Row]) -> bytes:
    tensors = [
        {"name": field.upper(), "shape": [len(rows), 1], "datatype": "BYTES", "data": [row[field] for row in rows]}
        for field in rows[0]
    ]
    return json.dumps({"inputs": tensors}).encode()


def ask(server: TritonServer, sent: bytes) -> float:
    """Returns the milliseconds until the answer is read."""
    start = time.perf_counter()
    answer = server.invoke(sent, {"Content-Type": "application/json"})
    taken = time.perf_counter() - start
    if answer.status != 200:
        raise RuntimeError(f"{answer.status}: {answer.body[:300]!r}")
    return taken * 1000


if __name__ == "__main__":
    sys.exit(main())
