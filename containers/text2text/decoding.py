"""Greedy decoding of a whole batch with a key-value cache, rows leaving as they end.

In: an engine, padded token ids with their mask, and the settings. Out: one array of tokens per row. It does not know
what runs the graphs, nor what a text is. The build's parity gate runs this very loop.
"""

from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from .settings import Settings

Tokens = NDArray[np.int64]
S = TypeVar("S")


class Engine(Protocol[S]):
    """Runs the graphs. `S` holds a batch's caches, wherever the engine likes; `step` and `keep` change it in place.

    Called once per batch: `encode`. Then `step` once per token, and `keep` in between whenever rows have ended.
    """

    def encode(self, token_ids: Tokens, mask: Tokens) -> S:
        """Read the sources, [rows, length] each, the mask 1 for a token and 0 for padding."""

    def step(self, state: S, tokens: Tokens) -> Tokens:
        """Append `tokens`, [rows, 1], to the outputs and return the most likely next ones, [rows, 1]."""

    def keep(self, state: S, rows: NDArray[np.intp]) -> None:
        """Forget all rows but these."""


def greedy(engine: Engine[S], token_ids: Tokens, mask: Tokens, settings: Settings) -> list[Tokens]:
    """The tokens of each row up to its first end-of-sequence (included), or to `max_output_tokens`.

    A row leaves at once when it ends: that copies the caches of the others, which costs less than decoding it on.
    """
    rows = len(token_ids)
    written = np.empty((rows, settings.max_output_tokens), np.int64)
    lengths = np.full(rows, settings.max_output_tokens)
    live = np.arange(rows)  # the row of `written` behind each row of the engine
    state = engine.encode(token_ids, mask)
    tokens = np.full((rows, 1), settings.decoder_start_token_id, np.int64)
    for position in range(settings.max_output_tokens):
        tokens = engine.step(state, tokens)
        written[live, position] = tokens[:, 0]
        ended = _is_end(tokens[:, 0], settings.eos_token_ids)
        if not ended.any():
            continue
        lengths[live[ended]] = position + 1
        if ended.all():
            break
        kept = np.flatnonzero(~ended)
        engine.keep(state, kept)
        live, tokens = live[kept], tokens[kept]
    return [row[:length] for row, length in zip(written, lengths, strict=True)]


def _is_end(tokens: Tokens, eos_token_ids: tuple[int, ...]) -> NDArray[np.bool_]:
    found: NDArray[np.bool_] = tokens == eos_token_ids[0]
    for other in eos_token_ids[1:]:
        found |= tokens == other
    return found
