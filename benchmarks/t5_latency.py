"""Latency of T5 at batch 1, 9 tokens in and 11 out, greedy: us beside Hugging Face, Optimum ONNX Runtime, CTranslate2.

  python benchmarks/t5_latency.py                          both shapes, five rounds
  python benchmarks/t5_latency.py --shape t5-small --rounds 9

Weights are seeded and random, in the dimensions of t5-small and t5-base, the same for every engine. Every engine runs
alone in a process of its own, in turn, round after round, with 1 and with 2 threads; the faster count is shown. Each
has to give Hugging Face's tokens, or the program stops. Figures are milliseconds: the median over rounds of the median
call. `triton` is what a client on this machine sees of POST /invocations. What Triton adds is measured in pairs, a few
calls of the same engine inside the client and a few through the server in turn: on a shared machine the speed of memory
changes more from minute to minute than Triton costs. The limit beside them is the time that reading the weights takes,
the encoder's once and the decoder's once per token, at the bandwidth measured here on memory of that size. Prints a
table per shape and one JSON document on the last line. What else ran on the machine shows in `load_average`, taken
before the first round: above a tenth or two the figures are not to be trusted.

Optimum needs an older transformers than ours, so it has an environment of its own, without which it is left out:

  python3 -m venv build/venv-optimum
  bash scripts/install_locked.sh build/venv-optimum/bin/python benchmarks/optimum-requirements.txt torch
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))
from benchmarks import t5_checkpoint, t5_engines
from benchmarks.side_by_side import ROOT, alone, gigabytes_per_second, machine, pairs, timed

OPTIMUM_PYTHON = ROOT / "build" / "venv-optimum" / "bin" / "python"
THREADS = (1, 2)
TRITON = ", triton"  # ends the name of an engine that is asked through it
PAIRS = 8  # of each child
Pair = tuple[float, float]  # milliseconds inside the client and through Triton, one beside the other
BYTES_PER_WEIGHT = {"fp32": 4, "int8": 1}
GOALS = (
    # ours, beside, times faster
    ("ours int8", t5_engines.BASELINE, 8.0),
    ("ours int8", "ctranslate2 int8", 2.0),
    ("ours fp32", t5_engines.BASELINE, 3.0),
    ("ours fp32", "ctranslate2 fp32", 1.3),
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, help="runs of each engine, in turn (default 5)")
    parser.add_argument("--shape", choices=t5_checkpoint.SHAPES, help="this shape only")
    parser.add_argument("--engine", action="append", choices=t5_engines.ENGINES, help="only this; may be repeated")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--threads", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print(json.dumps(_child(options.child, options.folder, options.shape, options.threads)))
        return 0
    load = os.getloadavg()[0]
    shapes = [options.shape] if options.shape else list(t5_checkpoint.SHAPES)
    engines = options.engine or list(t5_engines.ENGINES)
    left_out = {e: reason for e in engines if (reason := t5_engines.missing(e, OPTIMUM_PYTHON))}
    results = {shape: _compare(shape, [e for e in engines if e not in left_out], options.rounds) for shape in shapes}
    for engine, reason in left_out.items():
        print(f"{engine} is left out: {reason}.")
    versions = machine(("ctranslate2", "numpy", "onnxruntime", "torch", "transformers"))
    print(
        json.dumps(
            {"benchmark": "t5_latency", **versions, "load_average": load, "left_out": left_out, "shapes": results}
        )
    )
    return 0


def _child(task: str, folder: Path, shape: str, threads: int) -> Any:
    if task == "make":
        case = t5_checkpoint.make(folder / "checkpoint", shape)
        (folder / "case.json").write_text(json.dumps(case))
        return None
    if task == "prepare":
        return t5_engines.prepare(folder)
    case = json.loads((folder / "case.json").read_text())
    if task == "bandwidth":
        sizes = {precision: case["decoder_weights"] * size for precision, size in BYTES_PER_WEIGHT.items()}
        return {precision: gigabytes_per_second(size, threads) for precision, size in sizes.items()}
    with t5_engines.ENGINES[task](folder, case, threads) as ask:
        answer = {"tokens": ask(), "ms": timed(ask, warm_up=3, at_least=10, seconds=1.0)}
        if not task.endswith(TRITON):
            return answer
        with t5_engines.ENGINES[task.removesuffix(TRITON)](folder, case, threads) as inside:
            return {**answer, "pairs": pairs(inside, ask, number=PAIRS)}


def _compare(shape: str, engines: list[str], rounds: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="t5_latency_") as name:
        folder = Path(name)
        for task in ("make", "prepare"):
            _run(task, folder, shape, max(THREADS))
        case = json.loads((folder / "case.json").read_text())
        measured: dict[str, dict[int, list[float]]] = {e: {threads: [] for threads in THREADS} for e in engines}
        beside: dict[str, dict[int, list[Pair]]] = {e: {threads: [] for threads in THREADS} for e in engines}
        bandwidth: dict[str, list[float]] = {precision: [] for precision in BYTES_PER_WEIGHT}
        for _ in range(rounds):
            for precision, gigabytes in _run("bandwidth", folder, shape, max(THREADS)).items():
                bandwidth[precision].append(gigabytes)
            for engine in engines:
                for threads in THREADS:
                    answer = _ask(engine, folder, shape, threads, case)
                    measured[engine][threads].append(statistics.median(answer["ms"]))
                    beside[engine][threads] += answer.get("pairs", [])
    best = {engine: min(THREADS, key=lambda t, e=engine: statistics.median(measured[e][t])) for engine in engines}
    result = _summary(
        case,
        {engine: measured[engine][best[engine]] for engine in engines},
        best,
        {engine: _added(beside[engine][best[engine]]) for engine in engines if engine.endswith(TRITON)},
        {p: statistics.median(v) for p, v in bandwidth.items()},
    )
    _print(shape, result)
    return result


def _run(task: str, folder: Path, shape: str, threads: int) -> Any:
    arguments = ("--child", task, "--folder", str(folder), "--shape", shape, "--threads", str(threads))
    return alone(Path(__file__), *arguments, threads=threads, python=t5_engines.python_of(task, OPTIMUM_PYTHON))


def _ask(engine: str, folder: Path, shape: str, threads: int, case: Any) -> Any:
    answer = _run(engine, folder, shape, threads)
    if answer["tokens"] != case["output"]:
        raise SystemExit(f"{engine} ({shape}, {threads} threads) gives other tokens: {answer['tokens']}, {case}")
    return answer


def _added(measured: list[Pair]) -> dict[str, float]:
    """Returns what Triton adds to a call: the median of the pairs' differences, and the bounds of their middle half."""
    low, middle, high = statistics.quantiles([through - inside for inside, through in measured], n=4)
    inside = statistics.median(inside for inside, _ in measured)
    return {"pairs": len(measured), "inside_ms": inside, "added_ms": middle, "from_ms": low, "to_ms": high}


def _summary(
    case: Any,
    measured: dict[str, list[float]],
    threads: dict[str, int],
    added: dict[str, dict[str, float]],
    bandwidth: dict[str, float],
) -> dict[str, Any]:
    medians = {engine: statistics.median(values) for engine, values in measured.items()}
    limits = {
        precision: size
        * (case["encoder_weights"] + case["decoder_weights"] * len(case["output"]))
        / bandwidth[precision]
        / 1e6
        for precision, size in BYTES_PER_WEIGHT.items()
    }
    return {
        "input_tokens": len(case["source"]),
        "output_tokens": len(case["output"]),
        "limit": {
            precision: {
                "bytes_per_token": case["decoder_weights"] * size,
                "gigabytes_per_second": round(bandwidth[precision], 1),
                "ms": round(limits[precision], 2),
            }
            for precision, size in BYTES_PER_WEIGHT.items()
        },
        "engines": {
            engine: {
                "p50_ms": round(medians[engine], 2),
                "lowest_ms": round(min(values), 2),
                "highest_ms": round(max(values), 2),
                "threads": threads[engine],
                "times_faster_than_huggingface": _ratio(medians, engine, t5_engines.BASELINE),
                "times_the_limit": round(medians[engine] / limits["int8" if "int8" in engine else "fp32"], 2),
            }
            for engine, values in measured.items()
        },
        "triton_adds": {engine: {key: round(value, 2) for key, value in row.items()} for engine, row in added.items()},
        "goals": _goals(medians, added),
    }


def _ratio(medians: dict[str, float], engine: str, beside: str) -> float | None:
    """Returns how many times faster `engine` is."""
    return round(medians[beside] / medians[engine], 2) if {engine, beside} <= medians.keys() else None


def _goals(medians: dict[str, float], added: dict[str, dict[str, float]]) -> list[dict[str, Any]]:
    goals: list[dict[str, Any]] = []
    for ours, beside, wanted in GOALS:
        if (ratio := _ratio(medians, ours, beside)) is not None:
            goals.append({"goal": f"{ours} ≥ {wanted} × {beside}", "got": ratio, "met": ratio >= wanted})
    for engine, row in added.items():
        goal = f"Triton adds at most 10 % + 1 ms to {engine.removesuffix(TRITON)}"
        met = row["added_ms"] <= 0.1 * row["inside_ms"] + 1
        goals.append({"goal": goal, "got": round(row["added_ms"], 2), "met": met})
    return goals


def _print(shape: str, result: dict[str, Any]) -> None:
    print(f"{shape:24}{'p50 ms':>10}{'lowest':>10}{'highest':>10}{'threads':>9}{'× HF':>8}{'× limit':>9}")
    for engine, row in result["engines"].items():
        print(
            f"{engine:24}{row['p50_ms']:>10}{row['lowest_ms']:>10}{row['highest_ms']:>10}{row['threads']:>9}"
            f"{row['times_faster_than_huggingface'] or '-':>8}{row['times_the_limit']:>9}"
        )
    for precision, limit in result["limit"].items():
        print(
            f"limit {precision}: {limit['ms']} ms, {limit['bytes_per_token'] / 1e6:.0f} MB per token "
            f"at {limit['gigabytes_per_second']} GB/s"
        )
    for engine, row in result["triton_adds"].items():
        print(
            f"{engine}: {row['added_ms']} ms added to {row['inside_ms']} ms, the middle half of {row['pairs']} pairs "
            f"from {row['from_ms']} to {row['to_ms']} ms"
        )
    for goal in result["goals"]:
        print(f"{'met    ' if goal['met'] else 'NOT met'} {goal['goal']}: {goal['got']}")
    print()


if __name__ == "__main__":
    sys.exit(main())
