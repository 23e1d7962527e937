"""Chooses the model's lengths from the token counts of the examples."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from model_build.checkpoint import loading
from model_build.checkpoint.tokenizer import check_time

STEPS = (16, 32, 64, 96, 128, 192, 256, 384, 512)
"""Lengths in tokens to which a limit is rounded up; longer ones are multiples of the last."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Lengths:
    """Token counts of examples, special tokens included, in ascending order."""

    counts: tuple[int, ...]

    def percentile(self, share: float) -> int:
        """Returns the nearest-rank percentile of the counts."""
        return self.counts[max(0, math.ceil(share * len(self.counts)) - 1)]

    @property
    def longest(self) -> int:
        return self.counts[-1]

    @property
    def summary(self) -> str:
        """Returns `half have at most 12, 95 % at most 31, the longest 40`."""
        half, most = self.percentile(0.5), self.percentile(0.95)
        return f"half have at most {half}, 95 % at most {most}, the longest {self.longest}"


def count(tokenizer_file: Path, texts: Sequence[tuple[str, ...]]) -> list[int]:
    """Returns the tokens of each row of one or two texts, special ones included."""
    from tokenizers import Tokenizer

    check_time(tokenizer_file)
    with loading(tokenizer_file):
        tokenizer = Tokenizer.from_file(str(tokenizer_file))
        tokenizer.no_truncation()
        tokenizer.no_padding()
        encoded = tokenizer.encode_batch([each if len(each) > 1 else each[0] for each in texts])
    return [len(each) for each in encoded]


def rounded(tokens: int, most: int | None) -> int:
    """Returns the next of `STEPS` at or over `tokens`, at most `most`."""
    step = next((step for step in STEPS if step >= tokens), math.ceil(tokens / STEPS[-1]) * STEPS[-1])
    return step if most is None else min(step, most)


def sequence_lengths(lengths: Lengths, limit: int) -> tuple[int, ...]:
    """Returns the lengths to compile a graph for, ascending: for half of the examples, for most and for all."""
    chosen = {rounded(lengths.percentile(share), limit) for share in (0.5, 0.95)}
    return (*sorted(length for length in chosen if length < limit), limit)


def longest(tokenizer_file: Path, texts: Sequence[str]) -> int:
    """Returns the tokens of the longest text; 0 of none."""
    return max(count(tokenizer_file, [(text,) for text in texts]), default=0)
