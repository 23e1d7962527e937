"""A load test by the generator: a job's traffic, conditions and result, here in virtual time."""

import stat
from dataclasses import replace
from pathlib import Path

import pytest

from inference_recommender.load_generator.process import Outcome
from inference_recommender.measure.load_test import Drive, LoadTest, LoadTestFailed, alone
from inference_recommender.measure.run import RunSubject, begin_and_measure, run
from inference_recommender.measurement import Measurement
from inference_recommender.progress import Progress, ProgressUpdate
from inference_recommender.run_folder import RunFolder
from inference_recommender.sizing.evidence import read_evidence
from tests.builders import Watched, a_system, an_artifact, known, message_of
from tests.inference_recommender.measure.virtual_load import SERVICE_S, virtual_drive
from tests.inference_recommender.server import serving
from tests.virtual_time import Network, answering
from workloads import Interrupted, NoVerdict, PhasedTraffic, ProjectError, WorkloadFolder, load_workload
from workloads.traffic import Phase, StoppingConditions

URL = "http://127.0.0.1:1"


def brief_traffic(seconds: int, users: int) -> PhasedTraffic:
    """Half of the users for a second, then all. A busy machine's slow start then ends with the first phase."""
    return PhasedTraffic(
        type="phases",
        phases=(Phase(initial_users=users // 2, duration_s=1), Phase(initial_users=users, duration_s=seconds - 1)),
        stop=StoppingConditions(flat_invocations="Continue"),
    )


def a_test(url: str = URL, drive: Drive = alone, *, seconds: int = 4, users: int = 2) -> LoadTest:
    system = a_system(
        name=url, url=f"{url}/infer", instance_type="c5.xlarge", instances=2, machine="Some CPU with 2 cores"
    )
    return LoadTest(system=system, traffic=brief_traffic(seconds, users), request_timeout_s=60.0, drive=drive)


def subject(source: WorkloadFolder) -> RunSubject:
    return RunSubject(workload=source.workload, payloads=source.payloads(), artifact=an_artifact(), traffic="quick")


def measured_by(
    test: LoadTest, source: WorkloadFolder, run_folder: RunFolder, progress: Progress | None = None
) -> Measurement:
    (measured,) = begin_and_measure(test, run_folder, progress or Progress(), subject(source))
    return measured


def test_a_run_against_a_url_is_a_run_like_any_other(source: WorkloadFolder, run_folder: RunFolder) -> None:
    network, watched = Network(answering(SERVICE_S)), Watched()
    recommendation = run(a_test(drive=virtual_drive(network)), run_folder, watched, subject=subject(source))
    (candidate,) = recommendation.candidates
    (measured,) = run_folder.measurements()
    finished = sum(count or 0 for count in known(measured.series).invocations)
    assert len(network.requests) - 4 <= finished <= len(network.requests), "all but unfinished ones"
    assert finished == pytest.approx(50 + 3 * 100, abs=4)
    assert known(measured.series).users[:3] == (1.0, 2.0, 2.0)
    assert measured.closed_loop_invocations_per_minute == pytest.approx(finished * 15 / 2, rel=0.01), (
        "per instance, of two"
    )
    assert measured.client_latency_ms["p50"] == pytest.approx(20, abs=0.5)
    assert measured.client_latency_from_intended_ms["p50"] >= measured.client_latency_ms["p50"]
    assert candidate.instance_type == "c5.xlarge"
    assert recommendation.provenance.model_dump(exclude={"measured_at"}) == {
        "measured_on": "local",
        "machine": "Some CPU with 2 cores",
        "job_name": "spellcheck-quick-1",
        "job_arn": URL,
        "traffic": "quick",
        "percentile": "P50",
        "region": "us-east-1",
        "run": "runs/spellcheck-quick-1",
    }
    assert "<svg" in run_folder.report.read_text("utf-8")
    payloads = run_folder.path / "payloads.tar.gz"
    assert stat.S_IMODE(payloads.stat().st_mode) == 0o600, "they are requests of real users"
    assert read_evidence(run_folder.path).measured == (measured,)
    assert {update.status for update in watched.updates} == {"IN_PROGRESS"}
    assert recommendation.recommended is not None


def test_the_plan_has_the_traffic_the_conditions_and_the_limit_of_a_job() -> None:
    workload = load_workload("text_classification").workload
    test = replace(a_test(), traffic=workload.traffic["production"])
    plan = test.plan(workload, Path("p.tar.gz"))
    assert [phase.duration_in_seconds for phase in known(plan.traffic_pattern).phases] == [600, 1200]
    assert plan.stopping_conditions.max_invocations == 30_000
    assert known(plan.stopping_conditions.latency).value_in_milliseconds == 500


LAGGED = "generator lagged: it used 97% of its core, so it was the bottleneck"


@pytest.mark.parametrize(
    ("code", "reason", "error", "message"),
    [
        (4, LAGGED, NoVerdict, f"No verdict: c5.xlarge: {LAGGED}. Measurements: {{}}."),
        (-9, "killed by signal 9", LoadTestFailed, "killed by signal 9\nMeasurements: {}."),
        (3, "target failed: it refuses", LoadTestFailed, f"{URL}: target failed: it refuses. Measurements: {{}}."),
    ],
)
def test_a_load_without_a_result_is_reported_with_its_reason(
    source: WorkloadFolder, run_folder: RunFolder, code: int, reason: str, error: type[ProjectError], message: str
) -> None:
    outcome = Outcome(folder=run_folder.path, exit_code=code, reason=reason, summary=None)
    test = a_test(drive=lambda plan, folder, on_event: outcome)
    assert message_of(error, measured_by, test, source, run_folder) == message.format(run_folder.path)


def test_ctrl_c_keeps_the_measurements(source: WorkloadFolder, run_folder: RunFolder) -> None:
    test = a_test(drive=virtual_drive(stopped_after_s=3.5), seconds=60)
    message = message_of(Interrupted, measured_by, test, source, run_folder)
    assert message == f"Interrupted: the load was stopped. Measurements: {run_folder.path}."
    (measured,) = run_folder.measurements()
    assert sum(count or 0 for count in known(measured.series).invocations) == pytest.approx(50 + 2.5 * 100, abs=2)


def test_ctrl_c_ends_the_generators_process_in_good_order(source: WorkloadFolder, run_folder: RunFolder) -> None:
    class Impatient(Progress):
        def update(self, update: ProgressUpdate) -> None:
            raise KeyboardInterrupt

    with serving(delay_s=SERVICE_S) as server, pytest.raises(Interrupted):
        measured_by(a_test(server.url, seconds=300), source, run_folder, Impatient())
    (measured,) = run_folder.measurements()
    assert sum(count or 0 for count in known(measured.series).invocations) == pytest.approx(len(server.seen), abs=3)
