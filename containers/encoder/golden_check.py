"""Compares a model on its NeuronCores with its original before it serves, on the golden rows of its archive.

In: a loaded engine and the model's folder. Out: nothing, or `Unavailable` with the figures. The numbers are held to
max_logit_difference and max_mean_logit_difference of parity.json. max_metric_drop is held to the share of outputs
whose largest number is at another place: the build packs rows of which the original is sure, so that rounding alone
moves none. It costs one batch on each core and each compiled length.
"""

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import Unavailable
from .engine import Engine
from .goldens import GOLDENS, Golden, Limits, load
from .load_engine import NEURON_GRAPHS
from .settings import Settings
from .tensors import own_tokens, tensors

PLACEMENT, COUNT = "NEURON_PLACEMENT", "NEURON_RT_NUM_CORES"
"""The variables by which the launcher tells a worker of its cores (`neuron.cores`)."""


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
