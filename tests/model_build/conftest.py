"""A tiny workload, built once for all tests that only look at the result."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from model_build.execute import build
from model_build.plan import BuildPlan, plan
from tests.model_build.miniatures.tiny_t5 import make_workload
from tests.model_build.shared_exports import SharedExports, sharing
from workloads import WorkloadFolder, load_workload


@pytest.fixture(scope="session", autouse=True)
def shared_exports(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedExports]:
    with sharing(tmp_path_factory.getbasetemp()) as shared:
        yield shared


@pytest.fixture(scope="session")
def tiny_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository in miniature: workloads/tiny and its build for cpu. Not to be changed."""
    root = tmp_path_factory.mktemp("tiny")
    build(plan(make_workload(root / "workloads"), "cpu", root))
    return root


@pytest.fixture(scope="session")
def tiny_plan(tiny_root: Path) -> BuildPlan:
    return plan(load_workload("tiny", tiny_root / "workloads"), "cpu", tiny_root)


@pytest.fixture
def tiny_copy(tiny_root: Path, tmp_path: Path) -> Path:
    """A copy of the built miniature, to damage."""
    return shutil.copytree(tiny_root, tmp_path / "copy")


@pytest.fixture
def tiny_workload(tiny_copy: Path) -> WorkloadFolder:
    return load_workload("tiny", tiny_copy / "workloads")
