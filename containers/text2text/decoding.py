"""Greedy decoding of a whole batch, token by token or several at a time.

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
    """Runs the graphs. `S` holds a batch in the engine's own form, its last tokens included; `step` changes it.

    `encode` is called once per batch, then `step` until every row has ended. An engine whose caches are arrays of the
    host drops the rows that have ended; one whose launches have fixed shapes goes on decoding them.
    """

    def encode(self, token_ids: Tokens, mask: Tokens, start: int) -> S:
        """Reads the sources. Both are [rows, length]; the mask is 1 for a token and 0 for padding.

        The first step of every row is fed the token `start`.
        """

    def step(self, state: S, live: NDArray[np.bool_]) -> Tokens:
        """Appends one or more of the most likely tokens to each output and returns them, [rows, tokens].

        Rows that are not `live` have ended, and stay so: what is returned for them means nothing.
        """


def greedy(engine: Engine[S], token_ids: Tokens, mask: Tokens, settings: Settings) -> list[Tokens]:
    """Returns the tokens of each row up to its first end-of-sequence (included), or to `max_output_tokens`."""
    rows, limit = len(token_ids), settings.max_output_tokens
    written = np.empty((rows, limit), np.int64)
    lengths = np.full(rows, limit)
    live = np.ones(rows, np.bool_)
    state = engine.encode(token_ids, mask, settings.decoder_start_token_id)
    position = 0
    while position < limit:
        tokens = engine.step(state, live)[:, : limit - position]
        written[:, position : position + tokens.shape[1]] = tokens
        ends = is_end(tokens, settings.eos_token_ids)
        if ends.any():
            ended = ends.any(1) & live
            lengths[ended] = position + ends[ended].argmax(1) + 1
            live = live & ~ended
            if not live.any():
                break
        position += tokens.shape[1]
    return [row[:length] for row, length in zip(written, lengths, strict=True)]


def is_end(tokens: Tokens, eos_token_ids: tuple[int, ...]) -> NDArray[np.bool_]:
    """Tells which tokens end a sequence."""
    is_end: NDArray[np.bool_] = tokens == eos_token_ids[0]
    for other in eos_token_ids[1:]:
        is_end |= tokens == other
    return is_end
