"""Measures the memory that a build of a BERT takes, as a multiple of its weights. Goal: at most 3.

    python benchmarks/build_memory.py [--architecture bert-large-uncased] [--target cpu]

A workload with random weights of the architecture's true size is built; the figure is the largest resident set of any
of the processes that take part, Python and torch included, over the size of the weights in fp32. The last line is one
JSON document.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

from workloads import ROOT

WORKLOAD = """\
name = "measured"
description = "Random weights of a published size"

[model]
task = "text-classification"
checkpoint = {{ architecture = "{architecture}", weights = "random" }}
max_input_tokens = 512
labels = ["negative", "positive"]

[quality]
min_accuracy = 0.0
min_macro_f1 = 0.0

[targets.cpu]
runtime = "onnxruntime"
instance_types = ["ml.c5.2xlarge"]
parity = {{ max_logit_difference = 1e-3 }}

[targets.cpu-int8]
runtime = "onnxruntime"
precision = "int8"
parity = {{ max_metric_drop = 1.0 }}

[targets.cpu-torchscript]
runtime = "torchscript"
parity = {{ max_logit_difference = 1e-3 }}

[objective]
percentile = "P95"
model_latency_ms = 500.0
peak_invocations_per_minute = 30_000

[hosting]
kind = "sagemaker-endpoint"
target = "cpu"
"""
BUILD = """
import json, sys
from pathlib import Path
from model_build.checkpoint.architectures import write_random
from workloads import load_workload
root = Path(sys.argv[1])
if sys.argv[2] == "weights":
    model = load_workload("measured", root / "workloads").workload.model
    folder = write_random(model.checkpoint, model, root / "build" / "checkpoints")
    print(json.dumps((folder / "model.safetensors").stat().st_size))
else:
    from model_build.build import build
    from model_build.plan import plan
    planned = plan(load_workload("measured", root / "workloads"), sys.argv[2], root)
    artifact = build(planned, lambda step: print(step, file=sys.stderr))
    print(artifact.model_dump_json())
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--architecture", default="bert-large-uncased", choices=["bert-base-uncased", "bert-large-uncased"]
    )
    parser.add_argument("--target", default="cpu", choices=["cpu", "cpu-int8", "cpu-torchscript"])
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        write_workload(Path(scratch) / "workloads" / "measured", options.architecture)
        weights = json.loads(child(scratch, "weights"))
        artifact = json.loads(child(scratch, options.target))
    # The largest of all processes so far, the one that wrote the weights included.
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    result = {
        "architecture": options.architecture,
        "target": options.target,
        "weights_mb": round(weights / 1e6),
        "peak_mb": round(peak * 1024 / 1e6),
        "ratio": round(peak * 1024 / weights, 2),
        "archive_mb": round(artifact["archive_bytes"] / 1e6),
        "max_logit_difference": artifact["parity"]["max_logit_difference"],
    }
    print(
        f"{result['architecture']}: weights {result['weights_mb']} MB, peak {result['peak_mb']} MB, "
        f"{result['ratio']} times the weights; goal: at most 3"
    )
    print(json.dumps(result))
    return 0


def write_workload(folder: Path, architecture: str) -> None:
    folder.mkdir(parents=True)
    (folder / "workload.toml").write_text(WORKLOAD.format(architecture=architecture))
    lines = [{"text": text, "label": "positive"} for text in ("it works", "it broke after a day and nobody answers")]
    (folder / "evaluation.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def child(root: str, what: str) -> str:
    done = subprocess.run([sys.executable, "-c", BUILD, root, what], cwd=ROOT, stdout=subprocess.PIPE, check=True)
    return done.stdout.decode()


if __name__ == "__main__":
    sys.exit(main())
