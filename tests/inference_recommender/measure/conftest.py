"""The folder and the workload of a load test of seconds."""

from pathlib import Path

import pytest

from inference_recommender.run_folder import RunFolder
from tests.conftest import EditToml
from workloads import WorkloadFolder, load_workload


@pytest.fixture
def run_folder(tmp_path: Path) -> RunFolder:
    return RunFolder(tmp_path / "runs" / "spellcheck-quick-1")


@pytest.fixture
def source(edit_toml: EditToml) -> WorkloadFolder:
    """An objective for which a run of seconds has enough samples."""
    return load_workload("spellcheck", edit_toml('percentile = "P99"', 'percentile = "P50"'))
