"""The serving code's settings for an encoder workload, which settings.json beside the model carries.

Both sides of the file are here: the build writes `to_json`, the container reads `load`.
"""

import json
from dataclasses import asdict, dataclass, fields
from pathlib import Path

GRAPH_OUTPUTS: dict[str, tuple[str, ...]] = {
    "text-classification": ("logits",),
    "text-pair-scoring": ("logits", "score"),
    "text-ranking": ("logits",),
    "token-classification": ("logits",),
    "feature-extraction": ("embedding",),
    "question-answering": ("start_logits", "end_logits"),
}
"""The outputs of a compiled model in order, by task, for each row:

    logits [labels], of token-classification [length, labels]; score, a number that has been through the sigmoid;
    embedding [dimensions], pooled, cut and normalised; start_logits and end_logits [length]
"""
PER_TOKEN = frozenset({"token-classification", "question-answering"})
"""The tasks whose outputs have a value for each token, and whose answers are pieces of the text."""


LAUNCH_TOKENS = 16
"""The fixed cost of a launch on CPU, in tokens. An estimate: threads make a token cheaper, and a launch not."""
OTHER_PROBLEMS = ("multi_label_classification", "regression")
ALWAYS_WRITTEN = frozenset({"truncation", "input_types", "launch_tokens"})
"""The keys that settings.json has with their default, too."""


@dataclass(frozen=True)
class Settings:
    """Settings of one model. Lengths count tokens, special tokens included."""

    task: str
    segments: tuple[tuple[str, ...], ...]
    inputs: tuple[str, ...]
    max_input_tokens: int
    labels: tuple[str, ...]  # empty where the outputs have no names
    max_answer_tokens: int  # 0 for all but question answering
    pad_token_id: int
    threads: int
    pad_to: tuple[int, ...]  # sequence lengths that a batch is padded to; empty: to its longest row
    batch_size: int  # rows of a compiled batch; 0: any number
    truncation: bool = False  # a row of more tokens is cut, not refused
    input_types: tuple[tuple[str, str], ...] = ()  # of the graph's inputs that are not int64, on Neuron
    problem_type: str = ""  # of text-classification; empty is single_label_classification
    threshold: float = 0.5  # of multi_label_classification: the score that a label needs
    activation: str = ""  # of text-ranking: sigmoid, or none
    aggregation: str = ""  # of token-classification, in transformers' words
    stride: "int | None" = None  # tokens that two windows of a long row share; None: it is refused or cut
    max_windows: int = 64  # of a row, and in Triton of a request
    launch_tokens: int = LAUNCH_TOKENS
    precision: str = "fp32"  # in which OpenVINO computes: fp32 or bf16
    instruction_sets: tuple[str, ...] = ()  # the CPU needs one of these flags of /proc/cpuinfo

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
    def kind(self) -> str:
        """The key of `answers.OUTPUTS`: the task, or the problem of a classification that answers otherwise."""
        return self.problem_type if self.problem_type in OTHER_PROBLEMS else self.task

    @property
    def graph_outputs(self) -> tuple[str, ...]:
        return GRAPH_OUTPUTS[self.task]

    @property
    def per_token(self) -> bool:
        return self.task in PER_TOKEN

    def to_json(self) -> str:
        """Returns settings.json, without the keys of other tasks and runtimes."""
        values = asdict(self)
        kept = [
            field.name
            for field in fields(self)
            if field.name in ALWAYS_WRITTEN or getattr(self, field.name) != field.default
        ]
        return json.dumps({name: values[name] for name in kept}, indent=2) + "\n"

    @classmethod
    def from_json(cls, text: str) -> "Settings":
        values = json.loads(text)
        for key in ("inputs", "labels", "pad_to", "instruction_sets"):
            values[key] = tuple(values.get(key, ()))
        for key in ("segments", "input_types"):
            values[key] = tuple(tuple(each) for each in values.get(key, ()))
        return cls(**values)

    @classmethod
    def load(cls, file: Path) -> "Settings":
        return cls.from_json(file.read_text("utf-8"))
