"""How a model is served, as server.json beside it carries it.

Both sides of the wire are here: the build writes `to_json`, the container reads `load`.
"""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

PLACEMENTS = ("one-per-core", "data-parallel")


@dataclass(frozen=True)
class ServerSettings:
    model: str  # the name answers carry and /v2/models/NAME/infer has
    max_batch_size: int  # rows of a request, and of a batch
    dynamic_batching: bool  # requests that wait are answered together
    preferred_batch_sizes: tuple[int, ...]  # a batch of such a size does not wait; none: only a full one
    max_queue_delay_ms: float
    model_instances: int  # workers of a model for CPU; on Neuron the cores decide
    placement: str  # one of PLACEMENTS
    pipeline_cores: int  # NeuronCores of one copy

    def __post_init__(self) -> None:
        if self.placement not in PLACEMENTS:
            raise ValueError(f"placement: got '{self.placement}'; allowed: {', '.join(PLACEMENTS)}.")

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=2) + "\n"

    @classmethod
    def load(cls, file: Path) -> "ServerSettings":
        values = json.loads(file.read_text("utf-8"))
        return cls(**{**values, "preferred_batch_sizes": tuple(values["preferred_batch_sizes"])})
