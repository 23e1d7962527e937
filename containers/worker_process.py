"""The environment of a worker process of the batch or of the Neuron server, and its lines of JSON to its parent."""

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any, TextIO

PACKAGES = Path(__file__).parents[len(str(__package__).split("."))]
SINGLE_THREADED = {
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "RAYON_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
}


def worker_environment(environment: Mapping[str, str], own: Mapping[str, str]) -> dict[str, str]:
    path = os.pathsep.join(filter(None, [str(PACKAGES), environment.get("PYTHONPATH")]))
    return {**environment, **SINGLE_THREADED, **own, "PYTHONPATH": path}


def how_it_ended(code: int) -> str:
    return f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"


def take_standard_output() -> TextIO:
    """Reserves standard output for the parent, and sends what a runtime prints there to standard error."""
    parent = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    return parent


def send(parent: IO[str], document: Mapping[str, Any]) -> None:
    parent.write(json.dumps(document) + "\n")
    parent.flush()
