"""Serves the model in MODEL_FOLDER (/opt/ml/model) on HOST:PORT (0.0.0.0:8080); SAGEMAKER_BIND_TO_PORT names another
port.

With METRICS_STACK and METRICS_WORKLOAD it prints metrics for CloudWatch Logs every METRICS_PERIOD_S seconds (60).
NEURON_RT_VISIBLE_CORES or NEURON_RT_NUM_CORES limits the NeuronCores that are used; by default all of every device are.
Exit codes: 0 told to end; 2 a setting is wrong; 3 no model, no device, or a worker failed; 70 unforeseen, with a log.
"""

import os
import sys
from collections.abc import Mapping
from pathlib import Path

import uvloop

from ..encoder.load_engine import NEURON_GRAPHS
from ..encoder.settings import Settings
from ..errors import ContainerError, Unavailable, exit_code_of
from . import cores, launcher
from .server_settings import ServerSettings
from .telemetry import Telemetry

SINGLE_THREADED = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}


def main() -> int:
    try:
        uvloop.run(launcher.run(plan(os.environ)))
    except ContainerError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0


def plan(environment: Mapping[str, str]) -> launcher.Plan:
    """Reads the model's settings and the machine's cores. Raises `ContainerError`."""
    folder = Path(environment.get("MODEL_FOLDER", "/opt/ml/model"))
    settings, serving = _read(folder)
    placement, pipeline_cores = serving.placement, serving.pipeline_cores
    groups: list[list[int]] = [[]] * serving.model_instances
    if any(folder.glob(NEURON_GRAPHS)):
        per_chip = cores.cores_per_chip()
        there = cores.available(environment, cores.count_chips(), per_chip)
        if placement == "data-parallel":
            at_least = -(-serving.max_batch_size // settings.batch_size)
            groups = cores.shares(there, per_chip, at_least, len(os.sched_getaffinity(0)))
        else:
            groups = cores.groups(there, pipeline_cores)
    return launcher.Plan(
        folder=folder,
        host=environment.get("HOST", "0.0.0.0"),
        port=_port(environment.get("PORT") or environment.get("SAGEMAKER_BIND_TO_PORT", "8080")),
        groups=groups,
        environments=[{**environment, **SINGLE_THREADED, **cores.variables(group, placement)} for group in groups],
        concurrency=pipeline_cores,
        telemetry=Telemetry.read(environment),
    )


def _read(folder: Path) -> tuple[Settings, ServerSettings]:
    """Checks the folder and reads both of its settings here, so that a mistake is told once and not by every worker."""
    if not folder.is_dir():
        raise _no_model(folder, "there is no such folder")
    for name in ("settings.json", "server.json", "tokenizer.json"):
        if not (folder / name).is_file():
            raise _no_model(folder, f"{name} is missing")
    if not any(any(folder.glob(pattern)) for pattern in ("model.onnx", "model.pt", NEURON_GRAPHS)):
        raise _no_model(folder, "no compiled model is there")
    try:
        return Settings.load(folder / "settings.json"), ServerSettings.load(folder / "server.json")
    except (ValueError, KeyError, TypeError) as error:
        raise _no_model(folder, f"its settings cannot be read ({type(error).__name__}: {error})") from error


def _no_model(folder: Path, reason: str) -> Unavailable:
    return Unavailable(
        f"{folder}: {reason}. A model's folder is wanted there: settings.json, server.json, tokenizer.json and the "
        "compiled model."
    )


def _port(text: str) -> int:
    if not text.isdigit() or not 0 < int(text) < 65536:
        raise ContainerError(f"PORT: got '{text}'. Allowed: 1 to 65535.")
    return int(text)


if __name__ == "__main__":
    sys.exit(exit_code_of(main))
