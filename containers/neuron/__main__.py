"""Serves the model in MODEL_FOLDER (/opt/ml/model) on HOST:PORT (0.0.0.0:8080, or SAGEMAKER_BIND_TO_PORT).

With METRICS_STACK and METRICS_WORKLOAD it prints metrics for CloudWatch Logs every METRICS_PERIOD_S seconds (60).
NEURON_RT_VISIBLE_CORES or NEURON_RT_NUM_CORES limits the NeuronCores; the default is all.
Exit codes: 0 stopped by a signal; 2 a setting is wrong; 3 no model, no device, or a worker failed; 70 internal error.
"""

import os
import sys
from collections.abc import Mapping
from pathlib import Path

import uvloop

from ..container_errors import ContainerError, Unavailable, exit_code_of
from ..encoder.load_engine import NEURON_GRAPHS
from ..encoder.settings import Settings
from . import cores, launcher
from .server_settings import ServerSettings

SINGLE_THREADED = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}


def main() -> int:
    uvloop.run(launcher.run(plan(os.environ)))
    return 0


def plan(environment: Mapping[str, str]) -> launcher.ServerPlan:
    """Reads the model's settings and the machine's cores. Raises `ContainerError`."""
    folder = Path(environment.get("MODEL_FOLDER", "/opt/ml/model"))
    settings, serving = _read(folder)
    groups: list[list[int]] = [[]] * serving.model_instances
    if any(folder.glob(NEURON_GRAPHS)):
        per_chip = cores.cores_per_chip()
        available = cores.available(environment, cores.count_chips(), per_chip)
        if serving.placement == "data-parallel":
            at_least = -(-serving.max_batch_size // settings.batch_size)
            groups = cores.shares(available, per_chip, at_least, len(os.sched_getaffinity(0)))
        else:
            groups = cores.groups(available, serving.pipeline_cores)
    own = [cores.variables(group, serving.placement) for group in groups]
    return launcher.ServerPlan(
        folder=folder,
        host=environment.get("HOST", "0.0.0.0"),
        port=_port(environment.get("PORT") or environment.get("SAGEMAKER_BIND_TO_PORT", "8080")),
        groups=groups,
        environments=[{**environment, **SINGLE_THREADED, **variables} for variables in own],
        concurrency=serving.pipeline_cores,
    )


def _read(folder: Path) -> tuple[Settings, ServerSettings]:
    """Reads the settings here, so that an error is reported once and not by every worker. Raises `Unavailable`."""
    try:
        return Settings.load(folder / "settings.json"), ServerSettings.load(folder / "server.json")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise Unavailable(
            f"{folder}: its settings cannot be read ({type(error).__name__}: {error}). A model's folder has "
            "settings.json, server.json, tokenizer.json and the compiled model."
        ) from error


def _port(text: str) -> int:
    if not text.isdigit() or not 0 < int(text) < 65536:
        raise ContainerError(f"PORT: got '{text}'. Allowed: 1 to 65535.")
    return int(text)


if __name__ == "__main__":
    sys.exit(exit_code_of(main))
