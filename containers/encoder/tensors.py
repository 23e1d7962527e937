"""Tokenised rows as the tensors of a compiled model, padded to a common length and cut back afterwards.

Tensors are int64: [rows, length], but for `valid_length`, [rows], which counts the real tokens of each row. Axis 0 is
the row, axis 1, where there is one, the token. Padding goes on the right and is 0, but for `input_ids`.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int64]
Tensors = dict[str, NDArray[Any]]

PER_TOKEN_OUTPUTS = frozenset({"start_logits", "end_logits"})
"""The outputs with one value for each token. Those with several have a dimension more than the others."""


@dataclass(frozen=True)
class Encoding:
    """A tokenised row. Each tuple has one entry per token."""

    token_ids: tuple[int, ...]
    type_ids: tuple[int, ...]
    spans: tuple[tuple[int, ...], ...] = ()
    """Where the answer is a piece of the text: the first character and the end of each token of its segment, counted
    in code points, and for token classification 1 where the token goes on with a word; -1 for a token outside it."""
    more: "tuple[Encoding, ...]" = ()
    """The other windows of a row that is too long for one."""

    def __len__(self) -> int:
        return len(self.token_ids)


def windows(encodings: Iterable[Encoding]) -> list[Encoding]:
    """Returns the windows of all rows, one after the other: what the compiled model takes for rows."""
    return [window for encoding in encodings for window in (encoding, *encoding.more)]


def tensors(
    encodings: Sequence[Encoding], inputs: Sequence[str], pad_to: Sequence[int], pad_token_id: int
) -> dict[str, Integers]:
    """Returns exactly `inputs`, in that order, padded to the smallest length of `pad_to` that fits the longest row.

    `position_ids` are 0 in the padding, too.
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


def token_spans(encodings: Sequence[Encoding], length: int) -> Integers:
    """Returns the `spans` of all tokens, [rows, length, 2 or 3]; -1 outside the answer's segment and in the padding."""
    spans = np.full((len(encodings), length, len(encodings[0].spans[0])), -1, np.int64)
    for row, encoding in zip(spans, encodings, strict=True):
        row[: len(encoding)] = encoding.spans
    return spans


def padded_length(longest: int, pad_to: Sequence[int]) -> int:
    """Returns the smallest length of `pad_to` that fits, or `longest` itself if there is none. `pad_to` ascends."""
    return next((length for length in pad_to if length >= longest), longest)


def pad(tensor: NDArray[Any], length: int, value: int) -> NDArray[Any]:
    """Pads [rows, tokens] to [rows, length]."""
    padded = np.full((len(tensor), length), value, tensor.dtype)
    padded[:, : tensor.shape[1]] = tensor
    return padded


def merge(requests: Sequence[Mapping[str, NDArray[Any]]], pad_token_id: int) -> Tensors:
    """Joins the rows of all requests into one batch, as long as the longest of them."""
    if len(requests) == 1:
        return dict(requests[0])
    length = max(request["input_ids"].shape[1] for request in requests)
    return {
        name: np.concatenate(
            [
                pad(request[name], length, pad_token_id if name == "input_ids" else 0)
                if request[name].ndim == 2
                else request[name]
                for request in requests
            ]
        )
        for name in requests[0]
    }


def split(outputs: Mapping[str, NDArray[Any]], shapes: Sequence[tuple[int, int]]) -> list[Tensors]:
    """Takes apart what `merge` joined. `shapes` holds each request's number of rows and length."""
    starts = np.cumsum([0, *(rows for rows, _ in shapes)]).tolist()
    return [
        {
            name: output[start : start + rows, :length] if per_token(name, output) else output[start : start + rows]
            for name, output in outputs.items()
        }
        for start, (rows, length) in zip(starts, shapes, strict=False)
    ]


def own_tokens(name: str, output: NDArray[Any], length: int) -> NDArray[Any]:
    """Returns a row's output without its padding."""
    return output[:length] if name in PER_TOKEN_OUTPUTS or output.ndim == 2 else output


def per_token(name: str, output: NDArray[Any]) -> bool:
    """Tells whether axis 1 of a batch's output is the token."""
    return name in PER_TOKEN_OUTPUTS or output.ndim == 3


def _filled(real: NDArray[np.bool_], rows: Iterable[Sequence[int]], padding: int) -> Integers:
    filled = np.full(real.shape, padding, np.int64)
    filled[real] = np.fromiter(chain.from_iterable(rows), np.int64)
    return filled
