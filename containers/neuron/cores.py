"""Which NeuronCores there are and which worker gets which. Pure, but for looking for devices.

A process owns its cores alone: NEURON_RT_VISIBLE_CORES names them. Source: AWS Neuron documentation, Neuron Runtime
configuration. A chip of Inf1 has 4 cores, one of Inf2 has 2.
"""

import importlib.util
from collections.abc import Mapping, Sequence
from pathlib import Path

from .errors import BadSetting, NoCores, TooFewCores

VISIBLE, COUNT = "NEURON_RT_VISIBLE_CORES", "NEURON_RT_NUM_CORES"
DEVICES = Path("/dev")


def available(environment: Mapping[str, str], chips: int, cores_per_chip: int) -> list[int]:
    """What the environment says, else all of the chips'. Raises `NoCores` or `BadSetting`."""
    if visible := environment.get(VISIBLE):
        return _ranges(visible)
    count = environment.get(COUNT) or str(chips * cores_per_chip)
    if not count.isdigit():
        raise BadSetting(COUNT, count, "a number")
    if not int(count):
        raise NoCores
    return list(range(int(count)))


def count_chips() -> int:
    """/dev/neuron0, /dev/neuron1 and so on."""
    return sum(device.name.removeprefix("neuron").isdigit() for device in DEVICES.glob("neuron*"))


def cores_per_chip() -> int:
    """Of the chip that the image is for."""
    return 2 if importlib.util.find_spec("torch_neuronx") else 4


def groups(cores: Sequence[int], placement: str, pipeline_cores: int) -> list[list[int]]:
    """The cores of each worker; what is left of a last, incomplete pipeline stays idle. Raises `TooFewCores`."""
    if placement == "data-parallel":
        return [list(cores)]
    if len(cores) < pipeline_cores:
        raise TooFewCores(len(cores), pipeline_cores)
    whole = len(cores) - len(cores) % pipeline_cores
    return [list(cores[start : start + pipeline_cores]) for start in range(0, whole, pipeline_cores)]


def variables(group: Sequence[int], placement: str) -> dict[str, str]:
    """A worker's environment; none for a worker without cores. Neuron's other variable would contradict the one."""
    if not group:
        return {}
    consecutive = list(group) == list(range(group[0], group[-1] + 1))
    joined = f"{group[0]}-{group[-1]}" if consecutive and len(group) > 1 else ",".join(map(str, group))
    return {VISIBLE: joined, COUNT: str(len(group)), "NEURON_PLACEMENT": placement}


def _ranges(text: str) -> list[int]:
    try:
        ends = [[int(end) for end in part.split("-")] for part in text.split(",")]
    except ValueError:
        raise BadSetting(VISIBLE, text, "core numbers and ranges of them, as 0-3 or 0,2") from None
    return [core for first, *last in ends for core in range(first, (last or [first])[0] + 1)]
