"""Beam search over all rows of a batch at once: the same answers as transformers' own, token by token.

Source: `_beam_search` of transformers 5 (`generation/utils.py`), whose rules these are: twice as many continuations as
beams are looked at, so that enough of them run on; a sum of logarithms is divided by the length to the power of
`length_penalty`; `early_stopping` says when a row's answers are good enough. A row whose search is over leaves the
caches, as one does that has ended in `decoding.greedy`.
"""

from dataclasses import dataclass, fields
from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from .constraints import Constraints
from .decoding import Tokens
from .generation import Generation
from .search import Floats, ScoringEngine, top
from .settings import Settings

Rows = NDArray[np.intp]
S = TypeVar("S")
NOTHING = np.float32(-1e9)
"""The score of a place in which there is no answer yet."""


class BeamEngine(ScoringEngine[S], Protocol[S]):
    def select(self, state: S, rows: Rows) -> None:
        """Makes the caches those of these rows, each of which may come several times or not at all."""


@dataclass
class Beams:
    """The rows whose search goes on: their beams, and the answers found so far, the best first."""

    rows: Rows  # of the batch
    sums: Floats  # [rows, beams]: logarithms of likelihoods, summed
    written: Tokens  # [rows, beams, tokens so far]
    scores: Floats  # [rows, answers], as many as beams
    answers: Tokens  # [rows, answers, limit]
    lengths: NDArray[np.int64]  # [rows, answers]
    found: NDArray[np.bool_]  # [rows, answers]: whether there is one
    open: NDArray[np.bool_]  # [rows]: whether a better one may be found

    @classmethod
    def begin(cls, rows: int, count: int, limit: int) -> "Beams":
        """All beams of a row begin as one."""
        return cls(
            rows=np.arange(rows),
            sums=np.zeros((rows, 1), np.float32),
            written=np.empty((rows, 1, 0), np.int64),
            scores=np.full((rows, count), NOTHING),
            answers=np.zeros((rows, count, limit), np.int64),
            lengths=np.zeros((rows, count), np.int64),
            found=np.zeros((rows, count), np.bool_),
            open=np.ones(rows, np.bool_),
        )

    def keep(self, rows: NDArray[np.bool_]) -> None:
        for field in fields(self):
            setattr(self, field.name, getattr(self, field.name)[rows])


@dataclass(frozen=True)
class Continuations:
    """Tokens that may come next, [rows, continuations], the best first."""

    sums: Floats
    beams: Rows
    tokens: Tokens


def beam_search(
    engine: BeamEngine[S], token_ids: Tokens, mask: Tokens, settings: Settings, generation: Generation
) -> list[Tokens]:
    """Returns the tokens of each row's best answer, its end-of-sequence included."""
    rows, start = len(token_ids), settings.decoder_start_token_id
    constraints = Constraints(generation, settings)
    beams = Beams.begin(rows, generation.num_beams, settings.max_output_tokens)
    best: list[Tokens] = [np.empty(0, np.int64)] * rows
    state = engine.encode(token_ids, mask, start)
    tokens = np.full((rows, 1), start, np.int64)
    while True:
        next_ones = _continuations(engine.logits(state, tokens), beams, constraints, settings, generation)
        parents, over = _advance(beams, next_ones, settings, generation)
        for row in np.flatnonzero(over):
            best[beams.rows[row]] = beams.answers[row, 0, : beams.lengths[row, 0]]
        if over.all():
            return best
        beams.keep(~over)
        engine.select(state, parents[~over].ravel())
        tokens = beams.written[:, :, -1].reshape(-1, 1)


def _continuations(
    logits: Floats, beams: Beams, constraints: Constraints, settings: Settings, generation: Generation
) -> Continuations:
    """Returns the best of all beams of a row, (ends + 1) for each beam: so many run on even if all ends are best."""
    rows, width, position = beams.written.shape
    scores = np.asarray(logits, np.float32)
    shift = _log_sum(scores)
    if generation.repetition_penalty != 1.0:
        scores -= shift[:, None]  # the penalty depends on where zero is
        shift = np.zeros_like(shift)
    constraints.apply(scores, beams.written.reshape(rows * width, position))
    if generation.renormalize_logits:
        shift = _log_sum(scores)
    count = max(2, 1 + len(settings.eos_token_ids)) * generation.num_beams
    tokens, values = top(scores, min(count, scores.shape[1]))
    sums = ((values - shift[:, None]) + beams.sums.reshape(-1, 1)).reshape(rows, -1)
    order = np.argsort(-sums, 1, kind="stable")[:, :count]
    return Continuations(
        sums=np.take_along_axis(sums, order, 1),
        beams=order // tokens.shape[1],
        tokens=np.take_along_axis(tokens.reshape(rows, -1), order, 1),
    )


def _advance(
    beams: Beams, after: Continuations, settings: Settings, generation: Generation
) -> tuple[Rows, NDArray[np.bool_]]:
    """Writes a token to each beam and the answers that ended with it.

    Returns the row of the caches behind each beam, [rows, beams], and the rows whose search is over.
    """
    rows, width, position = beams.written.shape
    count, length = generation.num_beams, position + 1
    ends = np.isin(after.tokens, settings.eos_token_ids) | (length == settings.max_output_tokens)
    written = np.concatenate(
        [np.take_along_axis(beams.written, after.beams[:, :, None], 1), after.tokens[:, :, None]], 2
    )
    _collect(beams, after, written, ends, beams.open & ~_enough(beams, generation), generation)
    running = np.where(ends, after.sums + NOTHING, after.sums)
    order = np.argsort(-running, 1, kind="stable")[:, :count]
    beams.sums = np.take_along_axis(running, order, 1)
    beams.written = np.take_along_axis(written, order[:, :, None], 1)
    beams.open[~_may_improve(beams, length, settings, generation)] = False
    parents = np.take_along_axis(after.beams, order, 1) + np.arange(rows)[:, None] * width
    return parents, ~beams.open | _enough(beams, generation) | ends.all(1)


def _collect(
    beams: Beams,
    after: Continuations,
    written: Tokens,
    ends: NDArray[np.bool_],
    wanted: NDArray[np.bool_],
    generation: Generation,
) -> None:
    """Puts what ended among the best answers; only as many continuations as there are beams count."""
    count, length = generation.num_beams, written.shape[2]
    ended = ends[:, :count] & wanted[:, None]
    scores = after.sums[:, :count] / np.float32(length**generation.length_penalty)
    scores = np.concatenate([beams.scores, np.where(ended, scores, NOTHING + scores)], 1)
    order = np.argsort(-scores, 1, kind="stable")[:, :count]
    answers = np.zeros((len(ended), ended.shape[1], beams.answers.shape[2]), np.int64)
    answers[:, :, :length] = written[:, :count]
    merged = {
        "scores": scores,
        "answers": np.concatenate([beams.answers, answers], 1),
        "lengths": np.concatenate([beams.lengths, np.full_like(ended, length, np.int64)], 1),
        "found": np.concatenate([beams.found, ended], 1),
    }
    for name, values in merged.items():
        taken = order if values.ndim == 2 else order[:, :, None]
        setattr(beams, name, np.take_along_axis(values, taken, 1))


def _may_improve(beams: Beams, length: int, settings: Settings, generation: Generation) -> NDArray[np.bool_]:
    """Tells the rows whose best beam may still become better than their worst answer."""
    penalty = generation.length_penalty
    longest = settings.max_output_tokens if generation.early_stopping == "never" and penalty > 0 else length
    possible = beams.sums[:, :1] / np.float32(longest**penalty)
    worst = np.where(beams.found, beams.scores.min(1, keepdims=True), NOTHING)
    better: NDArray[np.bool_] = np.logical_or.reduce(possible > worst, 1)
    return better


def _enough(beams: Beams, generation: Generation) -> NDArray[np.bool_]:
    """Tells the rows that have as many answers as beams, where that is enough."""
    enough: NDArray[np.bool_] = np.logical_and.reduce(beams.found, 1)
    return enough if generation.early_stopping is True else np.zeros_like(enough)


def _log_sum(scores: Floats) -> Floats:
    """Returns log(sum(exp(scores))) of each row. Row by row, so that it stays in the processor's cache."""
    found = np.empty(len(scores), np.float32)
    for index, row in enumerate(scores):
        most = row.max()
        found[index] = most + np.log(np.exp(row - most).sum())
    return found
