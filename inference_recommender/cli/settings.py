"""The workload that a command measures: as deployed or on --target, with the settings of --set."""

import argparse
import sys
from collections.abc import Sequence
from copy import copy
from pathlib import Path
from typing import Any

from aws_api.sagemaker import SageMakerAccount
from workloads import UsageError, WorkloadFolder, load_workload
from workloads.workload import Workload

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

RECOMMENDER = "recommender."


def add_settings(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        dest="settings",
        metavar="KEY=VALUE",
        help="override a key of workload.toml, such as recommender.role_arn; may be repeated",
    )


def deployed_workload(
    name: str, target: str | None, account: SageMakerAccount | None, endpoint: str | None = None
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


def with_settings(folder: WorkloadFolder, settings: Sequence[str]) -> WorkloadFolder:
    """Returns the workload with the arguments of --set. Raises `UsageError` or `InvalidDocument`."""
    if not settings:
        return folder
    table = folder.workload.model_dump(mode="json")
    for setting in settings:
        key, equals, text = setting.partition("=")
        *path, name = key.split(".")
        parent: Any = table
        for part in path:
            parent = parent.get(part) if isinstance(parent, dict) else None
        if not equals or not path or not isinstance(parent, dict):
            raise UsageError(f"--set: got '{setting}'. Allowed: TABLE.KEY=VALUE, such as recommender.bucket=NAME.")
        parent[name] = _value(text, is_list=isinstance(parent.get(name), list))
    changed = copy(folder)
    changed.workload = Workload.from_table(Path("--set"), table)
    return changed


def changes_the_measurement(settings: Sequence[str]) -> bool:
    """Returns whether a setting changes what is measured, rather than how the account is used."""
    return not all(setting.startswith(RECOMMENDER) for setting in settings)


def _value(text: str, *, is_list: bool) -> Any:
    """Parses a TOML value. Other text is a string, or a list of them separated by commas."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text.split(",") if is_list else text
