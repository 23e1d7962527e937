"""Golden rows: a few encodings with the original's outputs, in an archive for Neuron.

A build for Neuron cannot run what it compiles, so it adds two files to the graphs:

goldens.json   for each compiled length a few encodings of evaluation.jsonl with the original's fp32 outputs
parity.json    the allowed differences: the target's `parity` of workload.toml

Before a model serves, `check` compares its NeuronCores with these rows: the numbers by max_logit_difference and
max_mean_logit_difference, and the share of outputs with another largest number by max_metric_drop. The build chooses
rows of which the original is sure, so rounding alone moves no largest number.
"""

import json
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..container_errors import Unavailable
from .engines.engine import Engine
from .engines.load_engine import NEURON_GRAPHS
from .settings import Settings
from .tensors import Encoding, own_tokens, tensors

GOLDENS, PARITY = "goldens.json", "parity.json"
PLACEMENT, COUNT = "NEURON_PLACEMENT", "NEURON_RT_NUM_CORES"
"""The variables that tell a worker its cores (`neuron.placement`)."""


@dataclass(frozen=True)
class Golden:
    """A row and a model's outputs for it: one number per label, or per token of the row."""

    row: int  # the line in evaluation.jsonl, from 1
    length: int  # the compiled length; the row may be shorter
    token_ids: "tuple[int, ...]"
    type_ids: "tuple[int, ...]"
    outputs: "dict[str, list[float]]"


@dataclass(frozen=True)
class ParityLimits:
    """The target's `parity`. None is no limit."""

    max_logit_difference: "float | None"
    max_mean_logit_difference: "float | None"
    max_metric_drop: float

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=2) + "\n"


@dataclass(frozen=True)
class RecordedOutputs:
    """A model's outputs on its own hardware for evaluation.jsonl: `batch.record` writes, `model_build verify` reads."""

    model_sha256: str  # of all files of the unpacked archive (`batch.archive.model_sha256`)
    rows: "list[Golden]"

    def to_json(self) -> str:
        return f'{{"model_sha256": {json.dumps(self.model_sha256)}, "rows": {to_json(self.rows).rstrip()}}}\n'

    @classmethod
    def from_json(cls, text: str) -> "RecordedOutputs":
        values = json.loads(text)
        return cls(str(values["model_sha256"]), _goldens(values["rows"]))


def to_json(goldens: Iterable[Golden]) -> str:
    """Returns goldens.json, one row per line."""
    lines = ",\n".join(json.dumps(asdict(golden)) for golden in goldens)
    return f"[\n{lines}\n]\n"


def load(folder: Path) -> "tuple[list[Golden], ParityLimits]":
    """Raises `Unavailable` if a file is missing or cannot be read."""
    try:
        texts = [(folder / name).read_text("utf-8") for name in (GOLDENS, PARITY)]
        return _goldens(json.loads(texts[0])), ParityLimits(**json.loads(texts[1]))
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise Unavailable(
            f"{folder}: {GOLDENS} and {PARITY}, which a NeuronCore is compared with before it serves, cannot be read "
            f"({type(error).__name__}: {error}). Build the model again."
        ) from None


def _goldens(rows: "Iterable[Mapping[str, Any]]") -> "list[Golden]":
    return [Golden(**{**row, "token_ids": tuple(row["token_ids"]), "type_ids": tuple(row["type_ids"])}) for row in rows]


@dataclass(frozen=True)
class Deviation:
    """One output of one row on one copy of the model, against the original. Differences are absolute."""

    copy: int  # from 1, of the copies that the engine spreads a batch over
    where: str
    largest: float
    total: float
    count: int  # numbers compared
    moved: bool  # whether the largest number is at another place


def check(engine: Engine, settings: Settings, folder: Path) -> None:
    """Runs the golden rows on every copy of a model for Neuron. Raises `Unavailable` with figures if one differs."""
    if not any(folder.glob(NEURON_GRAPHS)):
        return
    copies = int(os.environ[COUNT]) if os.environ.get(PLACEMENT) == "data-parallel" else 1
    goldens, limits = load(folder)
    lengths = settings.pad_to or (settings.max_input_tokens,)
    if missing := [str(length) for length in lengths if not any(golden.length == length for golden in goldens)]:
        raise Unavailable(f"{folder}: {GOLDENS} has no row for {', '.join(missing)} tokens. Build the model again.")
    compared: list[Deviation] = []
    for length in lengths:
        compared += _compare(engine, settings, [each for each in goldens if each.length == length], copies)
    for copy in range(1, copies + 1):
        if problem := refusal([each for each in compared if each.copy == copy], limits):
            which = f"copy {copy} of {copies}, " if copies > 1 else ""
            raise Unavailable(
                f"the outputs of its NeuronCores differ from the original's: {which}{problem}. Replace this machine if "
                "others serve the same archive. Otherwise build the model again, if necessary with a finer cast."
            )


def refusal(compared: Sequence[Deviation], limits: ParityLimits) -> str:
    """Returns the worst difference beyond the limits, with figures; empty if there is none."""
    if broken := [each for each in compared if not math.isfinite(each.largest)]:
        return f"{broken[0].where}: some numbers are infinite or NaN"
    worst = max(compared, key=lambda each: each.largest)
    most = limits.max_logit_difference
    if most is not None and worst.largest > most:
        return f"{worst.where}: difference {worst.largest:.3g} (parity.max_logit_difference {most:g})"
    mean = sum(each.total for each in compared) / sum(each.count for each in compared)
    most = limits.max_mean_logit_difference
    if most is not None and mean > most:
        return (
            f"mean difference {mean:.3g} (parity.max_mean_logit_difference {most:g}); worst {worst.where}, "
            f"{worst.largest:.3g}"
        )
    movable = [each for each in compared if each.count > 1]
    moved = sorted((each for each in movable if each.moved), key=lambda each: -each.largest)
    if len(moved) > limits.max_metric_drop * len(movable):
        return (
            f"{moved[0].where}: another number is the largest, difference {moved[0].largest:.3g}; so in {len(moved)} "
            f"of {len(movable)} outputs (parity.max_metric_drop {limits.max_metric_drop:g})"
        )
    return ""


def _compare(engine: Engine, settings: Settings, goldens: Sequence[Golden], copies: int) -> "list[Deviation]":
    """Runs the rows of one length repeatedly until each copy has had a whole batch: a call has one per copy."""
    batch = max(1, settings.batch_size)
    step = batch * copies
    rows = [goldens[index % len(goldens)] for index in range(-(-len(goldens) // step) * step)]
    compared: list[Deviation] = []
    for start in range(0, len(rows), step):
        call = rows[start : start + step]
        encodings = [Encoding(golden.token_ids, golden.type_ids) for golden in call]
        outputs = engine.run(tensors(encodings, settings.inputs, (call[0].length,), settings.pad_token_id))
        for index, golden in enumerate(call):
            for name, output in outputs.items():
                expected = np.array(golden.outputs[name], np.float64)
                own = own_tokens(name, np.atleast_1d(output[index]), len(golden.token_ids))
                actual = own.astype(np.float64).ravel()
                differences = np.abs(actual - expected)
                where = f"row {golden.row} of evaluation.jsonl on {golden.length} tokens, {name}"
                moved = bool(actual.argmax() != expected.argmax())
                sizes = float(differences.max()), float(differences.sum()), differences.size
                compared.append(Deviation(index // batch + 1, where, *sizes, moved))
    return compared
