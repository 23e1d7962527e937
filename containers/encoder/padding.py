"""Rows of different lengths in one batch: padded on the right, and cut back afterwards.

A tensor's axis 0 is the row, its axis 1, where it has one, the token. Padding is 0 but for `input_ids`.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Tensors = dict[str, NDArray[Any]]

PER_TOKEN_OUTPUTS = frozenset({"start_logits", "end_logits"})


def padded_length(longest: int, pad_to: Sequence[int]) -> int:
    """The smallest bucket that fits, or `longest` itself where there are no buckets. `pad_to` ascends."""
    return next((length for length in pad_to if length >= longest), longest)


def pad(tensor: NDArray[Any], length: int, value: int) -> NDArray[Any]:
    """[rows, tokens] to [rows, length]."""
    padded = np.full((len(tensor), length), value, tensor.dtype)
    padded[:, : tensor.shape[1]] = tensor
    return padded


def merge(requests: Sequence[Mapping[str, NDArray[Any]]], pad_token_id: int) -> Tensors:
    """The rows of all requests as one batch, as long as the longest of them."""
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
    """What `merge` joined, apart again: `shapes` are each request's own rows and length."""
    starts = np.cumsum([0, *(rows for rows, _ in shapes)]).tolist()
    return [
        {
            name: output[start : start + rows, :length] if name in PER_TOKEN_OUTPUTS else output[start : start + rows]
            for name, output in outputs.items()
        }
        for start, (rows, length) in zip(starts, shapes, strict=False)
    ]
