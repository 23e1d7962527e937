"""Greedy decoding of a whole batch with a key-value cache; a row leaves the batch when it ends.

It takes an engine, padded token ids with their mask, and the settings, and returns one array of tokens per row. It
knows neither the runtime of the graphs nor text. The build's parity gate runs this same loop.
"""

from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from .settings import Settings

Tokens = NDArray[np.int64]
S = TypeVar("S")


class Engine(Protocol[S]):
    """Runs the graphs. `S` holds a batch's caches in the engine's own form; `step` and `keep` change it in place.

    `encode` is called once per batch, then `step` once per token, and `keep` in between whenever rows have ended.
    """

    def encode(self, token_ids: Tokens, mask: Tokens) -> S:
        """Reads the sources. Both are [rows, length]; the mask is 1 for a token and 0 for padding."""

    def step(self, state: S, tokens: Tokens) -> Tokens:
        """Appends `tokens`, [rows, 1], to the outputs and returns the most likely next tokens, [rows, 1]."""

    def keep(self, state: S, rows: NDArray[np.intp]) -> None:
        """Drops all rows but these."""


def greedy(engine: Engine[S], token_ids: Tokens, mask: Tokens, settings: Settings) -> list[Tokens]:
    """Returns the tokens of each row up to its first end-of-sequence (included), or to `max_output_tokens`.

    A row leaves as soon as it ends: copying the caches of the others costs less than decoding it further.
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
    is_end: NDArray[np.bool_] = tokens == eos_token_ids[0]
    for other in eos_token_ids[1:]:
        is_end |= tokens == other
    return is_end
