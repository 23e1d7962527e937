"""The port through which the serving code runs a compiled model, and adapters that split, fill up and spread batches.

`load_engine` chooses the runtime behind the port. A model compiled for one batch size takes exactly that many rows.
Missing rows are filled with copies of the last row: a row of padding alone has nothing to attend to, which can end in
NaN.
"""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue
from threading import Lock
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ..tensors import per_token
from .length_groups import group_by_length


class LacksInstructionSet(RuntimeError):
    """The CPU cannot run the compiled model."""


class Engine(Protocol):
    """Takes the tensors of `settings.inputs` and returns those of `settings.graph_outputs`, row for row.

    Outputs are float32, of the shapes that `settings.GRAPH_OUTPUTS` has for a row.
    """

    def run(self, tensors: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]: ...


class FixedBatch:
    """An `Engine` around one that takes exactly `batch_size` rows: splits longer batches, fills up shorter ones."""

    def __init__(self, engine: Engine, batch_size: int) -> None:
        self._engine = engine
        self._batch_size = batch_size

    def run(self, tensors: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        rows = len(next(iter(tensors.values())))
        fill = -rows % self._batch_size
        filled = {name: np.concatenate([each, np.repeat(each[-1:], fill, 0)]) for name, each in tensors.items()}
        batches = [
            self._engine.run({name: tensor[start : start + self._batch_size] for name, tensor in filled.items()})
            for start in range(0, rows, self._batch_size)
        ]
        return {name: np.concatenate([batch[name] for batch in batches])[:rows] for name in batches[0]}


class MixedLengths:
    """An `Engine` around one of any length: runs the rows in groups of similar lengths, each cut to its longest row.

    Outputs per token are 0 beyond the longest row of a group. Without an attention mask all rows run together.
    """

    def __init__(self, engine: Engine, launch_tokens: float) -> None:
        self._engine = engine
        self._launch_tokens = launch_tokens

    def run(self, tensors: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        mask = tensors.get("attention_mask", np.ones_like(tensors["input_ids"]))
        lengths = np.maximum(mask.sum(1, dtype=np.int64), 1).tolist()
        groups = group_by_length(lengths, self._launch_tokens)
        if len(groups) == 1:
            return self._engine.run(tensors)
        whole: dict[str, NDArray[Any]] = {}
        for rows in groups:
            longest = lengths[rows[-1]]
            part = {
                name: tensor[rows, :longest] if tensor.ndim > 1 else tensor[rows] for name, tensor in tensors.items()
            }
            for name, output in self._engine.run(part).items():
                shape = (*mask.shape, *output.shape[2:]) if per_token(name, output) else (len(mask), *output.shape[1:])
                made = whole.setdefault(name, np.zeros(shape, output.dtype))
                made[(rows, slice(longest)) if per_token(name, output) else rows] = output
        return whole


class Lanes:
    """An `Engine` of several that run at the same time, each on cores of its own and `rows` at once.

    A call takes the engine that has been idle for longest, and waits where none is idle. One with more rows waits for
    as many engines as it fills: with `count` * `rows` rows the first `rows` run on the first engine, and so on, so that
    every core runs, and which of them computed a row is known.
    """

    def __init__(self, engines: Sequence[Engine], rows: int) -> None:
        self.count = len(engines)
        self.rows = rows
        self._engines = engines
        self._idle: SimpleQueue[int] = SimpleQueue()
        for number in range(self.count):
            self._idle.put(number)
        self._gathering = Lock()  # two calls that each waited for what the other holds would wait for ever
        self._pool = ThreadPoolExecutor(self.count, "lane")

    def run(self, tensors: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        rows = len(next(iter(tensors.values())))
        if rows <= self.rows:
            return self._run(self._idle.get(), [tensors])[0]
        parts = [
            {name: tensor[start : start + self.rows] for name, tensor in tensors.items()}
            for start in range(0, rows, self.rows)
        ]
        with self._gathering:
            taken = sorted(self._idle.get() for _ in parts[: self.count])
        shares = [parts[place :: len(taken)] for place in range(len(taken))]
        ran = list(self._pool.map(self._run, taken, shares))
        in_order = [ran[index % len(taken)][index // len(taken)] for index in range(len(parts))]
        return {name: np.concatenate([part[name] for part in in_order]) for name in in_order[0]}

    def _run(self, number: int, parts: Sequence[Mapping[str, NDArray[Any]]]) -> "list[dict[str, NDArray[Any]]]":
        try:
            return [self._engines[number].run(part) for part in parts]
        finally:
            self._idle.put(number)
