"""The serving code's settings for an encoder workload, which settings.json beside the model carries.

Both sides of the file are here: the build writes `to_json`, the container reads `load`.
"""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

GRAPH_OUTPUTS: dict[str, tuple[str, ...]] = {
    "text-classification": ("logits",),
    "text-pair-scoring": ("logits", "score"),
    "question-answering": ("start_logits", "end_logits"),
}
"""The outputs of a compiled model in order, by task. `score` has been through the sigmoid; the others are raw."""


@dataclass(frozen=True)
class Settings:
    """Settings of one model. Lengths count tokens, special tokens included."""

    task: str
    segments: tuple[tuple[str, ...], ...]
    inputs: tuple[str, ...]
    max_input_tokens: int
    labels: tuple[str, ...]  # empty for question answering
    max_answer_tokens: int  # 0 for all but question answering
    pad_token_id: int
    threads: int
    pad_to: tuple[int, ...]  # sequence lengths that a batch is padded to; empty: to its longest row
    batch_size: int  # rows of a compiled batch; 0: any number
    truncation: bool = False  # a row of more tokens is cut, not refused
    input_types: tuple[tuple[str, str], ...] = ()  # of the graph's inputs that are not int64, on Neuron

    def __post_init__(self) -> None:
        if self.task not in GRAPH_OUTPUTS:
            raise ValueError(f"task: got '{self.task}'; allowed: {', '.join(GRAPH_OUTPUTS)}.")
        if self.pad_to and (list(self.pad_to) != sorted(set(self.pad_to)) or self.pad_to[-1] < self.max_input_tokens):
            raise ValueError(
                f"pad_to: got {list(self.pad_to)}; it must ascend and its last fit "
                f"max_input_tokens = {self.max_input_tokens}."
            )

    @property
    def fields(self) -> tuple[str, ...]:
        return tuple(field for segment in self.segments for field in segment)

    @property
    def graph_outputs(self) -> tuple[str, ...]:
        return GRAPH_OUTPUTS[self.task]

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=2) + "\n"

    @classmethod
    def from_json(cls, text: str) -> "Settings":
        values = json.loads(text)
        for key in ("inputs", "labels", "pad_to"):
            values[key] = tuple(values[key])
        for key in ("segments", "input_types"):
            values[key] = tuple(tuple(each) for each in values.get(key, ()))
        return cls(**values)

    @classmethod
    def load(cls, file: Path) -> "Settings":
        return cls.from_json(file.read_text("utf-8"))
