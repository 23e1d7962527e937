"""Golden rows: a few encodings with what the original gives for them, which travel in an archive for Neuron.

A build for Neuron cannot run what it compiles. So it packs, beside the graphs:

goldens.json   for each compiled length a few encodings of evaluation.jsonl, with what the original gives for them in
               fp32 on a CPU
parity.json    how far the compiled model may be from that: the target's `parity` of workload.toml

Both sides of the files are here: the build writes `to_json`, the container reads `load`. Before a model serves, `check`
compares it on its NeuronCores with these rows. The numbers are held to max_logit_difference and
max_mean_logit_difference. max_metric_drop is held to the share of outputs whose largest number is at another place: the
build packs rows of which the original is sure, so that rounding alone moves none. It costs one batch on each core and
each compiled length.
"""

import json
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import Unavailable
from .engine import Engine
from .load_engine import NEURON_GRAPHS
from .settings import Settings
from .tensors import Encoding, own_tokens, tensors

GOLDENS, PARITY = "goldens.json", "parity.json"
PLACEMENT, COUNT = "NEURON_PLACEMENT", "NEURON_RT_NUM_CORES"
"""The variables by which the launcher tells a worker of its cores (`neuron.cores`)."""


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


@dataclass(frozen=True)
class Deviation:
    """One output of one row on one copy of the model, against the original. Differences are absolute."""

    copy: int
    """Counted from 1 over the copies that the engine spreads a batch over."""
    where: str
    largest: float
    total: float
    count: int
    """Numbers compared."""
    moved: bool
    """Whether the largest number is at another place."""


def check(engine: Engine, settings: Settings, folder: Path) -> None:
    """Runs the golden rows on every copy of the model that this process spreads a batch over.

    It does nothing for a model for CPU, which was compared when it was built. Raises `Unavailable` with the figures
    where a copy is further from the original than parity.json allows.
    """
    if not any(folder.glob(NEURON_GRAPHS)):
        return
    copies = int(os.environ[COUNT]) if os.environ.get(PLACEMENT) == "data-parallel" else 1
    goldens, limits = load(folder)
    lengths = settings.pad_to or (settings.max_input_tokens,)
    if missing := [str(length) for length in lengths if not any(golden.length == length for golden in goldens)]:
        raise Unavailable(f"{folder}: {GOLDENS} has no row for {', '.join(missing)} tokens. Build the model again.")
    compared = [
        deviation
        for length in lengths
        for deviation in _compare(engine, settings, [each for each in goldens if each.length == length], copies)
    ]
    for copy in range(1, copies + 1):
        if problem := refusal([each for each in compared if each.copy == copy], limits):
            which = f"copy {copy} of {copies}, " if copies > 1 else ""
            raise Unavailable(
                f"on its NeuronCores it does not compute what the original does: {which}{problem}. Replace this "
                "machine where others serve the same archive; otherwise build the model again, with a finer cast if "
                "need be."
            )


def refusal(compared: Sequence[Deviation], limits: Limits) -> str:
    """Returns the worst of what is beyond the limits, with its figures; empty where nothing is."""
    if broken := [each for each in compared if not math.isfinite(each.largest)]:
        return f"{broken[0].where}: some numbers are infinite or none at all (NaN)"
    worst = max(compared, key=lambda each: each.largest)
    most = limits.max_logit_difference
    if most is not None and worst.largest > most:
        return f"{worst.where}: {worst.largest:.3g} off, at most {most:g} is allowed (parity.max_logit_difference)"
    mean = sum(each.total for each in compared) / sum(each.count for each in compared)
    most = limits.max_mean_logit_difference
    if most is not None and mean > most:
        return (
            f"{mean:.3g} off in the mean, at most {most:g} is allowed (parity.max_mean_logit_difference); the worst is "
            f"{worst.where}, {worst.largest:.3g} off"
        )
    movable = [each for each in compared if each.count > 1]
    moved = sorted((each for each in movable if each.moved), key=lambda each: -each.largest)
    if len(moved) > limits.max_metric_drop * len(movable):
        return (
            f"{moved[0].where}: another number is the largest, {moved[0].largest:.3g} off; it is so in {len(moved)} of "
            f"{len(movable)} outputs, and in a share of at most {limits.max_metric_drop:g} it may be "
            "(parity.max_metric_drop)"
        )
    return ""


def _compare(engine: Engine, settings: Settings, goldens: Sequence[Golden], copies: int) -> "list[Deviation]":
    """Runs the rows of one length over and over, until each copy of the model has had a whole batch of them.

    A call has one batch for each copy, in the order of the copies: which computed a row of more is the engine's matter.
    """
    batch = max(1, settings.batch_size)
    step = batch * copies
    rows = [goldens[index % len(goldens)] for index in range(-(-len(goldens) // step) * step)]
    compared: list[Deviation] = []
    for start in range(0, len(rows), step):
        call = rows[start : start + step]
        encodings = [golden.encoding for golden in call]
        given = engine.run(tensors(encodings, settings.inputs, (call[0].length,), settings.pad_token_id))
        compared += [
            _deviation(golden, index // batch + 1, name, output[index])
            for name, output in given.items()
            for index, golden in enumerate(call)
        ]
    return compared


def _deviation(golden: Golden, copy: int, name: str, output: "NDArray[Any]") -> Deviation:
    wanted = np.array(golden.outputs[name], np.float64)
    given = own_tokens(name, np.atleast_1d(output), len(golden.token_ids)).astype(np.float64).ravel()
    differences = np.abs(given - wanted)
    return Deviation(
        copy=copy,
        where=f"row {golden.row} of evaluation.jsonl on {golden.length} tokens, {name}",
        largest=float(differences.max()),
        total=float(differences.sum()),
        count=differences.size,
        moved=bool(given.argmax() != wanted.argmax()),
    )
