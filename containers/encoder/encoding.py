"""A tokenised row, and rows as the tensors of the compiled model.

Out: int64 tensors, [rows, length] each but `valid_length`, [rows], which counts the real tokens of a row.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from .padding import padded_length

Integers = NDArray[np.int64]


@dataclass(frozen=True)
class Encoding:
    """One entry per token in each."""

    token_ids: tuple[int, ...]
    type_ids: tuple[int, ...]
    answer_spans: tuple[tuple[int, int], ...] = ()
    """For question answering: from and to which character (code point) of the answer's segment, else (-1, -1)."""

    def __len__(self) -> int:
        return len(self.token_ids)


def tensors(
    encodings: Sequence[Encoding], inputs: Sequence[str], pad_to: Sequence[int], pad_token_id: int
) -> dict[str, Integers]:
    """Exactly `inputs`, in that order, padded on the right to the smallest of `pad_to` that fits the longest row.

    Padding is 0 in every tensor but `input_ids`, in `position_ids` too.
    """
    lengths = np.array([len(encoding) for encoding in encodings], np.int64)
    positions = np.arange(padded_length(int(lengths.max()), pad_to))
    real = positions < lengths[:, None]
    made: dict[str, Integers] = {}
    for name in inputs:
        match name:
            case "input_ids":
                made[name] = _filled(real, (encoding.token_ids for encoding in encodings), pad_token_id)
            case "token_type_ids":
                made[name] = _filled(real, (encoding.type_ids for encoding in encodings), 0)
            case "attention_mask":
                made[name] = real.astype(np.int64)
            case "position_ids":
                made[name] = positions * real
            case "valid_length":
                made[name] = lengths
            case _:
                raise ValueError(f"inputs: '{name}' is not known.")
    return made


def answer_spans(encodings: Sequence[Encoding], length: int) -> Integers:
    """[rows, length, 2]: the characters of every token, -1 outside the answer's segment and in the padding."""
    spans = np.full((len(encodings), length, 2), -1, np.int64)
    for row, encoding in zip(spans, encodings, strict=True):
        row[: len(encoding)] = encoding.answer_spans
    return spans


def _filled(real: NDArray[np.bool_], rows: Iterable[Sequence[int]], padding: int) -> Integers:
    filled = np.full(real.shape, padding, np.int64)
    filled[real] = np.fromiter(chain.from_iterable(rows), np.int64)
    return filled
