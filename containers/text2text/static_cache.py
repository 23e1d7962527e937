"""Decodes several tokens at once over a cache that has all its places from the start: an `Engine` of the decoding loop.

A `Program` runs the graphs at one of a few sizes of batch. Its shapes and addresses never change, so that its steps can
be CUDA graphs. A batch is padded to the next size. A row that has ended is decoded further until all have. The next
batch takes over the memory.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from .decoding import Tokens

TOKENS_PER_LAUNCH = 4  # an even number: steps take turns with two caches, and a launch ends at its first
CHECKED_TOKENS = 16
"""Tokens of a pass that checks a draft: the last token, and a draft of up to 15."""
SHORTEST_SOURCE = 16


def cache_places(max_output_tokens: int) -> int:
    """Returns the places of a cache that whole launches fill: `max_output_tokens` and less than a launch more."""
    return -(-max_output_tokens // TOKENS_PER_LAUNCH) * TOKENS_PER_LAUNCH


def doubled(least: int, most: int) -> tuple[int, ...]:
    """Returns `least` and its doubles up to `most`, which is always the last."""
    return (*(least << i for i in range(most.bit_length()) if least << i < most), most)


def batch_sizes(most_rows: int, longest: int) -> tuple[tuple[int, int], ...]:
    """Returns rows and source length of every program that batches of up to these sizes need, the smallest first."""
    return tuple((rows, source) for rows in doubled(1, most_rows) for source in doubled(SHORTEST_SOURCE, longest))


class Program(Protocol):
    """Both graphs at one size of batch, and the memory of the batch that was encoded last."""

    rows: int
    source: int

    def encode(self, token_ids: Tokens, mask: Tokens, start: int) -> None:
        """Begins to read the sources, [rows, source] each, and does not wait. The first step takes `start`."""

    def decode(self) -> Tokens:
        """Takes the next `TOKENS_PER_LAUNCH` steps and returns their tokens, [rows, TOKENS_PER_LAUNCH]."""

    def logits(self, step: int, tokens: Tokens) -> NDArray[Any]:
        """Takes the step after `step` others with these tokens, [rows, 1], and returns its logits, a new array."""


class CheckingProgram(Program, Protocol):
    """A program of one row that also checks drafts."""

    def check(self, position: int, tokens: Tokens) -> Tokens:
        """Writes `CHECKED_TOKENS` tokens of one row to the cache from `position`.

        Returns the most likely token after each. Tokens behind the end of the cache are dropped.
        """


@dataclass
class Batch:
    """The batch in an engine's memory: how many rows of the program are its own, and the steps so far."""

    rows: int
    program: Program
    steps: int = 0


class StaticEngine:
    most_rows = 1
    draft_length: int | None = CHECKED_TOKENS - 1

    def __init__(self, programs: Sequence[Program]) -> None:
        """Takes programs in the order of their sizes, as `batch_sizes` has them."""
        self._programs = tuple(programs)
        self._batch: Batch | None = None

    def encode(self, token_ids: Tokens, mask: Tokens, start: int) -> Batch:
        rows, length = token_ids.shape
        program = next((each for each in self._programs if rows <= each.rows and length <= each.source), None)
        if program is None:
            most = self._programs[-1]
            raise ValueError(f"a batch of {rows} × {length} tokens, where {most.rows} × {most.source} are the most")
        program.encode(*_padded(token_ids, mask, (program.rows, program.source)), start)
        self._batch = Batch(rows, program)
        return self._batch

    def step(self, state: Batch, live: NDArray[np.bool_]) -> Tokens:
        self._check_newest(state)
        state.steps += TOKENS_PER_LAUNCH
        return state.program.decode()[: state.rows]

    def logits(self, state: Batch, tokens: Tokens, live: NDArray[np.bool_] | None = None) -> NDArray[Any]:
        """Appends `tokens`, [rows, 1], and returns the decoder's logits of the rows that are live."""
        self._check_newest(state)
        fed = np.zeros((state.program.rows, 1), np.int64)
        fed[: state.rows] = tokens
        state.steps += 1
        logits = state.program.logits(state.steps - 1, fed)[: state.rows]
        return logits if live is None else logits[live]

    def check(self, state: Batch, tokens: Tokens, lengths: NDArray[np.intp]) -> Tokens:
        """Appends `tokens`, [1, queries], behind the first `lengths` places, and returns the most likely after each."""
        self._check_newest(state)
        drafted = np.zeros(CHECKED_TOKENS, np.int64)
        drafted[: tokens.shape[1]] = tokens[0]
        program = cast(CheckingProgram, state.program)
        return program.check(int(lengths[0]), drafted)[None, : tokens.shape[1]]

    def settle(
        self, state: Batch, lengths: NDArray[np.intp], counts: NDArray[np.intp], live: NDArray[np.bool_]
    ) -> None:
        """Does nothing: the next `check` writes over the tokens that were not accepted."""

    def _check_newest(self, state: Batch) -> None:
        if state is not self._batch:
            raise RuntimeError("this batch's caches were taken by a later one")


def _padded(token_ids: Tokens, mask: Tokens, size: tuple[int, int]) -> tuple[Tokens, Tokens]:
    rows, length = token_ids.shape
    ids, wide = np.zeros(size, np.int64), np.zeros(size, np.int64)
    ids[:rows, :length], wide[:rows, :length] = token_ids, mask
    # A row of padding alone would attend to nothing, which is no number.
    wide[rows:, 0] = 1
    return ids, wide
