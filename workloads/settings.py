"""Settings of the command line, `--set TABLE.KEY=VALUE`, over the keys of workload.toml."""

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


def _value(text: str, *, is_list: bool) -> Any:
    """Parses a TOML value. Other text is a string, or a list of them separated by commas."""
    try:
        return parse_toml(f"value = {text}")["value"]
    except ValueError:
        return text.split(",") if is_list else text
