"""Decodes a batch token by token where the most likely one is not always the next: by constraints, or by chance.

It takes an engine that answers with scores, padded token ids with their mask, and the settings, and returns one array
of tokens per row, as `decoding.greedy` does. Several beams are `beams.py`'s.
"""

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from .constraints import Constraints
from .decoding import Engine, Tokens, is_end
from .generation import Generation
from .settings import Settings

Floats = NDArray[np.float32]
Choose = Callable[[Floats, NDArray[np.intp]], Tokens]
"""Takes scores [rows, vocabulary] and which rows of the batch they are, and returns a token for each."""
S = TypeVar("S")
BLOCK = 32
"""Tokens of a block. A pass over the maxima of blocks costs less than a sort of all tokens."""


class ScoringEngine(Engine[S], Protocol[S]):
    def logits(self, state: S, tokens: Tokens, live: NDArray[np.bool_] | None = None) -> Floats:
        """Appends `tokens`, [rows, 1], and returns the scores of those behind them, [live rows, vocabulary].

        Rows that are not `live` have ended, and stay so. The scores are the caller's, who may change them.
        """


def one_by_one(
    engine: ScoringEngine[S],
    token_ids: Tokens,
    mask: Tokens,
    settings: Settings,
    generation: Generation,
    choose: Choose,
) -> list[Tokens]:
    """Returns the tokens of each row up to its first end-of-sequence (included), or to `max_output_tokens`."""
    rows, limit = len(token_ids), settings.max_output_tokens
    constraints = Constraints(generation, settings)
    written = np.full((rows, limit), settings.pad_token_id, np.int64)
    lengths = np.full(rows, limit)
    live = np.ones(rows, np.bool_)
    state = engine.encode(token_ids, mask, settings.decoder_start_token_id)
    tokens = np.full((rows, 1), settings.decoder_start_token_id, np.int64)
    for position in range(limit):
        open_rows = np.flatnonzero(live)
        scores = np.asarray(engine.logits(state, tokens, live), np.float32)
        constraints.apply(scores, written[open_rows, :position])
        written[open_rows, position] = said = choose(scores, open_rows)
        ended = open_rows[is_end(said, settings.eos_token_ids)]
        lengths[ended], live[ended] = position + 1, False
        if not live.any():
            break
        tokens = written[:, [position]]
    return [row[:length] for row, length in zip(written, lengths, strict=True)]


def most_likely(scores: Floats, rows: NDArray[np.intp]) -> Tokens:
    """Chooses greedily."""
    tokens: Tokens = scores.argmax(1)
    return tokens


def by_chance(generation: Generation, chances: Sequence[np.random.Generator]) -> Choose:
    """Chooses by the likelihood of tokens, each row by its own source of chance: no neighbour changes its answer."""

    def choose(scores: Floats, rows: NDArray[np.intp]) -> Tokens:
        return np.array([_draw(row, generation, chances[at]) for row, at in zip(scores, rows, strict=True)])

    return choose


def likelihoods(scores: Floats, generation: Generation) -> tuple[Tokens, NDArray[np.float64]]:
    """Returns the tokens that may be drawn from one row's scores, the likeliest first, and their likelihoods."""
    heated = scores / np.float32(generation.temperature)
    count = min(generation.top_k or len(scores), len(scores))
    tokens, best = (found[0] for found in top(heated[None], count))
    weights = np.exp((best - best[0]).astype(np.float64))
    weights /= weights.sum()
    if generation.top_p < 1.0:
        # Those before which less than top_p is reached, and always the first.
        kept = np.cumsum(weights) - weights < generation.top_p
        kept[0] = True
        tokens, weights = tokens[kept], weights[kept] / weights[kept].sum()
    return tokens, weights


def _draw(scores: Floats, generation: Generation, chance: np.random.Generator) -> int:
    tokens, weights = likelihoods(scores, generation)
    reached = np.cumsum(weights)
    place = int(np.searchsorted(reached, chance.random() * reached[-1], side="right"))
    return int(tokens[min(place, len(tokens) - 1)])


def top(scores: Floats, count: int) -> tuple[Tokens, Floats]:
    """Returns the best tokens of each row and their scores, [rows, count] each, the best first.

    scores are [rows, vocabulary]. Only the blocks with the best maxima are sorted: they hold the best of all. The
    tokens of a block are `whole` apart, so that numpy compares whole vectors.
    """
    rows, vocabulary = scores.shape
    whole = vocabulary // BLOCK
    if whole <= 2 * count:
        return _sorted(scores, np.broadcast_to(np.arange(vocabulary), scores.shape), count)
    maxima = scores[:, : whole * BLOCK].reshape(rows, BLOCK, whole).max(1)
    blocks = np.argpartition(maxima, whole - count, 1)[:, whole - count :]
    tokens = (blocks[:, :, None] + whole * np.arange(BLOCK)).reshape(rows, -1)
    tokens = np.concatenate(
        [tokens, np.broadcast_to(np.arange(whole * BLOCK, vocabulary), (rows, vocabulary % BLOCK))], 1
    )
    tokens.sort(1)
    return _sorted(np.take_along_axis(scores, tokens, 1), tokens, count)


def _sorted(scores: Floats, tokens: Tokens, count: int) -> tuple[Tokens, Floats]:
    """Returns the best `count` of these tokens, those of the same score in the order of their numbers."""
    order = np.argsort(-scores, 1, kind="stable")[:, :count]
    return np.take_along_axis(tokens, order, 1), np.take_along_axis(scores, order, 1)
