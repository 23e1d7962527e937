"""Folders of runs, simulations and searches that are made once; tests change copies of them."""

import shutil
from pathlib import Path

import pytest

from inference_recommender.measure.job import Prepared, run
from inference_recommender.measure.job_requests import plan_job
from inference_recommender.measure.tested_model import TestedModel
from inference_recommender.progress import Silent
from inference_recommender.run_folder import RunFolder
from tests.artifacts import an_artifact
from tests.conftest import copy_of_workloads
from tests.inference_recommender.api import FakeService, description
from tests.inference_recommender.report.builders import a_simulation, a_tune_search
from workloads import load_workload


@pytest.fixture(scope="session")
def run_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run whose job the fake service answered."""
    folder = load_workload("spellcheck", copy_of_workloads(tmp_path_factory.mktemp("report") / "workloads"))
    subject = TestedModel(model_name="m", role_arn="arn:aws:iam::123456789012:role/r", payload_url="s3://b/k")
    plan = plan_job(folder.workload, "quick", folder.traffic("quick"), subject, "job-1")
    prepared = Prepared(folder=folder, artifact=an_artifact(), plan=plan, traffic_name="quick")
    run_folder = RunFolder(tmp_path_factory.mktemp("runs") / "job-1")
    run(prepared, FakeService([description()]), run_folder, Silent(), lambda seconds: None)
    return run_folder.path


@pytest.fixture
def run_copy(run_once: Path, tmp_path: Path) -> RunFolder:
    return RunFolder(Path(shutil.copytree(run_once, tmp_path / "runs" / "job-1")))


@pytest.fixture(scope="session")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return a_simulation(tmp_path_factory.mktemp("simulation"))


@pytest.fixture(scope="session")
def searched(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return a_tune_search(tmp_path_factory.mktemp("runs") / "spellcheck-tune")
