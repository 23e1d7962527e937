"""The Neuron server's settings for a model, and the division of the machine's NeuronCores among the workers.

NEURON_RT_VISIBLE_CORES reserves cores for a process. A chip of Inf1 has 4 cores, one of Inf2 has 2. Source: AWS Neuron
documentation, Neuron Runtime configuration.
"""

import importlib.util
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from ..container_errors import ContainerError, Unavailable

VISIBLE, COUNT = "NEURON_RT_VISIBLE_CORES", "NEURON_RT_NUM_CORES"
PLACEMENT = "NEURON_PLACEMENT"  # also read by `neuron_engine`
DEVICES = Path("/dev")


@dataclass(frozen=True)
class ServerSettings:
    """The contents of server.json, which the build writes."""

    model: str  # its name in answers and in /v2/models/NAME/infer
    max_batch_size: int  # rows of a request, and of a batch
    dynamic_batching: bool  # whether requests that wait are answered together
    preferred_batch_sizes: tuple[int, ...]  # a batch of such a size starts at once; empty: only a full one does
    max_queue_delay_ms: float
    model_instances: int  # workers of a model for CPU; on Neuron the cores decide
    placement: str  # one-per-core or data-parallel
    pipeline_cores: int  # NeuronCores of one copy of the model

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=2) + "\n"

    @classmethod
    def load(cls, file: Path) -> "ServerSettings":
        values = json.loads(file.read_text("utf-8"))
        return cls(**{**values, "preferred_batch_sizes": tuple(values["preferred_batch_sizes"])})


def available(environment: Mapping[str, str], chips: int, cores_per_chip: int) -> list[int]:
    """Returns the core numbers that the environment names, or all cores of the chips. Raises `ContainerError`."""
    if visible := environment.get(VISIBLE):
        return _ranges(visible)
    count = environment.get(COUNT) or str(chips * cores_per_chip)
    if not count.isdigit():
        raise ContainerError(f"{COUNT}: got '{count}'. Allowed: a number.")
    if not int(count):
        raise Unavailable(
            "The model is compiled for Neuron, but there is no /dev/neuron* device. Run on an inf1 or inf2 instance, "
            "pass the devices to the container (--device=/dev/neuron0), or set NEURON_RT_NUM_CORES."
        )
    return list(range(int(count)))


def count_chips() -> int:
    """Counts the devices /dev/neuron0, /dev/neuron1 and so on."""
    return sum(device.name.removeprefix("neuron").isdigit() for device in DEVICES.glob("neuron*"))


def cores_per_chip() -> int:
    """Returns the number of cores of this image's chip."""
    return 2 if importlib.util.find_spec("torch_neuronx") else 4


def shares(cores: Sequence[int], per_chip: int, at_least: int, processors: int) -> list[list[int]]:
    """Returns the cores of each worker of a data-parallel model: whole chips, as few as have `at_least` cores.

    One Python process cannot keep all chips of a large machine busy. The largest request occupies `at_least` cores, so
    fewer would make it slower. There are at most as many workers as processors: more would only fill smaller batches.
    """
    size = -(-max(at_least, -(-len(cores) // processors)) // per_chip) * per_chip
    starts = range(0, max(1, len(cores) // size) * size, size)
    return [list(cores[start : start + size if start < starts[-1] else None]) for start in starts]


def groups(cores: Sequence[int], pipeline_cores: int) -> list[list[int]]:
    """Returns the cores of each worker of a pipeline; incomplete pipelines stay idle. Raises `Unavailable`."""
    if len(cores) < pipeline_cores:
        raise Unavailable(
            f"The model is a pipeline over {pipeline_cores} NeuronCores, but there are {len(cores)}. Use a larger "
            "instance or compile with fewer pipeline_cores."
        )
    whole = len(cores) - len(cores) % pipeline_cores
    return [list(cores[start : start + pipeline_cores]) for start in range(0, whole, pipeline_cores)]


def variables(group: Sequence[int], placement: str) -> dict[str, str]:
    """Returns a worker's own variables. An inherited count could contradict its visible cores, so both are set."""
    if not group:
        return {}
    consecutive = list(group) == list(range(group[0], group[-1] + 1))
    joined = f"{group[0]}-{group[-1]}" if consecutive and len(group) > 1 else ",".join(map(str, group))
    return {VISIBLE: joined, COUNT: str(len(group)), PLACEMENT: placement}


def _ranges(text: str) -> list[int]:
    try:
        ends = [[int(end) for end in part.split("-")] for part in text.split(",")]
    except ValueError:
        raise ContainerError(
            f"{VISIBLE}: got '{text}'. Allowed: core numbers and ranges, for example 0-3 or 0,2."
        ) from None
    return [core for first, *last in ends for core in range(first, (last or [first])[0] + 1)]
