"""Everything that a target's compiled graphs depend on, besides the code and the tools that compile them.

Backends compile from this value and not from the whole plan, so the cache key cannot miss an input: other values
do not reach a compiler. Serving and parity settings are not among them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from model_build.checkpoint import Checkpoint
from workloads import (
    EncoderModel,
    Model,
    NeuronTarget,
    OnnxRuntimeTarget,
    OpenVinoTarget,
    Serving,
    Target,
    TensorRtTarget,
    TextToText,
)

BackendName = Literal["text2text", "encoder", "neuron"]
CALIBRATION_ROWS = 128
MIN_CALIBRATION_ROWS = 16


@dataclass(frozen=True, kw_only=True, slots=True)
class CompileInputs:
    workload: str
    target_name: str
    model: Model
    target: Target
    checkpoint: Checkpoint
    batches: Serving
    """The batch sizes for which a TensorRT engine is built."""
    calibration: tuple[Mapping[str, str], ...]
    """Rows of evaluation.jsonl: they set the ranges of statically quantised activations, and are asked for golden rows
    (`model_build.neuron.goldens`)."""
    timing_caches: Path
    """Folder of TensorRT's timing caches, which make a build quicker and do not change what it may produce."""

    @property
    def backend(self) -> BackendName:
        """The backend for this runtime and task."""
        if isinstance(self.target, NeuronTarget):
            return "neuron"
        return "text2text" if isinstance(self.model, TextToText) else "encoder"

    @property
    def encoder(self) -> EncoderModel:
        """The model of an encoder workload."""
        assert not isinstance(self.model, TextToText)
        return self.model

    @property
    def text2text(self) -> TextToText:
        """The model of a text2text workload."""
        assert isinstance(self.model, TextToText)
        return self.model

    @property
    def calibrates(self) -> bool:
        """Whether evaluation rows set the ranges of activations."""
        return isinstance(self.target, TensorRtTarget | OpenVinoTarget) and self.target.precision == "int8"

    def facts(self) -> list[Any]:
        """The values that the compiled bytes depend on, as JSON."""
        facts: list[Any] = [
            self.checkpoint.sha256,
            # How answers are looked for and named changes no graph, but for the number of beams.
            self.model.model_dump(mode="json", exclude={"answer", "generation"}),
            self.target.model_dump(mode="json", exclude={"parity", "objective"}),
        ]
        if isinstance(self.model, TextToText) and isinstance(self.target, OnnxRuntimeTarget):
            facts.append(self.model.generation and self.model.generation.num_beams)
        if isinstance(self.target, TensorRtTarget):
            facts.append(self.batches.model_dump(mode="json"))
        if self.calibrates or isinstance(self.target, NeuronTarget):
            facts.append([dict(row) for row in self.calibration])
        return facts
