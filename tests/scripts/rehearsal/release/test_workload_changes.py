"""The workloads load after a rehearsal's changes."""

import shutil
from pathlib import Path

import pytest

from scripts.rehearsal.release.sources import Repository
from scripts.rehearsal.release.workload_changes import ENDPOINTS, ON_CPU, PHASES_S, as_rehearsed
from workloads import ROOT, load_workload, workload_names
from workloads.traffic import PhasedTraffic


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    for folder in (ROOT / "workloads").iterdir():
        if (folder / "workload.toml").exists():
            kept = shutil.ignore_patterns("*.py", "__pycache__", "recommendation.json")
            shutil.copytree(folder, tmp_path / "workloads" / folder.name, ignore=kept)
    shutil.copyfile(ROOT / "cdk.json", tmp_path / "cdk.json")
    (tmp_path / "containers").mkdir()
    return tmp_path


def test_the_changes_make_a_release_that_this_machine_can_measure(clone: Path) -> None:
    changes = list(as_rehearsed(Repository(clone / "remote.git", clone)))
    assert len(changes) == 4
    loaded = {name: load_workload(name, clone / "workloads").workload for name in workload_names(clone / "workloads")}
    assert {loaded[name].hosting.target for name in ON_CPU} == {"cpu"}
    for name in ENDPOINTS:
        traffic = loaded[name].traffic["production"]
        assert isinstance(traffic, PhasedTraffic)
        assert sum(phase.duration_s for phase in traffic.phases) == sum(PHASES_S)
        assert loaded[name].latency_objective.model_latency_ms == 5000
    assert '"release-repository": "team/transformers-in-production"' in (clone / "cdk.json").read_text("utf-8")
