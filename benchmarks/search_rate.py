"""16,000 requests a second to query_intent's server: CPU of several generators and of the server on this machine.

  python benchmarks/search_rate.py

The server is that of Inf1, with query_intent's settings, tokenizer and payloads. The device is a stand-in of 16
NeuronCores that takes `DEVICE_MS` a row on each and no CPU, so it is not the limit. The generators send one Poisson
process in shares, at an eighth, a quarter, half and all of the rate. A rate that is not reached ends the benchmark.

`CPU µs` is processor time for each request, and `cores` is processor time a second. At 16,000 requests a second each
side needs 0.016 cores for each `CPU µs`. Latencies count from the moment at which a request was due. Exits with 1 if a
rate is not reached or P99 is above query_intent's limit.
"""

import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))
from benchmarks import goals, harness
from benchmarks.goals import Goal
from benchmarks.harness import ROOT
from benchmarks.neuron_server import PAYLOADS, add_device, running_ours
from benchmarks.plain_triton import processor_s
from containers.encoder.goldens import PARITY, ParityLimits
from inference_recommender.load_generator.load_plan import Arrivals, LoadPlan, Share
from inference_recommender.load_generator.process import GeneratorProcess, Outcome
from inference_recommender.load_generator.summary import merge
from inference_recommender.payloads import payload_archive
from model_build.encoder.graphs import settings
from model_build.neuron import package
from model_build.plan import plan
from workloads import LatencyObjective, NeuronTarget, TextClassification, load_workload

WORKLOAD, TARGET = "query_intent", "inf1"
DEVICE_MS = "0.5"
PARTS = (8, 4, 2, 1)
START_S = 3.0
"""Seconds for all generators to start."""
REACHED = 0.98
"""Share of the rate that counts as reached: arrivals are random."""
COLUMNS = (
    ("asked", "asked/s", 0),
    ("reached", "reached/s", 0),
    ("p50_ms", "P50 ms", 2),
    ("p99_ms", "P99 ms", 2),
    ("generators_cpu_us", "generators: CPU µs", 1),
    ("generators_cores", "cores", 2),
    ("server_cpu_us", "server: CPU µs", 1),
    ("server_cores", "cores", 2),
)
"""Key, head and decimals of each figure."""


def main() -> int:
    numbers = {"rate": (16_000, "requests a second"), "generators": (4, "processes"), "seconds": (10, "of each rate")}
    options = harness.options(__doc__, **numbers)
    objective = load_workload(WORKLOAD).workload.objective
    assert isinstance(objective, LatencyObjective)
    rows: list[dict[str, float]] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_model(folder / "model")
        for part in PARTS:
            with running_ours(folder / "model", DEVICE_MS=DEVICE_MS) as (port, pid):
                rate = options.rate / part
                rows.append(measure(port, pid, rate, options.generators, options.seconds, folder / f"load-{part}"))
            if rows[-1]["reached"] < REACHED * rate:
                break
    return report(rows, options.rate, options.generators, objective.model_latency_ms)


def make_model(folder: Path) -> None:
    """Writes what the server of query_intent takes, with empty files for its graphs."""
    built = plan(load_workload(WORKLOAD), TARGET, ROOT)
    model, target = built.model, built.target
    assert isinstance(model, TextClassification)
    assert isinstance(target, NeuronTarget)
    folder.mkdir()
    files = {
        "settings.json": settings(model, target, built.checkpoint).to_json(),
        "server.json": package.server_settings(WORKLOAD, built.variant.serving, target).to_json(),
        "tokenizer.json": built.checkpoint.tokenizer.read_text("utf-8"),
        PARITY: ParityLimits(**target.parity.model_dump()).to_json(),
    }
    for name, text in files.items():
        (folder / name).write_text(text, "utf-8")
    add_device(folder, len(model.labels), target.sequence_lengths)
    (folder / PAYLOADS).write_bytes(payload_archive(built.source.payloads()))


def measure(port: int, pid: int, rate: float, generators: int, seconds: int, folder: Path) -> dict[str, float]:
    """Sends `rate` requests a second from several processes and returns what they and the server took."""
    common = LoadPlan(
        url=f"http://127.0.0.1:{port}/v2/models/{WORKLOAD}/infer",
        payloads=folder.parent / "model" / PAYLOADS,
        arrivals=Arrivals(invocations_per_minute=60 * rate, duration_in_seconds=seconds),
        start_at=time.time() + START_S,
    )
    before = processor_s(pid)
    with ExitStack() as stack:
        plans = [common.model_copy(update={"share": Share(index=at, of=generators)}) for at in range(generators)]
        started = [stack.enter_context(GeneratorProcess(each, folder / str(at))) for at, each in enumerate(plans)]
        outcomes = [generator.outcome() for generator in started]
    figures = summary(merge(outcomes, common, folder), outcomes, processor_s(pid) - before)
    print(f"… {rate:,.0f} requests/s: {figures['reached']:,.0f}", file=sys.stderr)
    return {"asked": rate, **figures}


def summary(merged: Outcome, outcomes: Sequence[Outcome], server_s: float) -> dict[str, float]:
    """Returns the figures of one rate; `server_s` is the server's processor time."""
    assert merged.summary
    runs: list[Mapping[str, Any]] = [outcome.summary for outcome in outcomes if outcome.summary]
    requests, longest_s = sum(run["invocations"] for run in runs), max(run["duration_s"] for run in runs)
    generators_s = sum(run["generator"]["cpu_share"] * run["duration_s"] for run in runs)
    latency = merged.summary["client_latency_from_intended_ms"]
    return {
        "reached": (merged.summary["invocations"] - merged.summary["errors"]) / merged.summary["duration_s"],
        "p50_ms": latency["p50"],
        "p99_ms": latency["p99"],
        "generators_cpu_us": generators_s / requests * 1e6,
        "generators_cores": generators_s / longest_s,
        "server_cpu_us": server_s / requests * 1e6,
        "server_cores": server_s / longest_s,
    }


def report(rows: Sequence[dict[str, float]], rate: float, generators: int, limit_ms: float) -> int:
    """Prints the table and what the last row means for `rate`. Returns the exit code."""
    print("  ".join(head for _, head, _ in COLUMNS))
    for row in rows:
        print("  ".join(f"{row[key]:{len(head)},.{decimals}f}" for key, head, decimals in COLUMNS))
    last = rows[-1]
    needs = {side: last[f"{side}_cpu_us"] * rate / 1e6 for side in ("generators", "server")}
    print(
        f"{rate:,} requests/s need {needs['generators']:.1f} cores for the {generators} generators and "
        f"{needs['server']:.1f} for the server."
    )
    judged = [
        Goal(cell=f"share of {rate:,} requests/s that is reached", figure=last["reached"] / rate, limit=REACHED),
        Goal(cell="P99 in ms", figure=last["p99_ms"], limit=limit_ms, at_most=True),
    ]
    return goals.finish("search_rate", ["httptools", "uvloop"], {"generators": generators, "rates": list(rows)}, judged)


if __name__ == "__main__":
    sys.exit(main())
