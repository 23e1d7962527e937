"""Groups rows of mixed lengths, so that little is computed for padding. Pure."""

from collections import Counter
from collections.abc import Sequence
from itertools import accumulate

MOST_TOKENS = 2048
"""Padded tokens of a launch. They bound its memory."""


def group_by_length(
    lengths: Sequence[int], launch_tokens: float, *, most_rows: "int | None" = None, most_tokens: int = MOST_TOKENS
) -> list[list[int]]:
    """Returns the numbers of the rows in groups of the lowest total cost, from the shortest rows to the longest.

    A group is one launch, which costs `launch_tokens` and the tokens of its rows, padded to the longest of them. It has
    at most `most_rows` rows and `most_tokens` padded tokens. A row that is longer is a group of its own.
    """
    if len(lengths) == 1:
        return [[0]]
    order = sorted(range(len(lengths)), key=lengths.__getitem__)
    counts = Counter(lengths)
    known = sorted(counts)
    ends = [0, *accumulate(counts[length] for length in known)]
    launches = [min(most_rows or len(lengths), max(1, most_tokens // length)) for length in known]
    costs, starts = [0.0], [0]
    for end, (length, rows) in enumerate(zip(known, launches, strict=True), 1):
        own = [ends[end] - ends[start] for start in range(end)]
        tried = [costs[start] + -(-count // rows) * launch_tokens + count * length for start, count in enumerate(own)]
        costs.append(min(tried))
        starts.append(tried.index(costs[-1]))
    groups: list[list[int]] = []
    end = len(known)
    while end:
        rows, start = launches[end - 1], starts[end]
        cuts = range(ends[end], ends[start], -rows)  # the longest rows fill their launches
        groups += [order[max(cut - rows, ends[start]) : cut] for cut in cuts]
        end = start
    return groups[::-1]
