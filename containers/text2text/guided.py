"""Greedy decoding that checks several tokens in one pass of the decoder, where the source suggests them.

A draft is a part of the source. The decoder reads it at once, and returns the most likely token after each of its
tokens. Draft tokens are accepted up to the first that greedy decoding would not have chosen. So the answers are those
of `decoding.greedy`, as long as no two tokens are as likely as each other but for rounding, which depends on the number
of tokens in a pass. The build compares both on the whole evaluation.

Sources: aggressive decoding (arXiv 2106.04970), and transformers' prompt lookup decoding.
"""

from collections.abc import Sequence
from typing import Literal, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from .decoding import Tokens
from .settings import Settings

MOST_ROWS = 1
"""Rows of a batch that is guided. A larger one is decoded token by token."""
FIRST_DRAFT, SHORTEST_DRAFT = 12, 6
"""Tokens: of the first draft, and of the shortest after a rejection."""
LONGEST_MATCH = 3
S = TypeVar("S")
Lengths = NDArray[np.intp]


class CheckingEngine(Protocol[S]):
    def encode(self, token_ids: Tokens, mask: Tokens, start: int) -> S:
        """Reads the sources, as an `Engine` does."""

    def check(self, state: S, tokens: Tokens, lengths: Lengths) -> Tokens:
        """Appends `tokens`, [rows, queries], behind the first `lengths` places of each row's cache.

        Returns the most likely token after each.
        """

    def settle(self, state: S, lengths: Lengths, counts: Lengths, live: NDArray[np.bool_]) -> None:
        """Keeps the live rows, and of the tokens of the last `check` the first `counts` of each row."""


class Draft:
    """The part of a source that may come next in its answer."""

    def __init__(self, source: Sequence[int], mode: Literal["input", "ngram"]) -> None:
        self._source, self._least_match = source, 1 if mode == "input" else 2
        self._places: dict[int, list[int]] = {}
        for place, token in enumerate(source):
            self._places.setdefault(token, []).append(place)
        self._next = 0 if mode == "input" else None
        self._expected, self._length = 0, FIRST_DRAFT

    def propose(self, most: int) -> Sequence[int]:
        """Returns up to `most` tokens."""
        return () if self._next is None else self._source[self._next : self._next + min(self._length, most)]

    def advance(self, answer: Sequence[int], proposed: int, accepted: int) -> None:
        """Chooses the next part by the answer so far, and its length by the tokens that were accepted."""
        if proposed:
            self._length = 2 * self._length if accepted == proposed else max(SHORTEST_DRAFT, accepted + 1)
        if self._next is not None:
            self._expected = self._next + accepted
        matches = [(self._match(answer, place), place) for place in self._places.get(answer[-1], ())]
        size, place = max(matches, key=lambda each: (each[0], -abs(each[1] - self._expected)), default=(0, 0))
        self._next = place + 1 if size >= self._least_match else None

    def _match(self, answer: Sequence[int], place: int) -> int:
        """Returns how many tokens up to `place` are those at the answer's end."""
        most = min(LONGEST_MATCH, place + 1, len(answer))
        return next((size for size in range(most) if self._source[place - size] != answer[-1 - size]), most)


def guided(
    engine: CheckingEngine[S],
    token_ids: Tokens,
    mask: Tokens,
    settings: Settings,
    mode: Literal["input", "ngram"],
    sources: Sequence[Sequence[int]],
) -> tuple[list[Tokens], list[int]]:
    """Returns the tokens of each row as `greedy` does, and the passes of each. Drafts are parts of the `sources`."""
    start, limit = settings.decoder_start_token_id, settings.max_output_tokens
    drafts = [Draft(source, mode) for source in sources]
    answers: list[list[int]] = [[] for _ in sources]
    passes = [0] * len(sources)
    state = engine.encode(token_ids, mask, start)
    rows = list(range(len(sources)))
    while rows:
        lengths = np.array([len(answers[row]) for row in rows])
        proposals = [drafts[row].propose(limit - 1 - int(lengths.max())) for row in rows]
        tokens = np.full((len(rows), 1 + max(map(len, proposals))), start, np.int64)
        for at, row in enumerate(rows):
            tokens[at, : 1 + len(proposals[at])] = (*(answers[row][-1:] or [start]), *proposals[at])
        best = engine.check(state, tokens, lengths).tolist()
        counts, live = np.empty_like(lengths), np.empty(len(rows), np.bool_)
        for at, row in enumerate(rows):
            new = _accepted(proposals[at], best[at], settings.eos_token_ids)
            answers[row] += new
            passes[row] += 1
            counts[at] = len(new)
            live[at] = new[-1] not in settings.eos_token_ids and len(answers[row]) < limit
            drafts[row].advance(answers[row], len(proposals[at]), len(new) - 1)
        rows = [row for row, is_live in zip(rows, live, strict=True) if is_live]
        if rows:
            engine.settle(state, lengths, counts, live)
    return [np.array(answer, np.int64) for answer in answers], passes


def _accepted(proposal: Sequence[int], best: Sequence[int], ends: Sequence[int]) -> list[int]:
    """Returns the tokens that greedy decoding chooses: those of the proposal that are the best, and one more."""
    count = 0
    while count < len(proposal) and proposal[count] == best[count] and best[count] not in ends:
        count += 1
    return list(best[: count + 1])
