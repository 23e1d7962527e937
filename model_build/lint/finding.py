"""A finding: a problem, its place, its effect on SageMaker and the fix. The texts are in rules.toml."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple, cast

from workloads.document import parse_toml

Severity = Literal["error", "warning"]
"""An error keeps the endpoint from starting or from answering; a warning costs money, time or safety."""
RULES: Mapping[str, Mapping[str, str]] = parse_toml(Path(__file__).with_name("rules.toml").read_text("utf-8"))
"""Severity and texts of each rule. The part of a name after the slash is a case of the rule."""


class FindingPlace(NamedTuple):
    file: str
    """A path inside the archive, the archive itself, a payload file, or `environment`."""
    line: int | None = None
    key: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    code: str
    """Stable and short, for filters: `name-mismatch`."""
    severity: Severity
    what: str
    file: str
    line: int | None = None
    key: str | None = None
    why: str
    fix: str

    @property
    def where(self) -> str:
        """spellcheck/config.pbtxt:12: dynamic_batching."""
        place = self.file if self.line is None else f"{self.file}:{self.line}"
        return place if self.key is None else f"{place}: {self.key}"


def finding(rule: str, place: FindingPlace, **values: object) -> Finding:
    """Returns the finding of a rule; `values` fill the places in its texts."""
    texts = RULES[rule]
    return Finding(
        code=rule.partition("/")[0],
        severity=cast(Severity, texts["severity"]),
        what=texts["what"].format(**values),
        file=place.file,
        line=place.line,
        key=place.key,
        why=texts["why"].format(**values),
        fix=texts["fix"].format(**values),
    )


def listing(names: Sequence[str], shown: int = 3) -> str:
    """Returns the first names and the number of the others."""
    more = f" and {len(names) - shown} more" if len(names) > shown else ""
    return ", ".join(f"'{name}'" for name in names[:shown]) + more
