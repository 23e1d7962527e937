"""Parses the values of options that several commands have; argparse prints the error with the option."""

import argparse
import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import tomllib

from workloads import ModelArtifact, UsageError
from workloads.document import Document
from workloads.files import from_here

Settings = TypeVar("Settings", bound=Document)


def add_settings(parser: argparse.ArgumentParser, key: str = "KEY", example: str = "recommender.role_arn") -> None:
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        dest="settings",
        metavar=f"{key}=VALUE",
        help=f"override a key of workload.toml, such as {example}; may be repeated",
    )


def with_settings(settings: Sequence[str], table: str, document: Settings) -> Settings:
    """Returns a table of workload.toml with the keys that `--set TABLE.KEY=VALUE` replaces. Raises `UsageError`."""
    if not settings:
        return document
    tables = {table: document.model_dump(mode="json")}
    set_keys(tables, settings, f"{table}.KEY=VALUE")
    return type(document).from_table(Path(f"--set {table}"), tables[table])


def set_keys(tables: dict[str, Any], settings: Sequence[str], allowed: str) -> None:
    """Replaces the keys of `tables` that the arguments of --set name. Raises `UsageError`."""
    for setting in settings:
        key, equals, text = setting.partition("=")
        *path, name = key.strip().split(".")
        parent: Any = tables
        for part in path:
            parent = parent.get(part) if isinstance(parent, dict) else None
        if not equals or not path or not isinstance(parent, dict):
            raise UsageError(f"--set: got '{setting}'. Allowed: {allowed}.")
        parent[name] = _value(text, is_list=isinstance(parent.get(name), list))


def _value(text: str, *, is_list: bool) -> Any:
    """Parses a TOML value, or a list without its brackets. Other text is a string, or strings separated by commas."""
    for toml in (text, f"[{text}]") if is_list else (text,):
        with contextlib.suppress(tomllib.TOMLDecodeError):
            value = tomllib.loads(f"value = {toml}")["value"]
            return [value] if is_list and not isinstance(value, list) else value
    return text.split(",") if is_list else text.strip()


def check_archives(run: Path, recorded: Mapping[str, str], artifacts: Mapping[str, ModelArtifact]) -> None:
    """Raises `UsageError` if a build is another than the one that a resumed run has measured."""
    for name, then in recorded.items():
        if (now := artifacts[name].archive_sha256) != then:
            raise UsageError(
                f"--resume: {from_here(run)} measured an archive of '{name}' with sha256 {then}, but build/ has {now}. "
                "Start a new one: measurements of different archives cannot be compared."
            )


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
