"""serve: the server of the model in MODEL_FOLDER (/opt/ml/model) on HOST:PORT (0.0.0.0:8080).

SageMaker says another port, if it wants one, as SAGEMAKER_BIND_TO_PORT.
METRICS_STACK and METRICS_WORKLOAD: print what CloudWatch Logs reads metrics from, every METRICS_PERIOD_S (60).
Other variables: NEURON_RT_VISIBLE_CORES or NEURON_RT_NUM_CORES, where not every core of every device is to be used.
Exit codes: 0 told to end; 2 a setting is wrong; 3 no model, no device, or a worker failed.
"""

import asyncio
import os
import sys
from collections.abc import Mapping
from pathlib import Path

from ..encoder.engine import NEURON_GRAPHS
from ..encoder.settings import Settings
from . import cores, launcher
from .errors import BadSetting, NoModel, ServeError
from .settings import ServerSettings
from .telemetry import Telemetry

SINGLE_THREADED = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}


def main() -> int:
    try:
        asyncio.run(launcher.run(plan(os.environ)))
    except ServeError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0


def plan(environment: Mapping[str, str]) -> launcher.Plan:
    """Raises a `ServeError`."""
    folder = Path(environment.get("MODEL_FOLDER", "/opt/ml/model"))
    serving = _read(folder)
    placement, pipeline_cores = serving.placement, serving.pipeline_cores
    groups: list[list[int]] = [[]] * serving.model_instances
    if any(folder.glob(NEURON_GRAPHS)):
        there = cores.available(environment, cores.count_chips(), cores.cores_per_chip())
        groups = cores.groups(there, placement, pipeline_cores)
    return launcher.Plan(
        folder=folder,
        host=environment.get("HOST", "0.0.0.0"),
        port=_port(environment.get("PORT") or environment.get("SAGEMAKER_BIND_TO_PORT", "8080")),
        groups=groups,
        environments=[{**environment, **SINGLE_THREADED, **cores.variables(group, placement)} for group in groups],
        concurrency=pipeline_cores,
        telemetry=Telemetry.read(environment),
    )


def _read(folder: Path) -> ServerSettings:
    """Both settings are read here, so that a broken one is told once and not by every worker."""
    if not folder.is_dir():
        raise NoModel(str(folder), "there is no such folder")
    for name in ("settings.json", "server.json", "tokenizer.json"):
        if not (folder / name).is_file():
            raise NoModel(str(folder), f"{name} is missing")
    if not any(any(folder.glob(pattern)) for pattern in ("model.onnx", "model.pt", NEURON_GRAPHS)):
        raise NoModel(str(folder), "no compiled model is there")
    try:
        Settings.load(folder / "settings.json")
        return ServerSettings.load(folder / "server.json")
    except (ValueError, KeyError, TypeError) as error:
        raise NoModel(str(folder), f"its settings cannot be read ({type(error).__name__}: {error})") from error


def _port(text: str) -> int:
    if not text.isdigit() or not 0 < int(text) < 65536:
        raise BadSetting("PORT", text, "1 to 65535")
    return int(text)


if __name__ == "__main__":
    sys.exit(main())
