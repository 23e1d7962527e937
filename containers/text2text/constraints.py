"""Forbids, forces and discourages tokens before one is chosen, as transformers' logits processors do, in their order.

In: scores of the next token, [rows, vocabulary], which are changed in place, and the tokens written so far. The token
that decoding starts with counts among them, as it does there. It does not know how a token is chosen.
"""

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from .generation import Generation
from .settings import Settings

Floats = NDArray[np.float32]
Tokens = NDArray[np.int64]


class Constraints:
    def __init__(self, generation: Generation, settings: Settings) -> None:
        self._generation, self._start, self._limit = (
            generation,
            settings.decoder_start_token_id,
            settings.max_output_tokens,
        )
        self._ends = list(settings.eos_token_ids)
        words = [word for word in generation.bad_words_ids if list(word) not in [[end] for end in self._ends]]
        self._bad = sorted({word[0] for word in words if len(word) == 1})
        self._phrases = [np.array(word) for word in words if len(word) > 1]

    def apply(self, scores: Floats, written: Tokens) -> None:
        """Changes the scores of the token behind `written`, [rows, tokens so far] without the start."""
        asked, position = self._generation, written.shape[1]
        history = np.concatenate([np.full((len(written), 1), self._start), written], 1)
        if asked.repetition_penalty != 1.0:
            _discourage(scores, history, asked.repetition_penalty)
        if 0 < asked.no_repeat_ngram_size <= position + 1:
            _forbid_repetition(scores, history, asked.no_repeat_ngram_size)
        if self._bad:
            scores[:, self._bad] = -np.inf
        for phrase in self._phrases:
            if len(phrase) - 1 <= position + 1:
                met = (history[:, position + 2 - len(phrase) :] == phrase[:-1]).all(1)
                scores[met, phrase[-1]] = -np.inf
        if position + 1 < asked.min_length or position < asked.min_new_tokens:
            scores[:, self._ends] = -np.inf
        if position == 0 and asked.forced_bos_token_id is not None:
            _force(scores, (asked.forced_bos_token_id,))
        if position == self._limit - 1 and asked.forced_eos_token_ids:
            _force(scores, asked.forced_eos_token_ids)
        if asked.suppress_tokens:
            scores[:, list(asked.suppress_tokens)] = -np.inf
        # transformers counts from the first token that is free.
        if asked.begin_suppress_tokens and position == (0 if asked.forced_bos_token_id is None else 1):
            scores[:, list(asked.begin_suppress_tokens)] = -np.inf


def _discourage(scores: Floats, history: Tokens, penalty: float) -> None:
    """Makes a score of what was said already less: one below 0 is multiplied, one above is divided."""
    said = np.take_along_axis(scores, history, 1)
    lesser = np.where(said < 0, said * np.float32(penalty), said / np.float32(penalty))
    np.put_along_axis(scores, history, lesser, 1)


def _forbid_repetition(scores: Floats, history: Tokens, size: int) -> None:
    """Forbids each token with which the last ones would be `size` tokens that were said before."""
    windows = sliding_window_view(history, size, axis=1)
    last = history[:, history.shape[1] + 1 - size :]
    row, place = np.nonzero((windows[..., :-1] == last[:, None]).all(-1))
    scores[row, windows[row, place, -1]] = -np.inf


def _force(scores: Floats, tokens: tuple[int, ...]) -> None:
    scores[:] = -np.inf
    scores[:, list(tokens)] = 0.0
