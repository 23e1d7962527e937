"""Load tests by real generators against a real server. What they measure depends on the machine: `make test-all`.

A refused verdict is tried again, and then the test is skipped with the reason.
"""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from inference_recommender.measure.generator_fleet import FleetDrive, plan_fleet
from inference_recommender.measure.run import run
from inference_recommender.progress import Silent
from inference_recommender.run_folder import RunFolder
from tests.conftest import EditToml
from tests.inference_recommender.measure.generator_fleet_account import LoopbackFleet
from tests.inference_recommender.measure.test_generator_fleet import fleet
from tests.inference_recommender.measure.test_load_test import a_test, measured_by, subject
from tests.inference_recommender.server import Server, serving
from workloads import ROOT, Interrupted, NoVerdict, WorkloadFolder, load_workload

pytestmark = [pytest.mark.integration, pytest.mark.slow]

TRIES = 3


def measured_or_skipped(attempt: Callable[[Path, Server], None], tmp_path: Path) -> None:
    """Runs `attempt` in a folder and against a server of its own until it is not refused a verdict."""
    for number in range(TRIES):
        try:
            with serving(delay_s=0.02) as server:
                attempt(tmp_path / f"attempt-{number}", server)
            return
        except NoVerdict as refused:
            reason = refused
    pytest.skip(f"this machine is too busy to measure: {reason}")


@pytest.fixture
def source(edit_toml: EditToml) -> WorkloadFolder:
    """An objective that a run of seconds keeps on a machine at work, with enough samples for it."""
    edit_toml('percentile = "P99"', 'percentile = "P50"')
    return load_workload("spellcheck", edit_toml("model_latency_ms = 50.0", "model_latency_ms = 2000.0"))


def test_one_generator_counts_what_the_server_saw(source: WorkloadFolder, tmp_path: Path) -> None:
    def attempt(folder: Path, server: Server) -> None:
        run_folder = RunFolder(folder / "runs" / "spellcheck-quick-1")
        recommendation = run(a_test(server.url), run_folder, Silent(), subject=subject(source))
        (measured,) = run_folder.measurements()
        assert measured.series is not None
        assert sum(count or 0 for count in measured.series.invocations) == pytest.approx(len(server.seen), abs=2)
        assert measured.max_invocations_per_minute is not None
        assert measured.max_invocations_per_minute * 2 == pytest.approx(len(server.seen) * 15, rel=0.25)
        assert recommendation.recommended is not None

    measured_or_skipped(attempt, tmp_path)


def test_three_generators_meet_start_together_and_merge(source: WorkloadFolder, tmp_path: Path) -> None:
    """Three processes that meet over sockets, and each take a third of six users."""

    def attempt(folder: Path, server: Server) -> None:
        run_folder = RunFolder(folder / "runs" / "spellcheck-quick-1")
        account = LoopbackFleet(folder / "instances")
        job = plan_fleet("spellcheck", "spellcheck-quick-1", 4, **fleet())
        drive = FleetDrive(job, account, ROOT, Silent(), 0.1)
        measured = measured_by(a_test(server.url, drive, seconds=4, users=6), source, run_folder)
        files = sorted((run_folder.path / "load").glob("*/summary.json"))
        shares = [json.loads(file.read_text("utf-8")) for file in files]
        assert len(shares) == 3
        assert sum(share["invocations"] for share in shares) == pytest.approx(len(server.seen), abs=6)
        assert max(share["started_at"] for share in shares) - min(share["started_at"] for share in shares) < 1
        merged = json.loads((run_folder.path / "load" / "summary.json").read_text("utf-8"))
        rate = merged["invocations"] / merged["duration_s"] * 60
        assert measured.max_invocations_per_minute is not None
        assert measured.max_invocations_per_minute * 2 == pytest.approx(rate, rel=0.3)

    measured_or_skipped(attempt, tmp_path)


def test_ctrl_c_stops_processes_at_work_and_keeps_what_they_measured(source: WorkloadFolder, tmp_path: Path) -> None:
    with serving(delay_s=0.02) as server:
        run_folder = RunFolder(tmp_path / "runs" / "spellcheck-quick-1")
        account = LoopbackFleet(tmp_path / "instances")
        account.interrupt_when = lambda: len(server.seen) > 300
        job = plan_fleet("spellcheck", "spellcheck-quick-1", 120, **fleet(generators=2))
        drive = FleetDrive(job, account, ROOT, Silent(), 0.2)
        with pytest.raises(Interrupted):
            measured_by(a_test(server.url, drive, seconds=120), source, run_folder)
    (measured,) = run_folder.measurements()
    assert measured.series is not None
    assert sum(count or 0 for count in measured.series.invocations) > 50
