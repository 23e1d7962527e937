"""The harness: the same traffic, conditions and result as a job's, by our own generator; alone and as a fleet."""

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import botocore.session
import pytest
from botocore.validate import validate_parameters

from inference_recommender.load_generator.plan import LoadPlan
from inference_recommender.load_generator.process import Outcome
from inference_recommender.load_test.generator_fleet import FleetDrive, pack_source, source_files
from inference_recommender.load_test.generator_request import Fleet, image_uri, plan_fleet
from inference_recommender.load_test.load_test import PAYLOADS, LoadTestFailed, OnEvent, Prepared, alone, measure, run
from inference_recommender.load_test.served import (
    endpoint_served,
    infer_url,
    is_this_machine,
    load_plan,
    url_served,
)
from inference_recommender.measurement import DeployedEndpoint
from inference_recommender.progress import ProgressUpdate, Silent
from inference_recommender.run_folder import RunFolder
from inference_recommender.sizing.evidence import read_evidence
from tests.artifacts import an_artifact
from tests.conftest import EditToml
from tests.inference_recommender.load_test.generator_fleet_account import LoopbackFleet
from tests.inference_recommender.server import Server, serving
from workloads import ROOT, Interrupted, NoVerdict, PhasedTraffic, Unavailable, WorkloadFolder, load_workload
from workloads.traffic import Phase, StoppingConditions

DEPLOYED = DeployedEndpoint(name="reviews", variant_name="AllTraffic", instance_type="ml.g4dn.xlarge", instance_count=3)


@pytest.fixture
def server() -> Iterator[Server]:
    with serving(delay_s=0.02) as started:
        yield started


@pytest.fixture
def kept(tmp_path: Path) -> RunFolder:
    return RunFolder(tmp_path / "runs" / "spellcheck-quick-1")


@pytest.fixture
def source(edit_toml: EditToml) -> WorkloadFolder:
    """With an objective that a run of seconds, on a machine at work, keeps and has samples enough of."""
    edit_toml('percentile = "P99"', 'percentile = "P50"')
    return load_workload("spellcheck", edit_toml("model_latency_ms = 50.0", "model_latency_ms = 2000.0"))


def _traffic(seconds: int, users: int) -> PhasedTraffic:
    """The load changes after a second: what a busy machine makes look like a warm-up ends there."""
    return PhasedTraffic(
        type="phases",
        phases=(Phase(initial_users=users // 2, duration_s=1), Phase(initial_users=users, duration_s=seconds - 1)),
        stop=StoppingConditions(flat_invocations="Continue"),
    )


def _prepared(source: WorkloadFolder, kept: RunFolder, url: str, *, seconds: int = 4, users: int = 2) -> Prepared:
    """Without calibration: the generator shares this machine with the server it asks."""
    served = url_served(url, "spellcheck", "c5.xlarge", 2, "us-east-1")
    traffic = _traffic(seconds, users)
    plan = load_plan(traffic, source.workload.latency_objective, served, (kept.path / PAYLOADS).absolute())
    return Prepared(
        source=source,
        artifact=an_artifact(),
        traffic_name="quick",
        traffic=traffic,
        served=served,
        plan=plan.model_copy(update={"calibrate": False}),
        machine="Some CPU with 2 cores",
    )


def test_a_run_against_a_url_is_a_run_like_any_other(source: WorkloadFolder, kept: RunFolder, server: Server) -> None:
    updates: list[ProgressUpdate] = []

    class Watcher(Silent):
        def update(self, update: ProgressUpdate) -> None:
            updates.append(update)

    found = run(_prepared(source, kept, server.url), alone, kept, Watcher())
    (candidate,) = found.candidates
    (measured,) = kept.measurements()
    assert measured.series is not None
    assert sum(count or 0 for count in measured.series.invocations) == pytest.approx(len(server.seen), abs=2)
    assert set(measured.series.users[:-1]) == {1.0, 2.0}
    assert measured.max_invocations_per_minute is not None
    assert measured.max_invocations_per_minute * 2 == pytest.approx(len(server.seen) * 15, rel=0.25), "per instance"
    assert measured.client_latency_ms["p50"] >= 2
    assert measured.client_latency_from_intended_ms["p50"] >= measured.client_latency_ms["p50"]
    assert candidate.instance_type == "c5.xlarge"
    assert found.provenance.model_dump(exclude={"measured_at"}) == {
        "measured_on": "local",
        "machine": "Some CPU with 2 cores",
        "job_name": "spellcheck-quick-1",
        "job_arn": server.url,
        "traffic": "quick",
        "percentile": "P50",
        "region": "us-east-1",
        "run": "runs/spellcheck-quick-1",
    }
    assert kept.report.read_text("utf-8").count("<svg") == 3
    assert read_evidence(kept.path).measured == (measured,)
    assert updates[-1].users == 2
    assert found.recommended is not None
    assert source.recommendation() == found


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
    assert plan.calibrate, "so that a generator that was the bottleneck says so"
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


def test_only_loopback_is_this_machine() -> None:
    names = ("localhost", "127.0.0.1", "127.8.8.8", "::1", "10.0.0.1", "service.example")
    assert [name for name in names if is_this_machine(name)] == ["localhost", "127.0.0.1", "127.8.8.8", "::1"]
    assert url_served("http://10.0.0.1", "m", "inf1.xlarge", 1, None).measured_on == "service"
    assert endpoint_served(DEPLOYED, "us-east-1", "localhost").measured_on == "local"


def _drive(outcome: Outcome) -> Callable[[LoadPlan, Path, OnEvent], Outcome]:
    return lambda plan, folder, on_event: outcome


def test_a_generator_that_was_the_bottleneck_gives_no_verdict(source: WorkloadFolder, kept: RunFolder) -> None:
    why = "generator lagged: it used 97% of its core, so it was the bottleneck"
    lagged = Outcome(folder=kept.path, exit_code=4, reason=why, summary=None)
    with pytest.raises(NoVerdict) as caught:
        measure(_prepared(source, kept, "http://127.0.0.1:1"), _drive(lagged), kept, Silent())
    assert str(caught.value) == f"No verdict: c5.xlarge: {why}. What was measured is kept in {kept.path}."
    assert caught.value.exit_code == 4


def test_a_server_that_is_not_there_is_told_and_no_verdict(source: WorkloadFolder, kept: RunFolder) -> None:
    with pytest.raises(LoadTestFailed) as caught:
        measure(_prepared(source, kept, "http://127.0.0.1:1"), alone, kept, Silent())
    assert str(caught.value).startswith("http://127.0.0.1:1: target failed: 127.0.0.1:1 refuses connections")
    assert caught.value.exit_code == 3


def test_ctrl_c_keeps_what_was_measured(source: WorkloadFolder, kept: RunFolder, server: Server) -> None:
    class Impatient(Silent):
        def update(self, update: ProgressUpdate) -> None:
            if update.elapsed_s > 1.5:
                raise KeyboardInterrupt

    with pytest.raises(Interrupted) as caught:
        measure(_prepared(source, kept, server.url, seconds=60), alone, kept, Impatient())
    assert str(caught.value) == f"Interrupted: the load was stopped. What was measured is kept in {kept.path}."
    (measured,) = kept.measurements()
    assert measured.series is not None
    assert sum(count or 0 for count in measured.series.invocations) == pytest.approx(len(server.seen), abs=3)


def _fleet(**changes: Any) -> Fleet:
    fleet = Fleet(
        generators=3,
        instance_type="ml.c5.2xlarge",
        image_uri="763104351884.dkr.ecr.us-east-1.amazonaws.com/pytorch-training:2.10.0-cpu-py313",
        role_arn="arn:aws:iam::123456789012:role/Generators",
        bucket="bucket",
        region="us-east-1",
    )
    return replace(fleet, **changes)


def test_a_fleet_is_one_processing_job_that_the_service_would_take() -> None:
    vpc = _fleet(subnets=("subnet-1",), security_groups=("sg-1",), kms_key="key")
    request = plan_fleet("spellcheck", "spellcheck-production-1", 1800, vpc).request()
    shape = botocore.session.get_session().get_service_model("sagemaker").operation_model("CreateProcessingJob")
    assert shape.input_shape is not None
    validate_parameters(request, shape.input_shape)
    assert request["ProcessingResources"]["ClusterConfig"]["InstanceCount"] == 3
    assert request["StoppingCondition"] == {"MaxRuntimeInSeconds": 3600}
    assert request["ProcessingInputs"][0]["S3Input"]["S3DataDistributionType"] == "FullyReplicated"
    assert request["NetworkConfig"] == {"VpcConfig": {"SecurityGroupIds": ["sg-1"], "Subnets": ["subnet-1"]}}


def test_the_image_is_where_sagemaker_core_says() -> None:
    uri = "763104351884.dkr.ecr.eu-west-1.amazonaws.com/pytorch-training:2.10.0-cpu-py313"
    assert image_uri("eu-west-1") == uri


def test_what_travels_is_the_same_bytes_for_the_same_files_and_enough_for_the_generator() -> None:
    names = source_files(ROOT)
    assert {"inference_recommender/load_generator/__main__.py", "workloads/document.py", "constraints.txt"} <= set(
        names
    )
    assert not [name for name in names if "__pycache__" in name or name.startswith("tests")]
    assert pack_source(ROOT) == pack_source(ROOT)


def test_three_generators_merge_to_what_the_server_saw(
    source: WorkloadFolder, kept: RunFolder, server: Server, tmp_path: Path
) -> None:
    """Three processes that meet over sockets, start together, and each take a third of six users."""
    prepared = _prepared(source, kept, server.url, seconds=4, users=6)
    account = LoopbackFleet(tmp_path / "instances")
    planned = plan_fleet("spellcheck", "spellcheck-quick-1", 4, _fleet())
    measured = measure(prepared, FleetDrive(planned, account, ROOT, Silent(), poll_s=0.1), kept, Silent())
    shares = [json.loads(file.read_text("utf-8")) for file in sorted((kept.path / "load").glob("*/summary.json"))]
    assert len(shares) == 3
    total = sum(share["invocations"] for share in shares)
    assert total == pytest.approx(len(server.seen), abs=6)
    assert max(s["started_at"] for s in shares) - min(s["started_at"] for s in shares) < 1
    merged = json.loads((kept.path / "load" / "summary.json").read_text("utf-8"))
    assert merged["generators"] == 3
    assert 0.6 * total < merged["invocations"] <= total, "those of the time in which all were at work"
    assert measured.series is not None
    assert sum(count or 0 for count in measured.series.invocations) == merged["invocations"]
    assert measured.max_invocations_per_minute is not None
    rate = merged["invocations"] / merged["duration_s"] * 60
    assert measured.max_invocations_per_minute * 2 == pytest.approx(rate, rel=0.3)
    assert [job.name for job in account.created] == ["spellcheck-quick-1"]


def test_ctrl_c_stops_the_fleet_and_keeps_what_it_measured(
    source: WorkloadFolder, kept: RunFolder, server: Server, tmp_path: Path
) -> None:
    prepared = _prepared(source, kept, server.url, seconds=120, users=2)
    account = LoopbackFleet(tmp_path / "instances")
    planned = plan_fleet("spellcheck", "spellcheck-quick-1", 120, _fleet(generators=2))
    drive = FleetDrive(planned, account, ROOT, Silent(), poll_s=0.2)
    account.interrupt_when = lambda: len(server.seen) > 300
    with pytest.raises(Interrupted):
        measure(prepared, drive, kept, Silent())
    (measured,) = kept.measurements()
    assert measured.series is not None
    assert sum(count or 0 for count in measured.series.invocations) > 50


def test_ctrl_c_while_the_fleet_starts_is_an_interruption_like_any_other(
    source: WorkloadFolder, kept: RunFolder, server: Server, tmp_path: Path
) -> None:
    account = LoopbackFleet(tmp_path / "instances")
    account.interrupt_when = lambda: True
    planned = plan_fleet("spellcheck", "spellcheck-quick-1", 120, _fleet(generators=2))
    with pytest.raises(Interrupted):
        measure(_prepared(source, kept, server.url), FleetDrive(planned, account, ROOT, Silent(), 0.1), kept, Silent())
    (measured,) = kept.measurements()
    assert measured.series is None
    assert "has what 0 of 2 generators measured" in (measured.failure_reason or "")


def test_a_job_that_fails_says_why(
    source: WorkloadFolder, kept: RunFolder, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    account = LoopbackFleet(tmp_path / "instances")
    monkeypatch.setattr("inference_recommender.load_test.generator_fleet.pack_source", lambda root: b"no archive")
    planned = plan_fleet("spellcheck", "spellcheck-quick-1", 4, _fleet(generators=1))
    with pytest.raises(Unavailable) as caught:
        measure(_prepared(source, kept, server.url), FleetDrive(planned, account, ROOT, Silent(), 0.1), kept, Silent())
    assert str(caught.value).startswith("Processing job spellcheck-quick-1 failed: file could not be opened")
