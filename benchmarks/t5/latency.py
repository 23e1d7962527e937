"""Latency of T5 with 9 tokens in and 11 out, greedy: ours beside other projects, part by part.

  python benchmarks/t5/latency.py                          on CPU: both shapes, five rounds
  python benchmarks/t5/latency.py --device cuda            on an NVIDIA GPU: Hugging Face, ours on PyTorch and TensorRT

Weights are seeded and random, in the dimensions of t5-small and t5-base. Each engine has to return Hugging Face's
tokens. TensorRT's int8 has to return as many: it quantises activations, and random weights amplify the rounding.
Figures are milliseconds of the encoder, of the decoder for each token, and of the whole. `× limit` is the time
over that of reading the weights: the encoder's once and the decoder's for each token. `published` is the whole on the
same GPU with TensorRT 8.2. Exits with 3 if the GPU or an engine is missing, and prints what it needs.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))
from benchmarks import harness
from benchmarks.harness import BASELINE, Turns
from benchmarks.t5 import engines as t5_engines
from model_build.tensorrt import int8
from model_build.tensorrt.trtexec import Toolchain
from workloads import Unavailable
from workloads.program import exit_code

PROGRAM = Path(t5_engines.__file__)
THREADS = os.cpu_count() or 1
LIMITS = {"ours int8": 1.5, "ours fp16": 2.0}
"""At most this many times as long as reading the weights."""
COLUMNS = {"encoder_ms": 12, "encoder_times": 7, "token_ms": 12, "token_times": 7, "ms": 12, "times": 7}
COLUMNS |= {"times_the_limit": 9, "published_ms": 11}
"""Figures of the table with their widths."""
GOALS = (
    ("ours int8", BASELINE, 8.0),
    ("ours int8", "ctranslate2 int8", 2.0),
    ("ours fp32", BASELINE, 3.0),
    ("ours fp32", "ctranslate2 fp32", 1.3),
    ("ours fp16", BASELINE, 7.6),
)
PUBLISHED_MS = {
    gpu: {
        shape: dict(zip((BASELINE, "ours tensorrt fp32", "ours tensorrt fp16"), row, strict=True))
        for shape, row in rows.items()
    }
    for gpu, rows in {
        "Tesla T4": {"t5-small": (30.71, 7.54, 5.91), "t5-base": (78.44, 19.59, 13.76)},
        "NVIDIA A10G": {"t5-small": (24.22, 3.99, 3.19), "t5-base": (59.98, 11.32, 8.46)},
    }.items()
}
"""End to end by GPU and shape, from AWS's post on T5 at Amazon Search (2022), where TensorRT was 8.2."""


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=t5_engines.ENGINES, default="cpu", help="cuda: an NVIDIA GPU of any kind")
    parser.add_argument("--rounds", type=int, default=5, help="turns of each engine (default 5)")
    parser.add_argument("--shape", choices=t5_engines.SHAPES, action="append", help="only this; may be repeated")
    options = parser.parse_args(arguments)
    device, missing = (_gpu(), missing_engines()) if options.device == "cuda" else ("cpu", {})
    for name, reason in missing.items():
        print(f"missing: {name}: {reason}", file=sys.stderr)
    names = harness.present(name for name in t5_engines.ENGINES[options.device] if name not in missing)
    results = {shape: _compare(shape, names, options, device) for shape in options.shape or t5_engines.SHAPES}
    goals = [goal for result in results.values() for goal in result["goals"]]
    about = {"device": device, "threads": THREADS, "shapes": results, "missing": missing}
    code = harness.finish("t5_latency", harness.PACKAGES, about, goals)
    return Unavailable.exit_code if missing else code


def _gpu() -> str:
    """Returns the name of the GPU. Raises `Unavailable` if torch finds none."""
    import torch

    if not torch.cuda.is_available():
        reasons = sorted(set(missing_engines().values()))
        tensorrt = f" TensorRT's engines are missing, too: {' '.join(reasons)}" if reasons else ""
        raise Unavailable(
            f"--device cuda needs an NVIDIA GPU, and torch {torch.__version__} finds none. Run it on a machine with a "
            f"GPU and a torch built for CUDA.{tensorrt}"
        )
    return str(torch.cuda.get_device_name())


def missing_engines() -> dict[str, str]:
    """Returns the engines on TensorRT that this machine cannot build, with what they need."""
    names = [name for name in t5_engines.ENGINES["cuda"] if name.startswith(t5_engines.TENSORRT)]
    try:
        Toolchain.here()
    except Unavailable as error:
        advice = "Run it in a Triton image, or `pip install tensorrt-cu12 cuda-bindings`."
        return dict.fromkeys(names, f"{str(error).removesuffix('.')}. {advice}")
    try:
        int8.check_installed()
    except Unavailable as error:
        return {name: str(error) for name in names if name.endswith("int8")}
    return {}


def _compare(shape: str, names: list[str], options: argparse.Namespace, device: str) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="t5_latency_") as name:
        arguments = f"{shape} {options.device}", name
        for task in ("checkpoint", "compiled", *(each for each in names if harness.is_peer(each))):
            harness.make(PROGRAM, task, *arguments, threads=THREADS)
        built = {each: _build(each, arguments) for each in names if each.startswith(t5_engines.TENSORRT)}
        names = [each for each in names if built.get(each, True)]
        precisions = sorted({name.removesuffix(t5_engines.TRITON).split()[-1] for name in names})
        case = json.loads(Path(name, "checkpoint", t5_engines.CASE).read_text("utf-8"))
        readings = [f"reading {precision}" for precision in precisions]
        with harness.started(PROGRAM, [*names, *readings], *arguments, threads=THREADS) as started:
            answers = {engine.name: engine.answer("answer") for engine in started[: len(names)]}
            right = {name: _same(name, tokens, case["output"]) for name, tokens in answers.items()}
            engines = [engine for engine in started if right.get(engine.name, True)]
            whole = harness.in_turn(engines, "answer", options.rounds)
            parts = [engine for engine in engines if engine.name in names and engine.answer("has encoder")]
            encoding = harness.in_turn(parts, "encode", options.rounds)
    result = summary(shape, whole, encoding, case, PUBLISHED_MS.get(device, {}).get(shape, {}))
    for checks, text in ((built, "its engine is built"), (right, "returns Hugging Face's tokens")):
        failed = [name for name, passed in checks.items() if not passed]
        result["goals"] += [{"goal": f"{shape}: {name}: {text}", "got": 0, "met": False} for name in failed]
    print(table(shape, result), end="\n\n", flush=True)
    return result


def _same(name: str, tokens: list[int], output: list[int]) -> bool:
    return len(tokens) == len(output) if name == f"{t5_engines.TENSORRT} int8" else tokens == output


def _build(name: str, arguments: tuple[str, str]) -> bool:
    """Builds an engine on TensorRT. The builder's messages go to stderr."""
    try:
        return harness.make(PROGRAM, name, *arguments, threads=THREADS)
    except subprocess.CalledProcessError:
        return False


def summary(
    shape: str, whole: Turns, encoding: Turns, case: dict[str, Any], published: Mapping[str, float]
) -> dict[str, Any]:
    """Returns each engine's figures and the goals. `whole` has the turns of `reading PRECISION` too.

    `published` has milliseconds by engine; their ratios to the baseline are goals.
    """
    tokens = len(case["output"])
    names = [name for name in whole if not name.startswith("reading")]
    rows: dict[str, dict[str, Any]] = {}
    for name in names:
        row: dict[str, Any] = {"ms": harness.median_ms(whole[name])}
        row["times"] = harness.times_faster(whole, name, BASELINE).ms
        if name in encoding:
            row["encoder_ms"] = harness.median_ms(encoding[name])
            row["encoder_times"] = harness.times_faster(encoding, name, BASELINE).ms
            row["token_ms"] = (row["ms"] - row["encoder_ms"]) / tokens
        if name.endswith(t5_engines.TRITON) and (inside := name.removesuffix(t5_engines.TRITON)) in whole:
            pairs = zip(whole[name], whole[inside], strict=True)
            row["added_ms"] = statistics.median(through.ms - alone.ms for through, alone in pairs)
            row["inside_ms"] = harness.median_ms(whole[inside])
        elif not name.endswith(t5_engines.TRITON):
            row["times_the_limit"] = harness.times_faster(whole, f"reading {name.split()[-1]}", name).ms
        if name in published:
            row["published_ms"] = published[name]
        rows[name] = row
    for row in rows.values():
        if "token_ms" in row:
            row["token_times"] = rows[BASELINE]["token_ms"] / row["token_ms"]
    ratios = ((name, BASELINE, published[BASELINE] / ms) for name, ms in published.items() if name != BASELINE)
    turns = {name: whole[name] for name in names}
    goals = harness.summary(shape, turns, BASELINE, (*GOALS, *ratios))["goals"]
    return {"engines": rows, "goals": [*goals, *_limits(shape, rows)]}


def _limits(shape: str, rows: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    goals = []
    for name, most in LIMITS.items():
        if name in rows:
            times = rows[name]["times_the_limit"]
            goals.append({"goal": f"{shape}: {name} ≤ {most} × the limit", "got": times, "met": times <= most})
    for name, row in rows.items():
        if "added_ms" in row:
            most_ms, engine = 0.1 * row["inside_ms"] + 1, name.removesuffix(t5_engines.TRITON)
            goal = f"{shape}: Triton adds at most {most_ms:.2f} ms to {engine}"
            goals.append({"goal": goal, "got": row["added_ms"], "met": row["added_ms"] <= most_ms})
    return goals


def table(shape: str, result: dict[str, Any]) -> str:
    """Returns a line for each engine with its figures and speed-ups."""
    heads = "".join(f"{head:>12}{'×':>7}" for head in ("encoder", "a token", "end to end"))
    lines = [f"{shape:26}{heads}{'× limit':>9}{'published':>11}"]
    for name, row in result["engines"].items():
        cells = [f"{row[key]:{width}.2f}" if key in row else f"{'-':>{width}}" for key, width in COLUMNS.items()]
        lines.append(f"{name:26}" + "".join(cells))
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(exit_code(main))
