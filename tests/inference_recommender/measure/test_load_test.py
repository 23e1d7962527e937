"""A load test: the same traffic, conditions and result as a job's, by our own generator, here in virtual time.

`test_load_test_measured.py` measures with real processes.
"""

import re
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from inference_recommender.load_generator.process import Outcome
from inference_recommender.measure.load_test import (
    PAYLOADS,
    LoadTestFailed,
    Prepared,
    alone,
    machine_description,
    measure,
    run,
)
from inference_recommender.measure.served import (
    endpoint_served,
    infer_url,
    load_plan,
    url_served,
)
from inference_recommender.measurement import DeployedEndpoint
from inference_recommender.progress import ProgressUpdate, Silent
from inference_recommender.run_folder import RunFolder
from inference_recommender.sizing.evidence import read_evidence
from tests.artifacts import an_artifact
from tests.conftest import EditToml
from tests.inference_recommender.measure.virtual_load import SERVICE_S, virtual_drive
from tests.inference_recommender.server import Server, serving
from tests.virtual_time import Network, answering
from workloads import Interrupted, NoVerdict, PhasedTraffic, WorkloadFolder, load_workload
from workloads.traffic import Phase, StoppingConditions

DEPLOYED = DeployedEndpoint(name="reviews", variant_name="AllTraffic", instance_type="ml.g4dn.xlarge", instance_count=3)
URL = "http://127.0.0.1:1"


@pytest.fixture
def server() -> Iterator[Server]:
    with serving(delay_s=SERVICE_S) as started:
        yield started


@pytest.fixture
def run_folder(tmp_path: Path) -> RunFolder:
    return RunFolder(tmp_path / "runs" / "spellcheck-quick-1")


@pytest.fixture
def source(edit_toml: EditToml) -> WorkloadFolder:
    """An objective for which a run of seconds has enough samples."""
    return load_workload("spellcheck", edit_toml('percentile = "P99"', 'percentile = "P50"'))


def brief_traffic(seconds: int, users: int) -> PhasedTraffic:
    """Half of the users for a second, then all. A busy machine's slow start then ends with the first phase."""
    return PhasedTraffic(
        type="phases",
        phases=(Phase(initial_users=users // 2, duration_s=1), Phase(initial_users=users, duration_s=seconds - 1)),
        stop=StoppingConditions(flat_invocations="Continue"),
    )


def prepared(source: WorkloadFolder, run_folder: RunFolder, url: str, *, seconds: int = 4, users: int = 2) -> Prepared:
    served = url_served(url, "spellcheck", "c5.xlarge", 2, "us-east-1")
    traffic = brief_traffic(seconds, users)
    plan = load_plan(traffic, source.workload.latency_objective, served, (run_folder.path / PAYLOADS).absolute())
    return Prepared(
        source=source,
        artifact=an_artifact(),
        traffic_name="quick",
        traffic=traffic,
        served=served,
        plan=plan,
        machine="Some CPU with 2 cores",
    )


def test_a_run_against_a_url_is_a_run_like_any_other(source: WorkloadFolder, run_folder: RunFolder) -> None:
    updates: list[ProgressUpdate] = []

    class Watcher(Silent):
        def update(self, update: ProgressUpdate) -> None:
            updates.append(update)

    network = Network(answering(SERVICE_S))
    recommendation = run(prepared(source, run_folder, URL), virtual_drive(network), run_folder, Watcher())
    (candidate,) = recommendation.candidates
    (measured,) = run_folder.measurements()
    assert measured.series is not None
    finished = sum(count or 0 for count in measured.series.invocations)
    assert len(network.requests) - 4 <= finished <= len(network.requests), "all but those under way at the end"
    assert finished == pytest.approx(50 + 3 * 100, abs=4)
    assert measured.series.users[:3] == (1.0, 2.0, 2.0)
    assert measured.max_invocations_per_minute == pytest.approx(finished * 15 / 2, rel=0.01), "per instance, of two"
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
    assert run_folder.report.read_text("utf-8").count("<svg") == 3
    assert read_evidence(run_folder.path).measured == (measured,)
    assert updates[-1].users == 2
    assert updates[-1].invocations_per_minute == pytest.approx(6_000, rel=0.05)
    assert recommendation.recommended is not None
    assert source.recommendation() == recommendation


def test_the_plan_has_the_traffic_the_conditions_and_the_limit_of_a_job() -> None:
    workload = load_workload("text_classification").workload
    served = endpoint_served(DEPLOYED, "eu-west-1", "runtime.sagemaker.eu-west-1.amazonaws.com")
    plan = load_plan(workload.traffic["production"], workload.latency_objective, served, Path("p.tar.gz"))
    assert plan.traffic_pattern is not None
    assert [phase.duration_in_seconds for phase in plan.traffic_pattern.phases] == [600, 1200]
    assert plan.stopping_conditions.max_invocations == 30_000
    assert plan.stopping_conditions.latency is not None
    assert plan.stopping_conditions.latency.value_in_milliseconds == 500
    assert plan.endpoint is not None
    assert (plan.endpoint.name, plan.endpoint.region, plan.url) == ("reviews", "eu-west-1", None)
    assert (served.measured_on, served.instance_type, served.instance_count) == ("sagemaker", "ml.g4dn.xlarge", 3)


@pytest.mark.parametrize(
    ("url", "completed"),
    [
        ("http://host:8000", "http://host:8000/v2/models/spellcheck/infer"),
        ("https://service.example/", "https://service.example/v2/models/spellcheck/infer"),
        ("http://host:8080/invocations", "http://host:8080/invocations"),
        ("http://host/v2/models/other/versions/2/infer", "http://host/v2/models/other/versions/2/infer"),
    ],
)
def test_a_url_without_a_path_is_completed_to_the_models(url: str, completed: str) -> None:
    assert infer_url(url, "spellcheck") == completed


def test_what_answers_on_loopback_is_measured_on_this_machine() -> None:
    assert url_served("http://10.0.0.1", "m", "inf1.xlarge", 1, None).measured_on == "service"
    assert endpoint_served(DEPLOYED, "us-east-1", "localhost").measured_on == "local"


def test_a_generator_that_was_the_bottleneck_gives_no_verdict(source: WorkloadFolder, run_folder: RunFolder) -> None:
    why = "generator lagged: it used 97% of its core, so it was the bottleneck"
    lagged = Outcome(folder=run_folder.path, exit_code=4, reason=why, summary=None)
    with pytest.raises(NoVerdict) as caught:
        measure(prepared(source, run_folder, URL), lambda plan, folder, on_event: lagged, run_folder, Silent())
    assert str(caught.value) == f"No verdict: c5.xlarge: {why}. What was measured is kept in {run_folder.path}."
    assert caught.value.exit_code == 4


def test_a_server_that_is_not_there_is_told_and_no_verdict(source: WorkloadFolder, run_folder: RunFolder) -> None:
    with pytest.raises(LoadTestFailed) as caught:
        measure(prepared(source, run_folder, URL), alone, run_folder, Silent())
    assert str(caught.value).startswith("http://127.0.0.1:1: target failed: 127.0.0.1:1 refuses connections")
    assert caught.value.exit_code == 3


def test_a_generator_that_crashed_is_told_with_its_last_words(source: WorkloadFolder, run_folder: RunFolder) -> None:
    crashed = Outcome(folder=run_folder.path, exit_code=-9, reason="killed by signal 9", summary=None)
    with pytest.raises(LoadTestFailed) as caught:
        measure(prepared(source, run_folder, URL), lambda plan, folder, on_event: crashed, run_folder, Silent())
    assert str(caught.value) == f"killed by signal 9\nWhat was measured is kept in {run_folder.path}."


def test_payloads_are_kept_for_their_owner_alone(source: WorkloadFolder, run_folder: RunFolder) -> None:
    measure(prepared(source, run_folder, URL), virtual_drive(), run_folder, Silent())
    assert stat.S_IMODE((run_folder.path / "payloads.tar.gz").stat().st_mode) == 0o600


def test_ctrl_c_keeps_what_was_measured(source: WorkloadFolder, run_folder: RunFolder) -> None:
    planned = prepared(source, run_folder, URL, seconds=60)
    with pytest.raises(Interrupted) as caught:
        measure(planned, virtual_drive(stopped_after_s=3.5), run_folder, Silent())
    assert str(caught.value) == f"Interrupted: the load was stopped. What was measured is kept in {run_folder.path}."
    (measured,) = run_folder.measurements()
    assert measured.series is not None
    assert sum(count or 0 for count in measured.series.invocations) == pytest.approx(50 + 2.5 * 100, abs=2)


def test_ctrl_c_ends_the_generators_process_in_good_order(
    source: WorkloadFolder, run_folder: RunFolder, server: Server
) -> None:
    class Impatient(Silent):
        def update(self, update: ProgressUpdate) -> None:
            raise KeyboardInterrupt

    with pytest.raises(Interrupted):
        measure(prepared(source, run_folder, server.url, seconds=300), alone, run_folder, Impatient())
    (measured,) = run_folder.measurements()
    assert measured.series is not None
    assert sum(count or 0 for count in measured.series.invocations) == pytest.approx(len(server.seen), abs=3)


def test_the_machine_is_described_by_its_cpu_and_cores(tmp_path: Path) -> None:
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text("processor : 0\nmodel name : Some CPU\n", "utf-8")
    assert re.fullmatch(r"Some CPU with \d+ cores?", machine_description(cpuinfo))
    assert machine_description(tmp_path / "none").startswith("unknown CPU with ")
