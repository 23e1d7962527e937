"""Each package stays within its budget of lines; scripts/figures.py has the budgets.

Issue 29 raised production by 2,000 lines and tests by 2,200: GPU images by tag, TensorRT INT8, more published rows.
"""

import pytest

from scripts.figures import BUDGETS, PRODUCTION_LINES, lines_by_package, tracked


@pytest.mark.parametrize("package", BUDGETS)
def test_a_package_stays_within_its_budget(package: str) -> None:
    lines = lines_by_package(tracked("*.py"))[package]
    limit = BUDGETS[package]
    assert lines <= limit, f"{package} has {lines:,} lines of at most {limit:,}. Remove some before you add more."


def test_production_stays_within_its_budget() -> None:
    counts = lines_by_package(tracked("*.py"))
    assert sum(counts.values()) - counts["tests"] <= PRODUCTION_LINES
