"""Each package stays within its budget of lines; scripts/figures.py has the budgets.

Issue 29 raised production and tests by 2,000 lines each: GPU images by tag, TensorRT INT8, more published rows. Issue
30 raised production by 2,500 and tests by 3,000: a pipeline for each workload, stages in other accounts, a way into the
ECS service's VPC, `explain`, and a local account with AWS's states. Issue 31 raised production by 800, model_build by
420 and containers by 440: the runtime OpenVINO, guided decoding and batches by tokens. Issue 32 raised production by
870, inference_recommender by 540 and benchmarks by 290: requests while a fleet changes, and arrival processes. Issue 33
raised production and model_build by 180 for the settings that Triton validates, and tests by its conformance cases.
Above the design are stacks, containers (the router of models), local_aws, aws_api (`explain`) and scripts (steps of a
release, and the rehearsal of its limits).
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
