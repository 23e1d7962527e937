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


@pytest.mark.parametrize(
    ("parse", "texts", "rule"),
    [
        (positive, ["0", "-1", "inf", "nan", "many"], "it must be more than 0."),
        (count, ["0", "-1", "1.5", "many"], "it must be a whole number above 0."),
        (percentile, ["0", "P100", "many"], "a percentile is P50, P99, P99.9 and the like."),
    ],
)
def test_a_wrong_value_is_refused(parse: Callable[[str], Any], texts: list[str], rule: str) -> None:
    for text in texts:
        with pytest.raises(argparse.ArgumentTypeError) as refused:
            parse(text)
        assert str(refused.value) == f"got '{text}', but {rule}"
