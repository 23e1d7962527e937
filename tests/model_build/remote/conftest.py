"""A miniature repository, whose code travels in a build's source, and its workload."""

from pathlib import Path

import pytest

from model_build.remote import remote_build
from tests.model_build.remote.remote_account import miniature
from workloads import WorkloadFolder, load_workload


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(remote_build, "CODE", tmp_path / "root")
    return miniature(tmp_path / "root")


@pytest.fixture
def folder(root: Path) -> WorkloadFolder:
    return load_workload("spellcheck", root / "workloads")
