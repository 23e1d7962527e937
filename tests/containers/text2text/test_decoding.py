"""The decoding loop with an engine that plays a script: every row ends where its own script says."""

from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from containers.text2text.decoding import Tokens, greedy
from containers.text2text.settings import Settings

START, END, OTHER_END = 90, 1, 2


def settings(max_output_tokens: int) -> Settings:
    return Settings(
        max_input_tokens=8,
        max_output_tokens=max_output_tokens,
        decoder_start_token_id=START,
        eos_token_ids=(END, OTHER_END),
        pad_token_id=0,
        threads=1,
    )


@dataclass
class Script:
    """An `Engine` whose rows say what their script says next, and which checks what it is fed."""

    lines: list[list[int]]
    steps: int = 0
    batch_sizes: list[int] = field(default_factory=list)

    def encode(self, token_ids: Tokens, mask: Tokens) -> list[int]:
        """The state: which row of the batch stands where. The source of row r is the token r."""
        return [int(source) for source in token_ids[:, 0]]

    def step(self, state: list[int], tokens: Tokens) -> Tokens:
        expected = [self._said(row, self.steps - 1) for row in state]
        assert tokens[:, 0].tolist() == expected, "a row was fed what another row had said"
        self.batch_sizes.append(len(state))
        self.steps += 1
        return np.array([[self._said(row, self.steps - 1)] for row in state])

    def keep(self, state: list[int], rows: NDArray[np.intp]) -> None:
        state[:] = [state[row] for row in rows]

    def _said(self, row: int, step: int) -> int:
        assert step < len(self.lines[row]), "a row that had ended was asked again"
        return START if step < 0 else self.lines[row][step]


def play(lines: list[list[int]], limit: int = 20) -> tuple[list[list[int]], Script]:
    script = Script(lines)
    sources = np.arange(len(lines)).reshape(-1, 1)
    return [row.tolist() for row in greedy(script, sources, np.ones_like(sources), settings(limit))], script


words = st.lists(st.integers(3, 50), max_size=12)
ends = st.sampled_from([END, OTHER_END])
scripts = st.lists(st.builds(lambda said, end: [*said, end], words, ends), min_size=1, max_size=16)


@given(scripts)
def test_every_row_says_its_own_script_whatever_its_neighbours_do(lines: list[list[int]]) -> None:
    outputs, script = play(lines)
    assert outputs == lines
    assert script.steps == max(map(len, lines)), "the loop ends with the last row"


@given(scripts, st.integers(1, 6))
def test_the_limit_cuts_every_row(lines: list[list[int]], limit: int) -> None:
    outputs, script = play(lines, limit)
    assert outputs == [line[:limit] for line in lines]
    assert script.steps <= limit


@pytest.mark.parametrize("order", [(2, 4, 6, 8), (8, 6, 4, 2), (4, 8, 2, 6), (6, 2, 8, 4)])
def test_rows_leave_the_batch_as_they_end_in_any_order(order: tuple[int, ...]) -> None:
    lines = [[10 + row] * (length - 1) + [END] for row, length in enumerate(order)]
    outputs, script = play(lines)
    assert outputs == lines
    assert script.batch_sizes == [4, 4, 3, 3, 2, 2, 1, 1]


def test_rows_that_end_together_leave_together() -> None:
    outputs, script = play([[END], [7, 7, OTHER_END], [END], [8, 8, END]])
    assert outputs == [[END], [7, 7, OTHER_END], [END], [8, 8, END]]
    assert script.batch_sizes == [4, 2, 2]
