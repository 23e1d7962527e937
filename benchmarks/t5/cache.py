"""A T5 decoder's cache on CPU: the growing one that is served there, beside the static one of TensorRT.

  python benchmarks/t5/cache.py                     the spellcheck model and t5-small, five minutes
  python benchmarks/t5/cache.py --shape spellcheck

Both decoders are exported from one checkpoint, compiled for ONNX Runtime and fed their own tokens, 11 of them behind 9
of the source, with 32 places for the cache. Each has to give the other's tokens. Figures are medians over pairs, in
milliseconds of one thread; the ratio is the median of the pairs' ratios. One JSON document on the last line.
"""

import argparse
import json
import logging
import os
import statistics
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))
import numpy as np
import onnxruntime

from benchmarks.side_by_side import ROOT, machine, pairs
from benchmarks.t5 import checkpoint as t5_checkpoint
from model_build.text2text import export, optimise

SOURCE, TOKENS, PLACES = 9, 11, 32
BATCHES = (1, 8)
PAIRS = 12


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", choices=("spellcheck", "t5-small"), help="this shape only")
    options = parser.parse_args()
    logging.disable(logging.WARNING)  # exporter and quantiser tell of every node
    load = os.getloadavg()[0]
    shapes = [options.shape] if options.shape else ["spellcheck", "t5-small"]
    rows = [row for shape in shapes for row in _compare(shape)]
    versions = machine(("numpy", "onnxruntime"))
    print(json.dumps({"benchmark": "t5_cache", **versions, "load_average": load, "rows": rows}))
    return 0


def _compare(shape: str) -> list[dict[str, Any]]:
    spellcheck = shape == "spellcheck"
    model = export.load(ROOT / "workloads/spellcheck/checkpoint") if spellcheck else t5_checkpoint.make_model(shape)
    rows = []
    with tempfile.TemporaryDirectory(prefix="t5_cache_") as name:
        for static in (False, True):
            portable = Path(name, str(static))
            portable.mkdir()
            export.export(model, portable, max_input_tokens=64, max_output_tokens=PLACES, static=static)
        for precision in ("fp32", "int8"):
            decoders = [_session(Path(name, str(static)), precision) for static in (False, True)]
            rows += [_pair(shape, precision, batch, *decoders) for batch in BATCHES]
    return rows


def _session(portable: Path, precision: Any) -> onnxruntime.InferenceSession:
    compiled = portable / precision
    compiled.mkdir()
    optimise.optimise(portable, compiled, precision)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 3
    return onnxruntime.InferenceSession(str(compiled / "decoder.onnx"), options, providers=["CPUExecutionProvider"])


def _pair(
    shape: str, precision: str, batch: int, growing: onnxruntime.InferenceSession, static: onnxruntime.InferenceSession
) -> dict[str, Any]:
    calls = [_decoding(session, batch) for session in (growing, static)]
    if not np.array_equal(calls[0](), calls[1]()):
        raise SystemExit(f"{shape} {precision}: the two caches give different tokens")
    measured = pairs(calls[0], calls[1], number=PAIRS, calls=3)
    row = {
        "shape": shape,
        "precision": precision,
        "rows": batch,
        "growing_ms": round(statistics.median(ms for ms, _ in measured), 2),
        "static_ms": round(statistics.median(ms for _, ms in measured), 2),
        "static_over_growing": round(statistics.median(other / first for first, other in measured), 2),
    }
    print(" ".join(f"{value!s:>11}" for value in row.values()))
    return row


def _decoding(session: onnxruntime.InferenceSession, batch: int) -> Callable[[], Any]:
    """Returns a function that decodes `TOKENS` tokens of each row, in the way of the cache that the graph has."""
    cross, past = (next(i.shape for i in session.get_inputs() if i.name == name) for name in ("cross", "past"))
    static = isinstance(past[2], int)
    source = np.random.default_rng(0).standard_normal((batch, cross[1], SOURCE, cross[3]), np.float32)
    fixed = {"cross": source, "cross_bias": np.zeros((batch, 1, 1, SOURCE), np.float32)}
    empty = np.zeros((batch, past[1], past[2] if static else 0, past[3]), np.float32)
    outputs = ["next_tokens", "present", *(["next_position"] if static else [])]

    def decode() -> Any:
        fed: dict[str, Any] = {"tokens": np.zeros((batch, 1), np.int64), "past": empty}
        if static:
            fed["position"] = np.zeros(1, np.int64)
        said = []
        for _ in range(TOKENS):
            fed = dict(zip(("tokens", "past", "position"), session.run(outputs, fixed | fed), strict=False))
            said.append(fed["tokens"])
        return np.concatenate(said, 1)

    return decode


if __name__ == "__main__":
    sys.exit(main())
