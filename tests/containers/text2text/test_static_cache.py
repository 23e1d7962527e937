"""The sizes of batches, and what a program of a larger size is given for a smaller batch."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from containers.text2text.decoding import Tokens
from containers.text2text.static_cache import TOKENS_PER_LAUNCH, StaticEngine, batch_sizes, cache_places, doubled


@dataclass
class Recorder:
    """A `Program` that says what it was given."""

    rows: int
    source: int
    given: list[Any] = field(default_factory=list)

    def encode(self, token_ids: Tokens, mask: Tokens, start: int) -> None:
        self.given.append((token_ids.tolist(), mask.tolist(), start))

    def decode(self) -> Tokens:
        self.given.append("decode")
        return np.arange(self.rows * TOKENS_PER_LAUNCH).reshape(self.rows, TOKENS_PER_LAUNCH)

    def logits(self, step: int, tokens: Tokens) -> NDArray[Any]:
        self.given.append((step, tokens.tolist()))
        return np.arange(self.rows)[:, None]


@pytest.mark.parametrize(
    ("least", "most", "expected"), [(16, 64, (16, 32, 64)), (16, 24, (16, 24)), (16, 9, (9,)), (1, 6, (1, 2, 4, 6))]
)
def test_sizes_double_up_to_the_largest(least: int, most: int, expected: tuple[int, ...]) -> None:
    assert doubled(least, most) == expected


def test_there_is_a_size_for_every_batch_and_the_smallest_comes_first() -> None:
    assert batch_sizes(3, 20) == ((1, 16), (1, 20), (2, 16), (2, 20), (3, 16), (3, 20))


@pytest.mark.parametrize(("tokens", "places"), [(1, 4), (4, 4), (11, 12), (32, 32)])
def test_a_cache_has_places_for_whole_launches(tokens: int, places: int) -> None:
    assert cache_places(tokens) == places


def test_a_batch_is_padded_to_the_smallest_program_that_fits() -> None:
    programs = [Recorder(*size) for size in ((1, 2), (1, 4), (3, 2), (3, 4))]
    engine = StaticEngine(programs)
    state = engine.encode(np.array([[5, 6, 7], [8, 0, 0]]), np.array([[1, 1, 1], [1, 0, 0]]), 9)
    assert engine.step(state, np.ones(2, np.bool_)).tolist() == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert engine.logits(state, np.array([[3], [4]])).tolist() == [[0], [1]]
    assert engine.logits(state, np.array([[1], [2]])).tolist() == [[0], [1]]
    padding = ([0, 0, 0, 0], [1, 0, 0, 0])
    assert programs[3].given == [
        ([[5, 6, 7, 0], [8, 0, 0, 0], padding[0]], [[1, 1, 1, 0], [1, 0, 0, 0], padding[1]], 9),
        "decode",
        (4, [[3], [4], [0]]),
        (5, [[1], [2], [0]]),
    ]
    assert not any(program.given for program in programs[:3])


def test_more_than_the_largest_program_takes_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^a batch of 3 × 1 tokens, where 2 × 4 are the most$"):
        StaticEngine([Recorder(2, 4)]).encode(np.ones((3, 1), np.int64), np.ones((3, 1), np.int64), 0)
