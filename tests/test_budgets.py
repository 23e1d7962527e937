"""Each package stays within its budget of lines; scripts/figures.py has the budgets.

Issue 29 raised production and tests by 2,000 lines each: GPU images by tag, TensorRT INT8, more published rows. Above
the design are stacks (the driver probe), containers (the router of models), local_aws (the use and the drivers of
GPUs) and scripts (three locks).
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
