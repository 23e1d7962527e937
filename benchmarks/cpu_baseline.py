"""Rows a second of BERT-base at 128 tokens on this machine's CPU, and what a row costs less on Inferentia beside it.

  python benchmarks/cpu_baseline.py

The model that AWS's tables of Inf1 have, with seeded random weights: PyTorch as it is, and traced and frozen as
TorchScript, in fp32. Every row has all 128 tokens. Each engine runs alone in a process of its own, in turn, round after
round, at the fastest of several batch sizes and numbers of threads, tried first; loading does not count. The fastest
engine's median is a baseline for `size --workload duplicates`, whose other side is the figure that AWS states for one
inf1.6xlarge. `--instance-type` is what this machine stands for: its price is that type's, its
speed this machine's own, so run it on that type. What else runs shows in `load_average`.

Prints the rates, the output of `size`, and one JSON document on the last line.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))
from benchmarks.side_by_side import ROOT, alone, machine

TOKENS = 128
BATCH_ROWS = (1, 6, 16)
ENGINES = ("pytorch", "torchscript")
INF1_ROWS_PER_SECOND = 4380
INF1_SOURCE = "AWS Neuron, Inf1 performance, 2024-09-16: BERT-base, 128 tokens, 1,095/s on inf1.xlarge, times 4 chips"
LEAST_CALLS = 2


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--instance-type", default="c5.xlarge", help="whose price counts (default c5.xlarge)")
    parser.add_argument("--rounds", type=int, default=3, help="runs of each engine, in turn (default 3)")
    parser.add_argument("--seconds", type=float, default=10.0, help="of each run (default 10)")
    parser.add_argument("--child", nargs=4, metavar=("ENGINE", "THREADS", "ROWS", "SECONDS"), help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.child:
        engine, threads, rows, seconds = options.child
        print(json.dumps(measured(engine, int(threads), int(rows), float(seconds))))
        return 0
    load = os.getloadavg()[0]
    best = {engine: _best(engine, options.seconds / 5) for engine in ENGINES}
    rounds = [
        {engine: _run(engine, *best[engine], options.seconds) for engine in ENGINES} for _ in range(options.rounds)
    ]
    rates = {engine: statistics.median(each[engine] for each in rounds) for engine in ENGINES}
    for engine, rate in rates.items():
        threads, rows = best[engine]
        print(f"{engine:12}{rate:8.2f} rows/s   {threads} threads, {rows} rows at once")
    about = machine(["torch", "transformers"])
    source = f"measured on {about['cpu']} with {about['cores']} cores: BERT-base, {TOKENS} tokens, fp32"
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", *scenario(Path(folder), max(rates.values()), source, options.instance_type)]
        said = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    print(said.stdout)
    settings = {engine: dict(zip(("threads", "rows_at_once"), best[engine], strict=True)) for engine in ENGINES}
    document = {"benchmark": "cpu_baseline", **about, "load_average": load, "instance_type": options.instance_type}
    print(json.dumps({**document, "rows_per_second": rates, "settings": settings}))
    return 0


def scenario(folder: Path, rows_per_second: float, source: str, instance_type: str) -> list[str]:
    """Returns the command that compares a row's cost on Inf1, at the rate that AWS states, with that of this baseline.

    Writes both rates into `folder`.
    """
    inf1, cpu = folder / "inf1.json", folder / "cpu.json"
    inf1.write_text(json.dumps({"rows_per_second": INF1_ROWS_PER_SECOND, "source": INF1_SOURCE}))
    rate = {"rows_per_second": round(rows_per_second, 1), "source": source, "instance_type": instance_type}
    cpu.write_text(json.dumps(rate))
    return ["inference_recommender", "size", "--workload", "duplicates", "--from", str(inf1), "--baseline", str(cpu)]


def measured(engine: str, threads: int, rows: int, seconds: float) -> float:
    """Returns rows a second over `seconds`, after a first call that does not count."""
    import torch

    torch.set_num_threads(threads)
    call = _model(engine, rows)
    with torch.no_grad():
        call()
        started, calls = time.perf_counter(), 0
        while calls < LEAST_CALLS or time.perf_counter() - started < seconds:
            call()
            calls += 1
        return calls * rows / (time.perf_counter() - started)


def _model(engine: str, rows: int) -> Callable[[], Any]:
    import torch
    from transformers import BertConfig, BertForSequenceClassification

    torch.manual_seed(0)
    network: Any = BertForSequenceClassification(BertConfig(return_dict=False)).eval()
    ids = torch.randint(1000, network.config.vocab_size, (rows, TOKENS))
    inputs = (ids, torch.ones_like(ids), torch.zeros_like(ids))
    if engine == "torchscript":
        jit: Any = torch.jit
        with torch.no_grad():
            network = jit.freeze(jit.trace(network, inputs))
    return lambda: network(*inputs)


def _best(engine: str, seconds: float) -> tuple[int, int]:
    """Returns the number of threads and of rows at once that answer most."""
    tried = [(threads, rows) for threads in sorted({1, os.cpu_count() or 1}) for rows in BATCH_ROWS]
    return max(tried, key=lambda setting: _run(engine, setting[0], setting[1], seconds))


def _run(engine: str, threads: int, rows: int, seconds: float) -> float:
    return float(alone(Path(__file__), "--child", engine, str(threads), str(rows), str(seconds), threads=threads))


if __name__ == "__main__":
    sys.exit(main())
