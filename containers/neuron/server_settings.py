"""The Neuron server's settings for a model: the build writes server.json, the container reads it."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

PLACEMENTS = ("one-per-core", "data-parallel")


@dataclass(frozen=True)
class ServerSettings:
    model: str  # its name in answers and in /v2/models/NAME/infer
    max_batch_size: int  # rows of a request, and of a batch
    dynamic_batching: bool  # whether requests that wait are answered together
    preferred_batch_sizes: tuple[int, ...]  # a batch of such a size starts at once; empty: only a full one does
    max_queue_delay_ms: float
    model_instances: int  # workers of a model for CPU; on Neuron the cores decide
    placement: str  # one of PLACEMENTS
    pipeline_cores: int  # NeuronCores of one copy of the model

    def __post_init__(self) -> None:
        if self.placement not in PLACEMENTS:
            raise ValueError(f"placement: got '{self.placement}'; allowed: {', '.join(PLACEMENTS)}.")

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=2) + "\n"

    @classmethod
    def load(cls, file: Path) -> "ServerSettings":
        return cls.from_json(file.read_text("utf-8"))

    @classmethod
    def from_json(cls, text: str) -> "ServerSettings":
        values = json.loads(text)
        return cls(**{**values, "preferred_batch_sizes": tuple(values["preferred_batch_sizes"])})
