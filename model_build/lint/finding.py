"""A finding says what is wrong, where, why it fails on SageMaker and how to mend it; and findings as text. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from textwrap import indent
from typing import Literal

from model_build.lint.runtime_context import UnmadeCheck

Severity = Literal["error", "warning"]
"""An error keeps the endpoint from starting or from answering; a warning costs money, time or safety."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    code: str
    """Stable and short, for people who filter: `name-mismatch`."""
    severity: Severity
    what: str
    file: str
    """A path inside the archive, the archive itself, a payload file, or `environment`."""
    line: int | None = None
    key: str | None = None
    why: str
    fix: str

    @property
    def where(self) -> str:
        """spellcheck/config.pbtxt:12: dynamic_batching."""
        place = self.file if self.line is None else f"{self.file}:{self.line}"
        return place if self.key is None else f"{place}: {self.key}"


def listing(names: Sequence[str], shown: int = 3) -> str:
    """The first few names and how many there are besides."""
    more = f" and {len(names) - shown} more" if len(names) > shown else ""
    return ", ".join(f"'{name}'" for name in names[:shown]) + more


def render(findings: Sequence[Finding], unmade: Sequence[UnmadeCheck] = ()) -> str:
    """Errors first, then warnings, a line of totals, and the checks that could not be made."""
    ordered = sorted(findings, key=lambda finding: finding.severity != "error")
    blocks = [_block(finding) for finding in ordered]
    return "\n\n".join([*blocks, _totals(findings), *_unmade(unmade)])


def _block(finding: Finding) -> str:
    details = [f"where  {finding.where}", f"why    {finding.why}", f"fix    {finding.fix}"]
    return f"{finding.severity} {finding.code}: {finding.what}\n" + indent("\n".join(details), "  ")


def _totals(findings: Sequence[Finding]) -> str:
    errors = sum(finding.severity == "error" for finding in findings)
    return f"{_count(errors, 'error')}, {_count(len(findings) - errors, 'warning')}."


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _unmade(unmade: Sequence[UnmadeCheck]) -> list[str]:
    if not unmade:
        return []
    return ["\n".join(["Not checked:", *(f"  {check.check} (needs {check.needs})" for check in unmade)])]
