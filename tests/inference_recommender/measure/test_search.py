"""Open-loop searches of a job's candidates, and of a system without a test. Without a result the estimate decides."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from aws_api.errors import AwsUnavailable
from aws_api.expiry import GRACE_S, expiry_of
from benchmarks.searches.simulated_service import MM1, SimulatedService
from inference_recommender.capacity.probe import ProbeRecords
from inference_recommender.capacity.search import Bottleneck, SendProbe
from inference_recommender.measure import open_loop, start_stages
from inference_recommender.measure import run as use_case
from inference_recommender.measure.open_loop import CandidateSearch, OpenLoopSearch, searched
from inference_recommender.measure.run import RunSubject, run
from inference_recommender.measurement import Measurement, measurements
from inference_recommender.payloads import payload_archive
from inference_recommender.progress import Progress
from inference_recommender.run_folder import RunFolder
from inference_recommender.sizing.verdict import initial_rate
from tests.builders import a_provenance, a_run_folder, a_system, an_artifact, known, message_of
from tests.inference_recommender.api import SERIES, DeployedAccount, description
from workloads import LatencyObjective, NoVerdict, Provenance, Unavailable, load_workload

OBJECTIVE = LatencyObjective(percentile="P99", model_latency_ms=50, peak_invocations_per_minute=30_000)
(MEASURED,) = measurements(description(), [], {"sm-epc-1": SERIES})


@pytest.fixture
def kept(tmp_path: Path) -> RunFolder:
    folder = a_run_folder(tmp_path / "runs" / "job-1", MEASURED)
    folder.keep_bytes("payloads.tar.gz", payload_archive([{"text": "helo"}]))
    return folder


@pytest.fixture(autouse=True)
def systems(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Simulates an M/M/1 service instead of a server and its generator. Returns the systems that are probed."""
    probed: list[Any] = []

    def probe_of(system: Any, *_: Any) -> SendProbe:
        probed.append(system)
        return SimulatedService(MM1, seed=0).probe

    monkeypatch.setattr(open_loop, "probe_of", probe_of)
    monkeypatch.setattr(start_stages, "ask_url", lambda url: lambda body: True)
    monkeypatch.setattr(start_stages, "ask_endpoint", lambda name, client: lambda body: True)
    return probed


def found_by(account: DeployedAccount, kept: RunFolder, measured: Measurement = MEASURED) -> Measurement:
    return CandidateSearch(account=account, sleep=lambda seconds: None)(measured, kept, Progress())


def test_a_candidate_is_searched_on_a_temporary_endpoint_with_its_environment(kept: RunFolder) -> None:
    account = DeployedAccount()
    measured = found_by(account, kept)
    assert known(measured.open_loop).probes
    model, config = account.made
    name = config["EndpointConfigName"]
    assert model["PrimaryContainer"]["Environment"] == {"A": "1", "THREADS": "2"}
    expires_at = known(expiry_of(config["Tags"]))
    assert (expires_at - datetime.now(UTC)).total_seconds() > 3600 + GRACE_S, "a start may take an hour"
    started = known(measured.cold_start)
    assert (started.fetch_s, started.unpack_s) == pytest.approx((0.025, 0.075), abs=1e-5)
    assert (started.instance_type, started.archive_sha256, started.measured_on) == ("ml.c5.xlarge", "a" * 64, "local")
    (variant,) = config["ProductionVariants"]
    assert (variant["ModelName"], variant["InstanceType"], variant["InitialInstanceCount"]) == (name, "ml.c5.xlarge", 1)
    assert account.deleted == [name, f"model {name}"]


class Kept:
    """A `Source` that returns given measurements."""

    def __init__(self, *measured: Measurement) -> None:
        self.measured = measured

    def begin(self, run_folder: RunFolder) -> None:
        raise AssertionError("the run has begun")

    def measure(self, run_folder: RunFolder, progress: object) -> tuple[Measurement, ...]:
        return self.measured

    def provenance(self, run_folder: RunFolder) -> Provenance:
        return a_provenance(percentile="P99")


@pytest.mark.parametrize(
    ("rate", "search_all", "searches"), [(12_000.0, False, 0), (90_000.0, False, 1), (12_000.0, True, 1)]
)
def test_without_search_only_an_estimate_far_below_the_closed_loop_rate_is_checked(
    kept: RunFolder, monkeypatch: pytest.MonkeyPatch, rate: float, search_all: bool, searches: int
) -> None:
    monkeypatch.setattr(use_case, "draw", lambda run_folder: None)
    calls: list[Measurement] = []

    def search(measured: Measurement, *_: object) -> Measurement:
        calls.append(measured)
        return measured

    source = Kept(MEASURED.model_copy(update={"closed_loop_invocations_per_minute": rate}))
    run(source, kept, Progress(), search=search, search_all=search_all)
    assert len(calls) == searches


def refuse(*_: object) -> Any:
    raise AwsUnavailable("AWS refused it: AccessDenied: not yours.")


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"status": "Failed"}, "endpoint {name} is Failed: No room. See `python -m stacks explain {name}`"),
        ({"make_endpoint": refuse}, "AWS refused it: AccessDenied: not yours"),
    ],
)
def test_an_endpoint_that_does_not_start_leaves_the_estimate_to_decide(
    kept: RunFolder, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], reason: str
) -> None:
    account = DeployedAccount()
    for name, value in changes.items():
        monkeypatch.setattr(account, name, value)
    found = known(found_by(account, kept).open_loop)
    assert not found.decides
    assert found.reason == reason.format(name=account.deleted[0])


def test_a_start_without_a_log_does_not_end_the_search(kept: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    account = DeployedAccount()
    monkeypatch.setattr(account, "endpoint_log", refuse)
    measured = found_by(account, kept)
    assert measured.cold_start is None
    assert known(measured.open_loop).probes


def alone(tmp_path: Path, longest_s: float = 3600.0) -> Measurement:
    """Searches a system of two instances without a test before it."""
    folder, run_folder = load_workload("spellcheck").hosted_on("cpu"), RunFolder(tmp_path / "runs" / "search")
    subject = RunSubject(
        workload=folder.workload, payloads=folder.payloads(), artifact=an_artifact(), traffic=open_loop.OPEN_LOOP
    )
    source = OpenLoopSearch(system=a_system(instances=2), longest_s=longest_s)
    recommendation = run(source, run_folder, Progress(), subject=subject)
    assert recommendation.provenance.traffic == "open-loop"
    (measured,) = run_folder.measurements()
    (candidate,) = recommendation.candidates
    assert candidate.max_invocations_per_minute == known(measured.open_loop).invocations_per_minute
    return measured


def test_a_search_alone_finds_the_capacity_per_instance(tmp_path: Path) -> None:
    found = known(alone(tmp_path).open_loop)
    assert max(probe.invocations_per_minute for probe in found.probes) > known(found.invocations_per_minute) / 2


def lagged(rate: float, seconds: float) -> ProbeRecords:
    raise Bottleneck("generator lagged: it used 97% of its core")


@pytest.mark.parametrize(
    ("probe", "longest_s", "reason"),
    [
        (
            lagged,
            60.0,
            "No verdict: generator lagged: it used 97% of its core. Run the generator on another machine than the "
            "server, or on one with more cores. Measurements: ",
        ),
        (SimulatedService(MM1, seed=0).probe, 12.0, "No verdict: too few samples: after "),
    ],
)
def test_a_search_alone_that_finds_too_little_gives_no_verdict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, probe: SendProbe, longest_s: float, reason: str
) -> None:
    monkeypatch.setattr(open_loop, "probe_of", lambda *_: probe)
    assert message_of(NoVerdict, alone, tmp_path, longest_s).startswith(reason)


def test_a_search_begins_at_the_rate_that_the_records_suggest_after_a_slow_warm_up() -> None:
    rates: list[float] = []
    simulated = SimulatedService(MM1, seed=0)

    def gone_when_warm(rate_per_minute: float, duration_s: float) -> ProbeRecords:
        rates.append(rate_per_minute)
        if rate_per_minute > rates[0]:
            raise Unavailable("it is gone.")
        return simulated.probe(rate_per_minute, duration_s)

    found = known(searched(MEASURED, gone_when_warm, OBJECTIVE, 60.0, Progress()).open_loop)
    expected = known(initial_rate(MEASURED, OBJECTIVE))
    assert rates[-1] == pytest.approx(expected)
    assert expected < (MEASURED.closed_loop_invocations_per_minute or 0)
    assert found.reason == "it is gone"
    fast, bare = OBJECTIVE.model_copy(update={"model_latency_ms": 1.0}), MEASURED.model_copy(update={"series": None})
    assert initial_rate(MEASURED, fast) == initial_rate(bare, OBJECTIVE) == 6_000, "half of the closed-loop rate"
    failed = MEASURED.model_copy(update={"failure_reason": "Out of memory."})
    assert searched(failed, lambda rate, seconds: pytest.fail("sent"), OBJECTIVE, 60.0, Progress()) is failed
