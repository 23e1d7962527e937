"""Encodings to tensors, several requests to one batch and back: no real token changes."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from containers.encoder.tensors import Encoding, merge, split, tensors, token_spans
from tests.containers.encoder.encoder_miniature import FIVE_INPUTS

PAD = 9
encodings = st.lists(st.integers(10, 99), min_size=1, max_size=20).map(
    lambda ids: Encoding(tuple(ids), tuple(token % 2 for token in ids), tuple((token, token + 1) for token in ids))
)
batches = st.lists(encodings, min_size=1, max_size=6)


def test_rows_are_padded_to_the_smallest_length_that_fits() -> None:
    rows = [Encoding((5, 6, 7), (0, 0, 1), ((0, 1), (1, 2), (2, 3))), Encoding((8,), (1,), ((0, 4),))]
    made = tensors(rows, FIVE_INPUTS, (2, 4, 8), PAD)
    assert {name: tensor.tolist() for name, tensor in made.items()} == {
        "input_ids": [[5, 6, 7, PAD], [8, PAD, PAD, PAD]],
        "attention_mask": [[1, 1, 1, 0], [1, 0, 0, 0]],
        "position_ids": [[0, 1, 2, 0], [0, 0, 0, 0]],
        "valid_length": [3, 1],
        "token_type_ids": [[0, 0, 1, 0], [1, 0, 0, 0]],
    }
    assert list(made) == list(FIVE_INPUTS)
    assert all(tensor.dtype == np.int64 for tensor in made.values())
    assert token_spans(rows, 4).tolist() == [[[0, 1], [1, 2], [2, 3], [-1, -1]], [[0, 4], *[[-1, -1]] * 3]]
    assert tensors(rows, ["input_ids"], (), PAD)["input_ids"].shape == (2, 3)
    with pytest.raises(ValueError, match=r"^inputs: 'pixels' is not known\.$"):
        tensors(rows, ["pixels"], (), PAD)


@given(st.lists(batches, min_size=1, max_size=4))
def test_requests_are_merged_to_the_batch_of_all_their_rows_and_split_again(requests: list[list[Encoding]]) -> None:
    made = [tensors(rows, FIVE_INPUTS, (), PAD) for rows in requests]
    merged = merge(made, PAD)
    together = tensors([row for rows in requests for row in rows], FIVE_INPUTS, (), PAD)
    assert {name: tensor.tolist() for name, tensor in merged.items()} == {
        name: tensor.tolist() for name, tensor in together.items()
    }
    ids = merged["input_ids"]
    apart = split({"start_logits": ids, "score": ids[:, 0]}, [tuple(each["input_ids"].shape) for each in made])
    for outputs, each in zip(apart, made, strict=True):
        assert outputs["start_logits"].tolist() == each["input_ids"].tolist()
        assert outputs["score"].tolist() == each["input_ids"][:, 0].tolist()
