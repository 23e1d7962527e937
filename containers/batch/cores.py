"""One worker for each core: what the environment of each is. What is Neuron's comes from its server's own code."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from .errors import NeuronRefused, TooFewCores

SINGLE_THREADED = {
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "RAYON_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
}


def on_cpu(workers: int | None, environment: Mapping[str, str]) -> list[dict[str, str]]:
    """`environment` with one thread, for each worker; without a number, for each CPU that this process may use."""
    return [{**environment, **SINGLE_THREADED}] * (workers or len(os.sched_getaffinity(0)))


def on_neuron(
    groups: Sequence[Sequence[int]], workers: int | None, environment: Mapping[str, str]
) -> list[dict[str, str]]:
    """The same with cores of its own for each: the groups' first ones, or all."""
    from ..neuron.cores import variables

    if workers and workers > len(groups):
        raise TooFewCores(workers, len(groups))
    own = [variables(group, "one-per-core") for group in groups[:workers]]
    return [{**environment, **SINGLE_THREADED, **cores} for cores in own]


def neuron_groups(model: Path, environment: Mapping[str, str]) -> list[list[int]]:
    """The cores of each copy of the model on this machine: one, or those of a pipeline."""
    from ..neuron.cores import available, cores_per_chip, count_chips, groups
    from ..neuron.errors import ServeError
    from ..neuron.settings import ServerSettings

    try:
        cores = available(environment, count_chips(), cores_per_chip())
        return groups(cores, "one-per-core", ServerSettings.load(model / "server.json").pipeline_cores)
    except ServeError as error:
        raise NeuronRefused(str(error), error.exit_code) from None
