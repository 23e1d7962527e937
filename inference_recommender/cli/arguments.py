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


def whole(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"got {text}. Allowed: a whole number.")
    return int(text)


def number(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise argparse.ArgumentTypeError(f"got {text}. Allowed: a number from 0 on.")
    return value


def share(text: str) -> float:
    value = number(text)
    if not 0 < value < 1:
        raise argparse.ArgumentTypeError(f"got {text}. Allowed: between 0 and 1.")
    return value
