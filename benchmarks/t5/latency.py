"""Latency of T5 at batch 1, 9 tokens in and 11 out, greedy: ours beside its peers, part by part.

  python benchmarks/t5/latency.py                          on CPU: both shapes, five rounds
  python benchmarks/t5/latency.py --shape t5-small --rounds 9
  python benchmarks/t5/latency.py --device cuda            on an NVIDIA GPU: Hugging Face eager and compiled, and ours

Weights are seeded and random, in the dimensions of t5-small and t5-base, the same for every engine. Every engine runs
alone in a process of its own, in turn, round after round, on CPU with 1 and with 2 threads; the faster count is shown.
Each has to give Hugging Face's tokens, or the program stops. Figures are milliseconds, medians over rounds of the
median call: of the encoder, of the decoder for each token, and from end to end, each with its speed-up over Hugging
Face in fp32. Our encoder makes the decoder's cross keys and values, too; Hugging Face makes them with the first token.

On a shared machine the speed of memory changes more from minute to minute than what is compared, so two figures come
from pairs, a few calls of one and a few of the other in turn. `× limit` is how many times as long an answer takes as
reading its weights, the encoder's once and the decoder's once per token, with as many threads; beside it is the
bandwidth of this reading. On a GPU the limit has a launch and a wait for each reading. `triton` is what a client on
this machine sees of POST /invocations, beside calls of the same engine inside the client. On a GPU ours is the static
decoder in PyTorch's CUDA graphs, and in ONNX Runtime's where its CUDA provider is installed.

Prints a table, the goals and one JSON document on the last line. What else ran on the machine shows in `load_average`,
taken before the first round: above a tenth or two only ratios are to be trusted. Exits with 3 where `--device cuda`
finds no GPU.

Optimum needs an older transformers than ours, so it has an environment of its own, which `make peers` makes and without
which it is left out.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))
from benchmarks.side_by_side import alone, machine
from benchmarks.t5 import checkpoint as t5_checkpoint
from benchmarks.t5 import engines as t5_engines
from benchmarks.turns import PEERS_PYTHON
from workloads import Unavailable
from workloads.program import exit_code

THREADS: dict[t5_engines.Device, tuple[int, ...]] = {"cpu": (1, 2), "cuda": (1,)}
PACKAGES: dict[t5_engines.Device, tuple[str, ...]] = {
    "cpu": ("ctranslate2", "numpy", "onnxruntime", "torch", "transformers"),
    "cuda": ("torch", "transformers"),
}
COLUMNS = {"encoder_ms": "encoder", "token_ms": "a token", "p50_ms": "end to end"}
LIMITS = {"ours int8": 1.5, "ours fp16": 2.0}  # times as long as reading the weights takes, at most
GOALS = (
    # ours, beside, times faster
    ("ours int8", t5_engines.BASELINE, 8.0),
    ("ours int8", "ctranslate2 int8", 2.0),
    ("ours fp32", t5_engines.BASELINE, 3.0),
    ("ours fp32", "ctranslate2 fp32", 1.3),
    ("ours fp16", t5_engines.BASELINE, 7.6),
)
Row = dict[str, Any]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    known = sorted({engine for engines in t5_engines.ENGINES.values() for engine in engines})
    parser.add_argument("--device", choices=t5_engines.ENGINES, default="cpu", help="cuda: an NVIDIA GPU of any kind")
    parser.add_argument("--rounds", type=int, default=5, help="runs of each engine, in turn (default 5)")
    parser.add_argument("--shape", choices=t5_checkpoint.SHAPES, help="this shape only")
    parser.add_argument("--engine", action="append", choices=known, help="only this; may be repeated")
    options = parser.parse_args(arguments)
    device = _gpu() if options.device == "cuda" else "cpu"
    load = os.getloadavg()[0]
    offered = t5_engines.ENGINES[options.device]
    engines = options.engine or list(offered)
    if unknown := [engine for engine in engines if engine not in offered]:
        parser.error(f"--device {options.device} offers no {unknown[0]}, only {', '.join(offered)}.")
    left_out = {e: reason for e in engines if (reason := t5_engines.missing(e, PEERS_PYTHON))}
    shapes = [options.shape] if options.shape else list(t5_checkpoint.SHAPES)
    results = {shape: _compare(shape, [e for e in engines if e not in left_out], options) for shape in shapes}
    for shape, result in results.items():
        print(table(shape, result["engines"]), *_remarks(result), sep="\n", end="\n\n")
    for engine, reason in left_out.items():
        print(f"{engine} is left out: {reason}.")
    about = {"benchmark": "t5_latency", **machine(PACKAGES[options.device]), "device": device, "load_average": load}
    print(json.dumps({**about, "left_out": left_out, "shapes": results}))
    return 0


def _gpu() -> str:
    """Returns the name of the GPU. Raises `Unavailable` where torch finds none."""
    import torch

    if not torch.cuda.is_available():
        raise Unavailable(
            f"--device cuda needs an NVIDIA GPU, and torch {torch.__version__} finds none: run it on a machine that "
            "has one, with a torch built for CUDA."
        )
    return torch.cuda.get_device_name()


def _compare(shape: str, engines: list[str], options: argparse.Namespace) -> dict[str, Any]:
    counts = THREADS[options.device]
    with tempfile.TemporaryDirectory(prefix="t5_latency_") as name:
        folder = Path(name)

        def run(task: str, threads: int) -> Any:
            python = t5_engines.python_of(task, PEERS_PYTHON)
            program, arguments = Path(t5_engines.__file__), (task, name, shape, options.device, str(threads))
            return alone(program, *arguments, threads=threads, python=python)

        for task in ("make", "prepare"):
            run(task, max(counts))
        case = json.loads((folder / "case.json").read_text())
        answers: dict[str, dict[int, list[Any]]] = {e: {threads: [] for threads in counts} for e in engines}
        for _ in range(options.rounds):
            for engine in engines:
                for threads in counts:
                    answer = run(engine, threads)
                    if answer["tokens"] != case["output"]:
                        raise SystemExit(f"{engine} ({shape}, {threads} threads) gives other tokens: {answer}, {case}")
                    answers[engine][threads].append(answer)
    return summary(case, answers)


def summary(case: Any, answers: dict[str, dict[int, list[Any]]]) -> dict[str, Any]:
    """Returns a row for each engine at its faster number of threads, and the goals. `answers` are those of children."""
    rows: dict[str, Row] = {}
    for engine, by_threads in answers.items():
        made = {threads: _row(engine, each, case) | {"threads": threads} for threads, each in by_threads.items()}
        rows[engine] = min(made.values(), key=lambda row: row["p50_ms"])
    for row in rows.values():
        row["speed_up"] = {column: _ratio(rows.get(t5_engines.BASELINE, {}), row, column) for column in COLUMNS}
    sizes = {key: case[key] for key in ("encoder_weights", "decoder_weights")}
    tokens = {"input_tokens": len(case["source"]), "output_tokens": len(case["output"])}
    return {**tokens, **sizes, "engines": rows, "goals": _goals(rows)}


def _row(engine: str, rounds: list[Any], case: Any) -> Row:
    values = [statistics.median(ms for _, ms in each["pairs"]) for each in rounds]
    row: Row = {"p50_ms": statistics.median(values), "lowest_ms": min(values), "highest_ms": max(values)}
    if stages := [stage for each in rounds for stage in each["stages"]]:
        row |= {
            "encoder_ms": statistics.median(e for e, _ in stages),
            "token_ms": statistics.median(t for _, t in stages),
        }
    beside = [pair for each in rounds for pair in each["pairs"]]
    other_ms = statistics.median(other for other, _ in beside)
    if engine.endswith(t5_engines.TRITON):
        low, middle, high = statistics.quantiles([ms - inside for inside, ms in beside], n=4)
        return row | {"inside_ms": other_ms, "added_ms": middle, "added_from_ms": low, "added_to_ms": high}
    weights = case["encoder_weights"] + case["decoder_weights"] * len(case["output"])
    read = t5_engines.bytes_per_weight(engine) * weights
    ratio = statistics.median(ms / limit for limit, ms in beside)
    return row | {"limit_ms": other_ms, "times_the_limit": ratio, "gigabytes_per_second": read / other_ms / 1e6}


def _ratio(beside: Row, row: Row, column: str) -> float | None:
    """Returns how many times faster `row` is in this column, where both have been timed."""
    return beside[column] / row[column] if column in beside and column in row else None


def _goals(rows: dict[str, Row]) -> list[dict[str, Any]]:
    goals: list[dict[str, Any]] = []
    for ours, beside, wanted in GOALS:
        if (ratio := _ratio(rows.get(beside, {}), rows.get(ours, {}), "p50_ms")) is not None:
            goals.append({"goal": f"{ours} ≥ {wanted} × {beside}", "got": ratio, "met": ratio >= wanted})
    for ours, most in LIMITS.items():
        if row := rows.get(ours):
            ratio = row["times_the_limit"]
            goals.append({"goal": f"{ours} ≤ {most} × the limit", "got": ratio, "met": ratio <= most})
    for engine, row in rows.items():
        if engine.endswith(t5_engines.TRITON):
            goal, most_ms = engine.removesuffix(t5_engines.TRITON), 0.1 * row["inside_ms"] + 1
            met = row["added_ms"] <= most_ms
            goals.append(
                {"goal": f"Triton adds at most {most_ms:.2f} ms to {goal}", "got": row["added_ms"], "met": met}
            )
    return goals


def table(shape: str, rows: dict[str, Row]) -> str:
    """Returns one shape's table: a line for each engine, a figure and its speed-up for each part."""
    head = "".join(f"{name:>12}{'×':>7}" for name in COLUMNS.values())
    lines = [f"{shape:26}{head}{'threads':>9}{'× limit':>9}{'GB/s':>7}"]
    for engine, row in rows.items():
        parts = "".join(f"{_shown(row.get(c)):>12}{_shown(row['speed_up'][c]):>7}" for c in COLUMNS)
        limit = f"{_shown(row.get('times_the_limit')):>9}{_shown(row.get('gigabytes_per_second'), 1):>7}"
        lines.append(f"{engine:26}{parts}{row['threads']:>9}{limit}")
    return "\n".join(lines)


def _shown(value: float | None, digits: int = 2) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def _remarks(result: dict[str, Any]) -> list[str]:
    remarks = [
        f"{engine}: {row['added_ms']:.2f} ms added to {row['inside_ms']:.2f} ms, the middle half of the pairs from "
        f"{row['added_from_ms']:.2f} to {row['added_to_ms']:.2f} ms"
        for engine, row in result["engines"].items()
        if engine.endswith(t5_engines.TRITON)
    ]
    return remarks + [f"{'met    ' if g['met'] else 'NOT met'} {g['goal']}: {g['got']:.2f}" for g in result["goals"]]


if __name__ == "__main__":
    sys.exit(exit_code(main))
