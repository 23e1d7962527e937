"""Findings as text for people. Pure."""

from collections.abc import Sequence
from textwrap import indent

from model_build.lint.finding import Finding
from model_build.lint.situation import UnmadeCheck


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
