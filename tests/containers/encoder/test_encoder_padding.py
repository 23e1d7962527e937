"""Encodings to tensors, several requests to one batch and back: no real token changes, padding is nothing."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from containers.encoder.engine import FixedBatch
from containers.encoder.tensors import Encoding, merge, padded_length, split, tensors, token_spans
from tests.containers.encoder.encoder_miniature import FIVE_INPUTS

PAD = 9
encodings = st.lists(st.integers(10, 99), min_size=1, max_size=20).map(
    lambda ids: Encoding(tuple(ids), tuple(token % 2 for token in ids), tuple((token, token + 1) for token in ids))
)
batches = st.lists(encodings, min_size=1, max_size=6)
buckets = st.sets(st.integers(1, 30), max_size=4).map(lambda lengths: tuple(sorted({*lengths, 30})))


def test_padding_by_example() -> None:
    made = tensors([Encoding((5, 6, 7), (0, 0, 1)), Encoding((8,), (1,))], FIVE_INPUTS, (2, 4, 8), PAD)
    assert {name: tensor.tolist() for name, tensor in made.items()} == {
        "input_ids": [[5, 6, 7, PAD], [8, PAD, PAD, PAD]],
        "attention_mask": [[1, 1, 1, 0], [1, 0, 0, 0]],
        "position_ids": [[0, 1, 2, 0], [0, 0, 0, 0]],
        "valid_length": [3, 1],
        "token_type_ids": [[0, 0, 1, 0], [1, 0, 0, 0]],
    }
    assert all(tensor.dtype == np.int64 for tensor in made.values())


@given(batches, st.permutations(FIVE_INPUTS).flatmap(lambda names: st.integers(1, 5).map(lambda n: names[:n])))
def test_exactly_the_inputs_are_made_in_their_order(rows: list[Encoding], inputs: list[str]) -> None:
    made = tensors(rows, inputs, (), PAD)
    assert list(made) == inputs
    assert {tensor.shape[:1] for tensor in made.values()} == {(len(rows),)}


@given(batches, buckets)
def test_rows_are_padded_to_the_smallest_bucket(rows: list[Encoding], pad_to: tuple[int, ...]) -> None:
    made = tensors(rows, FIVE_INPUTS, pad_to, PAD)
    longest = max(map(len, rows))
    length = min(bucket for bucket in pad_to if bucket >= longest)
    for number, row in enumerate(rows):
        padding = length - len(row)
        assert made["input_ids"][number].tolist() == [*row.token_ids, *[PAD] * padding]
        assert made["token_type_ids"][number].tolist() == [*row.type_ids, *[0] * padding]
        assert made["attention_mask"][number].tolist() == [1] * len(row) + [0] * padding
        assert made["position_ids"][number].tolist() == [*range(len(row)), *[0] * padding]
        assert made["valid_length"][number] == len(row)
        assert token_spans(rows, length)[number].tolist() == [*map(list, row.spans), *[[-1, -1]] * padding]


def test_without_buckets_the_longest_row_decides() -> None:
    assert padded_length(7, ()) == 7


def test_an_unknown_input_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"^inputs: 'pixels' is not known\.$"):
        tensors([Encoding((1,), (0,))], ["pixels"], (), PAD)


@given(st.lists(batches, min_size=1, max_size=4))
def test_requests_that_are_merged_are_the_batch_of_all_their_rows(requests: list[list[Encoding]]) -> None:
    merged = merge([tensors(rows, FIVE_INPUTS, (), PAD) for rows in requests], PAD)
    together = tensors([row for rows in requests for row in rows], FIVE_INPUTS, (), PAD)
    assert {name: tensor.tolist() for name, tensor in merged.items()} == {
        name: tensor.tolist() for name, tensor in together.items()
    }


@given(st.lists(batches, min_size=1, max_size=4))
def test_each_request_gets_its_rows_and_length(requests: list[list[Encoding]]) -> None:
    """Outputs that name their row and token: the result equals that of the single request."""
    given_tensors = [tensors(rows, ["input_ids"], (), PAD) for rows in requests]
    merged = merge(given_tensors, PAD)["input_ids"]
    outputs = {"start_logits": merged, "score": merged[:, 0], "logits": merged[:, :1]}
    apart = split(outputs, [tuple(made["input_ids"].shape) for made in given_tensors])
    for own, made in zip(apart, given_tensors, strict=True):
        assert own["start_logits"].tolist() == made["input_ids"].tolist()
        assert own["score"].tolist() == made["input_ids"][:, 0].tolist()
        assert own["logits"].tolist() == made["input_ids"][:, :1].tolist()


class Doubling:
    """Takes one batch size and no other."""

    def __init__(self, batch_size: int) -> None:
        self.batch_size = batch_size

    def run(self, tensors: Any) -> dict[str, NDArray[Any]]:
        assert {len(tensor) for tensor in tensors.values()} == {self.batch_size}
        return {"logits": tensors["input_ids"] * 2.0, "score": tensors["valid_length"] * 2.0}


@given(st.integers(1, 20), st.integers(1, 8))
def test_a_compiled_batch_size_takes_any_number_of_rows(rows: int, batch_size: int) -> None:
    given_tensors = {"input_ids": np.arange(rows * 3).reshape(rows, 3), "valid_length": np.arange(rows)}
    outputs = FixedBatch(Doubling(batch_size), batch_size).run(given_tensors)
    assert outputs["logits"].tolist() == (given_tensors["input_ids"] * 2.0).tolist()
    assert outputs["score"].tolist() == (given_tensors["valid_length"] * 2.0).tolist()
