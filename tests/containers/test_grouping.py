"""Rows of mixed lengths in groups: every row once, the lowest cost, and launches within their limits."""

from itertools import combinations, pairwise
from math import inf

from hypothesis import given
from hypothesis import strategies as st

from containers.grouping import group_by_length

LENGTHS = st.lists(st.integers(1, 40), max_size=8)
LAUNCHES = st.sampled_from([0, 1, 5, 30, 500])


def cost(groups: list[list[int]], lengths: list[int], launch_tokens: float) -> float:
    return sum(launch_tokens + len(group) * max(lengths[row] for row in group) for group in groups)


def every_grouping(lengths: list[int]) -> list[list[list[int]]]:
    """Returns every way to cut the rows in the order of their lengths."""
    order = sorted(range(len(lengths)), key=lengths.__getitem__)
    places = range(1, len(order))
    cuts = [(0, *chosen, len(order)) for size in range(len(order)) for chosen in combinations(places, size)]
    return [[order[start:end] for start, end in pairwise(each)] for each in cuts]


@given(LENGTHS, LAUNCHES)
def test_the_groups_have_the_lowest_cost(lengths: list[int], launch_tokens: int) -> None:
    groups = group_by_length(lengths, launch_tokens)
    assert sorted(row for group in groups for row in group) == list(range(len(lengths)))
    lowest = min((cost(each, lengths, launch_tokens) for each in every_grouping(lengths)), default=0)
    assert cost(groups, lengths, launch_tokens) == lowest


@given(LENGTHS, LAUNCHES, st.integers(1, 5), st.integers(1, 100))
def test_a_launch_stays_within_its_rows_and_tokens(
    lengths: list[int], launch_tokens: int, most_rows: int, most_tokens: int
) -> None:
    groups = group_by_length(lengths, launch_tokens, most_rows=most_rows, most_tokens=most_tokens)
    assert sorted(row for group in groups for row in group) == list(range(len(lengths)))
    for group in groups:
        assert len(group) <= most_rows
        assert len(group) == 1 or len(group) * max(lengths[row] for row in group) <= most_tokens


def test_rows_of_one_length_keep_their_order_and_the_shortest_come_first() -> None:
    assert group_by_length([9, 2, 100, 2, 9], 5) == [[1, 3], [0, 4], [2]]
    assert group_by_length([9, 2, 100, 2, 9], 50) == [[1, 3, 0, 4], [2]]
    assert group_by_length([9, 2, 100, 2, 9], inf, most_rows=2) == [[1], [3, 0], [4, 2]]
    assert group_by_length([], 5) == []
