"""Options that several commands have: --set, the workload that is measured, and values that argparse checks."""

import argparse
from collections.abc import Sequence
from copy import copy
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import tomllib

from workloads import UsageError, WorkloadFolder, load_workload
from workloads.document import Document
from workloads.workload import Workload

if TYPE_CHECKING:
    from aws_api.sagemaker import SageMakerAccount

Settings = TypeVar("Settings", bound=Document)
DEFAULT_TRAFFIC = "production"


def add_settings(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        dest="settings",
        metavar="KEY=VALUE",
        help="override a key of workload.toml, such as recommender.role_arn; may be repeated",
    )


def with_settings(settings: Sequence[str], table: str, document: Settings) -> Settings:
    """Returns the table of workload.toml with the keys that `--set TABLE.KEY=VALUE` replaces. Raises `UsageError`."""
    if not settings:
        return document
    tables = {table: document.model_dump(mode="json")}
    for setting in settings:
        _replace(tables, setting, f"{table}.KEY=VALUE")
    return type(document).from_table(Path(f"--set {table}"), tables[table])


def workload_with_settings(folder: WorkloadFolder, settings: Sequence[str]) -> WorkloadFolder:
    """Returns the workload with the keys of any table that --set replaces. Raises `UsageError` or `InvalidDocument`."""
    if not settings:
        return folder
    tables = folder.workload.model_dump(mode="json")
    for setting in settings:
        _replace(tables, setting, "TABLE.KEY=VALUE, such as recommender.bucket=NAME")
    changed = copy(folder)
    changed.workload = Workload.from_table(Path("--set"), tables)
    return changed


def _replace(tables: dict[str, Any], setting: str, allowed: str) -> None:
    """Parses the value as TOML. Other text is a string, or a list of strings separated by commas."""
    key, equals, text = setting.partition("=")
    first, *path = key.strip().split(".")
    if not equals or not path or not isinstance(tables.get(first), dict):
        raise UsageError(f"--set: got '{setting}'. Allowed: {allowed}.")
    parent, name = tables[first], path.pop()
    for each in path:
        parent = parent.setdefault(each, {})
    try:
        parent[name] = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        parent[name] = text.split(",") if isinstance(parent.get(name), list) else text.strip()


def deployed_workload(
    name: str, target: str | None, account: "SageMakerAccount | None", endpoint: str | None = None
) -> WorkloadFolder:
    """Returns a workload on `target`, or on what its stack has deployed if `account` knows, or on hosting.target.

    Raises `UsageError` for an unknown target.
    """
    folder = load_workload(name)
    if target is None and account is not None:
        target = account.hosted_target(folder.workload.stack_name, endpoint)
    if target is None or target == folder.workload.hosting.target:
        return folder
    folder.variant(target)
    return folder.hosted_on(target)


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
