"""The configuration that was measured, as a diff: the deployed one from the schema's defaults, and each other variant
or target from the deployed one. Pure.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic_core import to_jsonable_python

from inference_recommender.report.document import Table, table
from workloads import Candidate, Serving, Workload

DEFAULTS = "the defaults"
NOT_SERVED = frozenset({"instance_types", "parity"})
"""Keys of a target that do not change how it serves."""
COLUMNS = (
    ("configuration", "configuration", ""),
    ("base", "differs from", ""),
    ("key", "key", ""),
    ("base_value", "there", ""),
    ("value", "here", ""),
)


def configuration_table(workload: Workload, candidates: Sequence[Candidate], base: str | None = None) -> Table:
    """Returns a row for each key that differs from its base: the defaults for the hosted deployable, and `base` or the
    hosted one for the others.
    """
    hosted = base or workload.hosting.target
    rows = list(_rows(hosted, DEFAULTS, _defaults(workload, hosted), _settings(workload, hosted)))
    names = dict.fromkeys(candidate.variant for candidate in candidates if candidate.variant not in (None, hosted))
    for name in names:
        if name in workload.deployables:
            rows += _rows(str(name), hosted, _settings(workload, hosted), _settings(workload, str(name)))
    for candidate in candidates:
        if candidate.environment:
            rows += _rows(f"{candidate.instance_type}, by the job", hosted, {}, candidate.environment)
    note = "" if rows else "All settings are the defaults."
    return table("configuration", "Configuration, as a diff", COLUMNS, rows, note, detail=True)


def _defaults(workload: Workload, name: str) -> dict[str, Any]:
    """Returns the default values of a target's keys; required keys have none."""
    fields = type(workload.targets[workload.variant(name).target]).model_fields
    own = {name: info.get_default(call_default_factory=True) for name, info in fields.items() if not info.is_required()}
    return dict(to_jsonable_python({**own, **Serving().model_dump()}))


def _settings(workload: Workload, name: str) -> dict[str, Any]:
    variant = workload.variant(name)
    target = workload.targets[variant.target]
    return {**target.model_dump(mode="json"), **variant.serving.model_dump(mode="json")}


def _rows(name: str, base: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[tuple[str | None, ...]]:
    for key in dict.fromkeys([*old, *new]):
        if key not in NOT_SERVED and old.get(key) != new.get(key):
            yield name, base, key, text_of(old.get(key)), text_of(new.get(key))


def text_of(value: Any) -> str | None:
    """Returns a setting as a table shows it."""
    return value if value is None or isinstance(value, str) else json.dumps(value, ensure_ascii=False)
