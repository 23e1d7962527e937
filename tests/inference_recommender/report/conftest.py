"""Folders of runs, simulations and searches that are made once; tests change copies of them."""

import shutil
from pathlib import Path

import pytest

from inference_recommender.run_folder import RunFolder
from tests.conftest import copy_of_workloads
from tests.inference_recommender.measure.completed import completed_run
from tests.inference_recommender.report.builders import a_simulation, a_tune_search
from workloads import load_workload


@pytest.fixture(scope="session")
def run_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run whose job the fake service answered."""
    folder = load_workload("spellcheck", copy_of_workloads(tmp_path_factory.mktemp("report") / "workloads"))
    return completed_run(folder, tmp_path_factory.mktemp("runs") / "job-1").path


@pytest.fixture
def run_copy(run_once: Path, tmp_path: Path) -> RunFolder:
    return RunFolder(Path(shutil.copytree(run_once, tmp_path / "runs" / "job-1")))


@pytest.fixture(scope="session")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return a_simulation(tmp_path_factory.mktemp("simulation"))


@pytest.fixture(scope="session")
def searched(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return a_tune_search(tmp_path_factory.mktemp("runs") / "spellcheck-tune")
