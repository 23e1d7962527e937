"""Golden rows: a few encodings with what the original gives for them, which travel in an archive for Neuron.

A build for Neuron cannot run what it compiles. So it packs, beside the graphs:

goldens.json   for each compiled length a few encodings of evaluation.jsonl, with what the original gives for them in
               fp32 on a CPU
parity.json    how far the compiled model may be from that: the target's `parity` of workload.toml

Both sides of the files are here: the build writes `to_json`, the container reads `load`. `golden_check` compares.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ..errors import Unavailable
from .tensors import Encoding

GOLDENS, PARITY = "goldens.json", "parity.json"


@dataclass(frozen=True)
class Golden:
    """A row and the original's outputs for it: one number for each label, or for each of the row's tokens."""

    row: int
    """The row's line in evaluation.jsonl, from 1."""
    length: int
    """The compiled length in tokens on which it is run; it may be shorter itself."""
    token_ids: "tuple[int, ...]"
    type_ids: "tuple[int, ...]"
    outputs: "dict[str, list[float]]"

    @property
    def encoding(self) -> Encoding:
        return Encoding(self.token_ids, self.type_ids)


@dataclass(frozen=True)
class Limits:
    """The target's `parity`, whose words and meaning these are; None is no limit."""

    max_logit_difference: "float | None"
    max_mean_logit_difference: "float | None"
    max_metric_drop: float

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=2) + "\n"

    @classmethod
    def from_json(cls, text: str) -> "Limits":
        return cls(**json.loads(text))


@dataclass(frozen=True)
class Recorded:
    """The answers of a model on its own hardware, row for row of evaluation.jsonl: here `outputs` are the model's.

    `containers.batch.record` writes it, and `model_build verify --outputs` reads it.
    """

    model_sha256: str
    """The sha256 of all files of the unpacked archive (`batch.archive.model_sha256`)."""
    rows: "list[Golden]"

    def to_json(self) -> str:
        return f'{{"model_sha256": {json.dumps(self.model_sha256)}, "rows": {to_json(self.rows).rstrip()}}}\n'

    @classmethod
    def from_json(cls, text: str) -> "Recorded":
        values = json.loads(text)
        return cls(str(values["model_sha256"]), _goldens(values["rows"]))


def to_json(goldens: Iterable[Golden]) -> str:
    """Returns goldens.json, one row on each line."""
    lines = ",\n".join(json.dumps(asdict(golden)) for golden in goldens)
    return f"[\n{lines}\n]\n"


def from_json(text: str) -> "list[Golden]":
    """Raises ValueError, TypeError or KeyError for what is no goldens.json."""
    return _goldens(json.loads(text))


def load(folder: Path) -> "tuple[list[Golden], Limits]":
    """Raises `Unavailable` for a model without them, or with files that cannot be read."""
    try:
        goldens = from_json((folder / GOLDENS).read_text("utf-8"))
        return goldens, Limits.from_json((folder / PARITY).read_text("utf-8"))
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise Unavailable(
            f"{folder}: {GOLDENS} and {PARITY}, with which a NeuronCore is compared with the original before it "
            f"serves, cannot be read ({type(error).__name__}: {error}). Build the model again."
        ) from None


def _goldens(rows: "Iterable[Mapping[str, Any]]") -> "list[Golden]":
    return [Golden(**{**row, "token_ids": tuple(row["token_ids"]), "type_ids": tuple(row["type_ids"])}) for row in rows]
