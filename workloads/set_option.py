"""Settings of the command line, `--set TABLE.KEY=VALUE`, over the keys of workload.toml.

An empty value restores the default.
"""

import contextlib
from collections.abc import Sequence
from copy import copy
from pathlib import Path
from typing import Any

from workloads.document import parse_toml
from workloads.errors import UsageError
from workloads.folder import WorkloadFolder
from workloads.workload import Workload


def with_settings(folder: WorkloadFolder, settings: Sequence[str]) -> WorkloadFolder:
    """Returns the workload with the arguments of --set. Raises `UsageError` or `InvalidDocument`."""
    if not settings:
        return folder
    table = folder.workload.model_dump(mode="json")
    set_keys(table, settings, "TABLE.KEY=VALUE, such as recommender.bucket=NAME")
    changed = copy(folder)
    changed.workload = Workload.from_table(Path("--set"), table)
    return changed


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
        if text:
            parent[name] = _value(text, is_list=isinstance(parent.get(name), list))
        else:
            parent.pop(name, None)


def _value(text: str, *, is_list: bool) -> Any:
    """Parses a TOML value, or a list without its brackets. Other text is a string, or strings separated by commas."""
    for toml in (text, f"[{text}]") if is_list else (text,):
        with contextlib.suppress(ValueError):
            value = parse_toml(f"value = {toml}")["value"]
            return [value] if is_list and not isinstance(value, list) else value
    return text.split(",") if is_list else text.strip()
