"""The decoding loop with an engine that plays a script: every row ends where its own script says."""

from dataclasses import dataclass, field

import numpy as np
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
    """An `Engine` whose rows say what their script says next, `stride` tokens at a time, and which checks the loop.

    Rows that have ended say something that looks like an end, or nothing more than a token.
    """

    lines: list[list[int]]
    stride: int = 1
    position: int = 0
    live: list[list[bool]] = field(default_factory=list)

    def encode(self, token_ids: Tokens, mask: Tokens, start: int) -> list[int]:
        """The state: which line each row says. The source of row r is the token r."""
        assert start == START
        return [int(source) for source in token_ids[:, 0]]

    def step(self, state: list[int], live: NDArray[np.bool_]) -> Tokens:
        first, self.position = self.position, self.position + self.stride
        self.live.append(live.tolist())
        for row, wanted in zip(state, live, strict=True):
            assert wanted == (first < len(self.lines[row])), "live are the rows that have not ended"
        return np.array([[self._said(row, place) for place in range(first, self.position)] for row in state])

    def _said(self, row: int, place: int) -> int:
        line = self.lines[row]
        return line[place] if place < len(line) else (END, 77)[place % 2]


def play(lines: list[list[int]], limit: int = 20, stride: int = 1) -> tuple[list[list[int]], Script]:
    script = Script(lines, stride)
    sources = np.arange(len(lines)).reshape(-1, 1)
    return [row.tolist() for row in greedy(script, sources, np.ones_like(sources), settings(limit))], script


words = st.lists(st.integers(3, 50), max_size=12)
ends = st.sampled_from([END, OTHER_END])
scripts = st.lists(st.builds(lambda said, end: [*said, end], words, ends), min_size=1, max_size=16)


@given(scripts, st.integers(1, 5))
def test_every_row_follows_its_script(lines: list[list[int]], stride: int) -> None:
    outputs, script = play(lines, stride=stride)
    assert outputs == lines
    assert len(script.live) == -(-max(map(len, lines)) // stride), "the loop ends with the last row"


@given(scripts, st.integers(1, 6), st.integers(1, 5))
def test_the_limit_cuts_every_row(lines: list[list[int]], limit: int, stride: int) -> None:
    outputs, script = play(lines, limit, stride)
    assert outputs == [line[:limit] for line in lines]
    assert len(script.live) <= -(-limit // stride)


def test_the_engine_knows_which_rows_have_ended() -> None:
    outputs, script = play([[END], [7, 7, OTHER_END], [END], [8, 8, END]])
    assert outputs == [[END], [7, 7, OTHER_END], [END], [8, 8, END]]
    assert script.live == [[True] * 4, [False, True, False, True], [False, True, False, True]]
