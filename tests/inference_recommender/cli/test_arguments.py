"""Reading the values of options, and the messages for wrong ones."""

import argparse
from collections.abc import Callable
from typing import Any

import pytest

from inference_recommender.cli.arguments import count, percentile, positive


@pytest.mark.parametrize(
    ("parse", "text", "value"),
    [(positive, "0.5", 0.5), (count, "3", 3), (percentile, "99", "P99"), (percentile, "p99.9", "P99.9")],
)
def test_a_value_is_read(parse: Callable[[str], Any], text: str, value: Any) -> None:
    assert parse(text) == value


@pytest.mark.parametrize("text", ["0", "-1", "inf", "nan", "many"])
def test_what_is_no_number_above_0_is_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError) as refused:
        positive(text)
    assert str(refused.value) == f"got '{text}', but it must be more than 0."


@pytest.mark.parametrize("text", ["0", "-1", "1.5", "many"])
def test_what_is_no_whole_number_above_0_is_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError) as refused:
        count(text)
    assert str(refused.value) == f"got '{text}', but it must be a whole number above 0."


@pytest.mark.parametrize("text", ["0", "P100", "many"])
def test_what_is_no_percentile_is_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError) as refused:
        percentile(text)
    assert str(refused.value) == f"got '{text}', but a percentile is P50, P99, P99.9 and the like."
