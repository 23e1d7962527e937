"""Parses the values of options that several commands have; argparse prints what is wrong with one, and its option."""

import argparse


def positive(text: str) -> float:
    """Parses a number above 0 that is not infinite."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"got '{text}', but it must be more than 0.")
    return value


def count(text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"got '{text}', but it must be a whole number above 0.")
    return int(text)


def percentile(text: str) -> str:
    """Parses P99, p99.9 or 99 as P99."""
    try:
        rank = float(text.removeprefix("P").removeprefix("p"))
    except ValueError:
        rank = 0.0
    if not 0 < rank < 100:
        raise argparse.ArgumentTypeError(f"got '{text}', but a percentile is P50, P99, P99.9 and the like.")
    return f"P{rank:.12g}"
