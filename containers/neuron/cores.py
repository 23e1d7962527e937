"""Finds the machine's NeuronCores and divides them among the workers. Pure, but for looking for devices.

A process has its cores to itself: NEURON_RT_VISIBLE_CORES names them. A chip of Inf1 has 4 cores, one of Inf2 has 2.
Source: AWS Neuron documentation, Neuron Runtime configuration.
"""

import importlib.util
from collections.abc import Mapping, Sequence
from pathlib import Path

from ..errors import ContainerError, Unavailable

VISIBLE, COUNT = "NEURON_RT_VISIBLE_CORES", "NEURON_RT_NUM_CORES"
PLACEMENT = "NEURON_PLACEMENT"  # `encoder.neuron_engine` reads it, too
DEVICES = Path("/dev")


def available(environment: Mapping[str, str], chips: int, cores_per_chip: int) -> list[int]:
    """Returns the core numbers that the environment names, or all of the chips'. Raises `ContainerError`."""
    if visible := environment.get(VISIBLE):
        return _ranges(visible)
    count = environment.get(COUNT) or str(chips * cores_per_chip)
    if not count.isdigit():
        raise ContainerError(f"{COUNT}: got '{count}'. Allowed: a number.")
    if not int(count):
        raise Unavailable(
            "The model is compiled for Neuron and there is no /dev/neuron* device. Run on an inf1 or inf2 instance, "
            "give the container its devices (--device=/dev/neuron0), or set NEURON_RT_NUM_CORES."
        )
    return list(range(int(count)))


def count_chips() -> int:
    """Counts the devices /dev/neuron0, /dev/neuron1 and so on."""
    return sum(device.name.removeprefix("neuron").isdigit() for device in DEVICES.glob("neuron*"))


def cores_per_chip() -> int:
    """Returns the number of cores of the chip that this image is for."""
    return 2 if importlib.util.find_spec("torch_neuronx") else 4


def shares(cores: Sequence[int], per_chip: int, at_least: int, processors: int) -> list[list[int]]:
    """Returns the cores of each worker of a data-parallel model: whole chips, as few as have `at_least` so many cores.

    One Python process does not keep all chips of a large machine busy. `at_least` are the cores that the largest
    request occupies: with fewer it would take longer than with all. There is a worker for each of the machine's
    processors at most: more would fill fewer rows into a batch and answer no more of them.
    """
    size = -(-max(at_least, -(-len(cores) // processors)) // per_chip) * per_chip
    starts = range(0, max(1, len(cores) // size) * size, size)
    return [list(cores[start : start + size if start < starts[-1] else None]) for start in starts]


def groups(cores: Sequence[int], pipeline_cores: int) -> list[list[int]]:
    """Returns the cores of each worker of a model that takes `pipeline_cores`.

    Cores that do not fill a last pipeline stay idle. Raises `Unavailable`.
    """
    if len(cores) < pipeline_cores:
        raise Unavailable(
            f"The model is a pipeline over {pipeline_cores} NeuronCores and there are {len(cores)}. Use a larger "
            "instance or compile with fewer pipeline_cores."
        )
    whole = len(cores) - len(cores) % pipeline_cores
    return [list(cores[start : start + pipeline_cores]) for start in range(0, whole, pipeline_cores)]


def variables(group: Sequence[int], placement: str) -> dict[str, str]:
    """Returns a worker's own variables; none for a worker without cores.

    NEURON_RT_NUM_CORES is set, too, because an inherited value could contradict NEURON_RT_VISIBLE_CORES.
    """
    if not group:
        return {}
    consecutive = list(group) == list(range(group[0], group[-1] + 1))
    joined = f"{group[0]}-{group[-1]}" if consecutive and len(group) > 1 else ",".join(map(str, group))
    return {VISIBLE: joined, COUNT: str(len(group)), PLACEMENT: placement}


def _ranges(text: str) -> list[int]:
    try:
        ends = [[int(end) for end in part.split("-")] for part in text.split(",")]
    except ValueError:
        allowed = "core numbers and ranges of them, as 0-3 or 0,2"
        raise ContainerError(f"{VISIBLE}: got '{text}'. Allowed: {allowed}.") from None
    return [core for first, *last in ends for core in range(first, (last or [first])[0] + 1)]
