"""Parses the values of options that several commands have; argparse prints the error with the option."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

import tomllib

from workloads import UsageError
from workloads.document import Document

Settings = TypeVar("Settings", bound=Document)


def with_settings(settings: Sequence[str], table: str, document: Settings) -> Settings:
    """Returns the table of workload.toml with the keys that `--set TABLE.KEY=VALUE` replaces. Raises `UsageError`."""
    changed = document.model_dump(mode="json")
    for setting in settings:
        name, equals, text = setting.partition("=")
        prefix, *parents = name.strip().split(".")
        if not equals or prefix != table or not parents:
            raise UsageError(f"--set: got '{setting}'. Allowed: {table}.KEY=VALUE.")
        parent, key = changed, parents.pop()
        for each in parents:
            parent = parent.setdefault(each, {})
        try:
            parent[key] = tomllib.loads(f"value = {text}")["value"]
        except tomllib.TOMLDecodeError:
            parent[key] = text.strip()
    return type(document).from_table(Path(f"--set {table}"), changed) if settings else document


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
