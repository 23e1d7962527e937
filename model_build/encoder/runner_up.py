"""Compares the CPU time of an encoder with that of the other CPU runtime: in turns, one row at a time."""

import time
from dataclasses import replace
from pathlib import Path
from statistics import median

from pydantic import TypeAdapter
from tokenizers import Tokenizer

from containers.encoder.engines import load_engine
from containers.encoder.engines.openvino_engine import CPUINFO, cpu_name
from containers.encoder.predictor import Predictor
from containers.encoder.preprocess import Preprocessor
from model_build.encoder.compile import compile_graphs
from model_build.encoder.graphs import settings
from model_build.plan import BuildPlan
from model_build.progress import Progress
from workloads import OnnxRuntimeTarget, OpenVinoTarget, UsageError
from workloads.artifact import RunnerUp

OTHERS = {"onnxruntime": "openvino", "openvino": "onnxruntime"}
ROWS, TURNS = 32, 9
CpuTarget = OnnxRuntimeTarget | OpenVinoTarget


def time_runner_up(plan: BuildPlan, graphs: Path, scratch: Path, progress: Progress) -> RunnerUp:
    """Compiles for the other runtime, in fp32 or else in int8. `graphs` is the folder of the plan's own model."""
    target = plan.target
    if not isinstance(target, CpuTarget) or plan.compile_inputs.backend != "encoder":
        raise UsageError(
            f"--compare-runtimes: {plan.variant_name} has no other runtime. Only encoders with runtime = "
            f"{' or '.join(OTHERS)} have. Leave it out."
        )
    keys = {"runtime": OTHERS[target.runtime], "precision": "fp32" if target.precision == "fp32" else "int8"}
    other = TypeAdapter[CpuTarget](CpuTarget).validate_python({**keys, "threads": target.threads})
    (compiled := scratch / "runner-up").mkdir()
    compile_graphs(replace(plan.compile_inputs, target=other), compiled, scratch, progress)
    progress(f"Timing {target.runtime} and {other.runtime}")
    pair = [_load(plan, graphs), _load(replace(plan, target=other), compiled)]
    turns = [[_turn(plan, predictor) for predictor in pair] for _ in range(TURNS)]
    times = median(theirs / own for own, theirs in turns[1:])  # the first turn warms up
    return RunnerUp.model_validate({**keys, "times_as_long": times, "cpu": cpu_name(CPUINFO)})


def _load(plan: BuildPlan, graphs: Path) -> Predictor:
    known = settings(plan.compile_inputs.encoder, plan.target, plan.checkpoint)
    tokenizer = Tokenizer.from_file(str(plan.checkpoint.tokenizer))
    return Predictor(Preprocessor(tokenizer, known), load_engine.load(graphs, known))


def _turn(plan: BuildPlan, predictor: Predictor) -> float:
    """Returns the CPU time for the rows, which other work on the machine changes less than the time by clock."""
    start = time.process_time()
    for example in plan.examples[:ROWS]:
        predictor.predict([example.row])
    return time.process_time() - start
