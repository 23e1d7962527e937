"""Which cores there are, and the environment that gives a worker one of them. Pure, but for asking for the CPUs."""

import os
from collections.abc import Mapping, Sequence

from .errors import TooFewCores, UnknownCores

VISIBLE, COUNT = "NEURON_RT_VISIBLE_CORES", "NEURON_RT_NUM_CORES"

SINGLE_THREADED = {
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "RAYON_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
}


def environments(neuron: bool, workers: int | None, environment: Mapping[str, str]) -> list[dict[str, str]]:
    """Each worker's environment: `environment` with one thread and, on Neuron, a core of its own.

    Without `workers` there is one for each core: of `environment` for Neuron, else the CPUs this process may use.
    """
    if not neuron:
        return [{**environment, **SINGLE_THREADED}] * (workers or len(os.sched_getaffinity(0)))
    cores = neuron_cores(environment) or list(range(workers or 0))
    if not cores:
        raise UnknownCores
    if workers and workers > len(cores):
        raise TooFewCores(workers, len(cores))
    # The runtime takes one or the other; a count of the whole machine's is not the worker's.
    return [{**environment, **SINGLE_THREADED, VISIBLE: str(core), COUNT: "1"} for core in cores[:workers]]


def neuron_cores(environment: Mapping[str, str]) -> Sequence[int]:
    """0-3, 0,2 and the like of the one variable, or a number of the other; none when neither is set."""
    if visible := environment.get(VISIBLE):
        return [core for part in visible.split(",") for core in _range(part)]
    return range(int(environment.get(COUNT) or 0))


def _range(text: str) -> range:
    first, _, last = text.partition("-")
    return range(int(first), int(last or first) + 1)
