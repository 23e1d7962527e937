"""Open arrivals begin where users told to look, and decide; what cannot be searched is left to the estimate."""

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from aws_api.errors import AwsUnavailable
from benchmarks.searches.simulated_service import MM1, SimulatedService
from inference_recommender.capacity.probe import ProbeRecords
from inference_recommender.capacity.search import SendProbe
from inference_recommender.measure import first_answer
from inference_recommender.measure import search as open_arrivals
from inference_recommender.measure.search import TemporaryEndpoints, search_s, searched
from inference_recommender.measure.start_stages import LogLine
from inference_recommender.measurement import Measurement, measurements
from inference_recommender.payloads import payload_archive
from inference_recommender.progress import Silent
from inference_recommender.run_folder import Jobs, RunFolder, RunInputs
from inference_recommender.sizing.decision import decide
from inference_recommender.sizing.verdict import initial_rate
from tests.inference_recommender.api import SERIES, description
from tests.inference_recommender.measure.recorded_log import OWN, QUIET, at, lines
from workloads import LatencyObjective, Provenance, Unavailable, load_workload

OBJECTIVE = LatencyObjective(percentile="P99", model_latency_ms=50, peak_invocations_per_minute=30_000)
(MEASURED,) = measurements(description(), [], {"sm-epc-1": SERIES})
URL = "http://127.0.0.1:1/invocations"


class Account:
    """Makes endpoints that are in service at the second look, and keeps what it was asked for."""

    def __init__(self, status: str = "InService") -> None:
        self.status = status
        self.made: list[Mapping[str, Any]] = []
        self.deleted: list[str] = []
        self.probes: list[dict[str, Any]] = []
        self.url: str | None = URL
        self.region = "us-east-1"
        self._looks = 0

    def model(self, name: str) -> Mapping[str, Any]:
        container = {"Image": "i", "Environment": {"A": "1", "THREADS": "1"}}
        return {"ModelName": name, "ExecutionRoleArn": "r", "PrimaryContainer": container}

    def make_model(self, request: Mapping[str, Any]) -> None:
        self.made.append(request)

    def delete_model(self, name: str) -> None:
        self.deleted.append(f"model {name}")

    def make_endpoint(self, config: Mapping[str, Any], endpoint: Mapping[str, Any]) -> None:
        self.made.append(config)

    def endpoint_status(self, name: str) -> tuple[str, str | None]:
        self._looks += 1
        return ("Creating", None) if self._looks == 1 else (self.status, "No room.")

    def client(self, service: str) -> Any:
        assert self.url is None, f"{service} is not needed if the server's own address is known"

    def endpoint_times(self, name: str) -> tuple[datetime, datetime]:
        return datetime.fromtimestamp(at(40.0), UTC), datetime.fromtimestamp(at(43.7), UTC)

    def endpoint_log(self, name: str) -> list[list[LogLine]]:
        return [lines(OWN + QUIET)]

    def delete_endpoint(self, name: str) -> None:
        self.deleted.append(name)

    def invocations_url(self, endpoint: str) -> str | None:
        return self.url


@pytest.fixture
def kept(tmp_path: Path) -> RunFolder:
    folder = RunFolder(tmp_path / "runs" / "job-1")
    folder.keep_workload(load_workload("spellcheck").workload)
    folder.keep_inputs(RunInputs(traffic="quick", archive_sha256="0" * 64))
    folder.keep_bytes("payloads.tar.gz", payload_archive([{"text": "helo"}]))
    jobs = Jobs(token="t", names=("job-1",), expected_s=60.0, payload_url="s3://b/k")
    folder.keep_jobs(jobs, ({"JobName": "job-1", "InputConfig": {"ModelName": "m"}},))
    return folder


def _own(
    kept: RunFolder,
    account: Account,
    monkeypatch: pytest.MonkeyPatch,
    measured: Measurement,
    *,
    search_all: bool = True,
) -> Measurement:
    """Searches with the real search, on a simulated M/M/1 in the place of a server and its generator."""
    simulated = SimulatedService(MM1, seed=0)
    account.probes = []

    def probe_of(payloads: Path, folder: Path, **target: Any) -> SendProbe:
        account.probes.append(target)
        return simulated.probe

    monkeypatch.setattr(open_arrivals, "GeneratorProbe", probe_of)
    monkeypatch.setattr(first_answer, "ask_url", lambda url: lambda body: True)
    monkeypatch.setattr(first_answer, "ask_endpoint", lambda name, client: lambda body: True)
    after_job = TemporaryEndpoints(account, Silent(), "two cores", search_all=search_all, sleep=lambda seconds: None)
    return after_job(measured, kept)


def test_a_candidate_is_searched_on_an_endpoint_of_its_own_that_is_deleted_after_it(
    kept: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With its environment in a copy of the model, as the job's test had it."""
    account = Account()
    measured = _own(kept, account, monkeypatch, MEASURED)
    found = measured.open_loop
    assert found is not None
    assert found.probes
    model, config = account.made
    name = config["EndpointConfigName"]
    assert model["PrimaryContainer"]["Environment"] == {"A": "1", "THREADS": "2"}
    started = measured.cold_start
    assert started is not None
    assert (started.fetch_s, started.unpack_s) == pytest.approx((0.025, 0.075), abs=1e-5)
    assert (started.machine, started.instance_type, started.archive_sha256) == ("two cores", "ml.c5.xlarge", "0" * 64)
    (variant,) = config["ProductionVariants"]
    assert (variant["ModelName"], variant["InstanceType"], variant["InitialInstanceCount"]) == (name, "ml.c5.xlarge", 1)
    assert account.deleted == [name, f"model {name}"]


def test_without_search_only_an_estimate_far_below_the_closed_loop_rate_is_checked(
    kept: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    account = Account()
    assert _own(kept, account, monkeypatch, MEASURED, search_all=False) is MEASURED
    assert account.made == []
    low = MEASURED.model_copy(update={"max_invocations_per_minute": 90_000.0})
    checked = _own(kept, account, monkeypatch, low, search_all=False)
    assert checked.open_loop is not None


def test_an_endpoint_on_aws_is_searched_through_its_runtime(kept: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    account = Account()
    account.url = None
    measured = _own(kept, account, monkeypatch, MEASURED)
    (target,) = account.probes
    assert (target["url"], target["endpoint"].name) == (None, account.deleted[0])
    assert measured.open_loop is not None
    assert measured.open_loop.probes


def test_what_open_arrivals_found_sizes_the_fleet(kept: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_arrivals, "SHORTEST_S", 3_600.0)
    monkeypatch.setattr(open_arrivals, "LONGEST_S", 3_600.0)
    measured = _own(kept, Account(), monkeypatch, MEASURED.model_copy(update={"environment": {}}))
    found = measured.open_loop
    assert found is not None
    assert found.invocations_per_minute is not None, found.reason
    origin = Provenance(
        measured_on="local",
        machine="m",
        job_name="j",
        job_arn="a",
        traffic="quick",
        percentile="P99",
        measured_at="2026",
        region="us-east-1",
        run="r",
    )
    decided = decide(load_workload("spellcheck").workload, "0" * 64, [measured], origin)
    assert decided.capacity_basis == "open-loop"
    assert decided.cold_start == measured.cold_start
    assert decided.cold_start is not None
    assert decided.recommended is not None
    assert decided.recommended.max_invocations_per_minute == pytest.approx(found.invocations_per_minute)


def test_an_endpoint_that_does_not_start_leaves_the_estimate_to_decide(
    kept: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    account = Account(status="Failed")
    found = _own(kept, account, monkeypatch, MEASURED).open_loop
    assert found is not None
    assert not found.decides
    assert found.reason == f"endpoint {account.deleted[0]} is Failed: No room"


def test_a_start_that_nothing_tells_leaves_the_search_as_it_is(
    kept: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    account = Account()

    def refuse(name: str) -> list[list[LogLine]]:
        raise AwsUnavailable("AWS refused GetLogEvents: AccessDenied: not yours.")

    monkeypatch.setattr(account, "endpoint_log", refuse)
    measured = _own(kept, account, monkeypatch, MEASURED)
    assert measured.cold_start is None
    assert measured.open_loop is not None
    assert measured.open_loop.probes


def test_a_refusal_of_the_account_leaves_the_estimate_to_decide(
    kept: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    account = Account()

    def refuse(config: Mapping[str, Any], endpoint: Mapping[str, Any]) -> None:
        raise AwsUnavailable("AWS refused CreateEndpoint: AccessDenied: not yours.")

    monkeypatch.setattr(account, "make_endpoint", refuse)
    found = _own(kept, account, monkeypatch, MEASURED).open_loop
    assert found is not None
    assert found.reason == "AWS refused CreateEndpoint: AccessDenied: not yours"


def test_a_search_begins_where_the_users_records_tell_to_look() -> None:
    """After a slow rate at which it warms up."""
    rates: list[float] = []
    simulated = SimulatedService(MM1, seed=0)

    def gone_when_warm(rate_per_minute: float, duration_s: float) -> ProbeRecords:
        rates.append(rate_per_minute)
        if rate_per_minute > rates[0]:
            raise Unavailable("it is gone.")
        return simulated.probe(rate_per_minute, duration_s)

    found = searched(MEASURED, gone_when_warm, OBJECTIVE, 60.0, Silent()).open_loop
    expected = initial_rate(MEASURED, OBJECTIVE)
    assert expected is not None
    assert rates[-1] == pytest.approx(expected)
    assert expected < (MEASURED.max_invocations_per_minute or 0)
    assert found is not None
    assert found.reason == "it is gone"


def test_a_search_begins_at_half_of_what_users_had_where_no_rate_can_be_expected() -> None:
    fast, bare = OBJECTIVE.model_copy(update={"model_latency_ms": 1.0}), MEASURED.model_copy(update={"series": None})
    assert initial_rate(MEASURED, fast) == initial_rate(bare, OBJECTIVE) == 6_000


def test_a_candidate_of_which_users_had_nothing_is_not_searched() -> None:
    failed = MEASURED.model_copy(update={"failure_reason": "Out of memory."})
    assert searched(failed, lambda rate, seconds: pytest.fail("asked"), OBJECTIVE, 60.0, Silent()) is failed


@pytest.mark.parametrize(("traffic_s", "longest_s"), [(20, 60), (180, 180), (1_800, 300)])
def test_a_search_takes_about_as_long_as_the_users_traffic(traffic_s: float, longest_s: float) -> None:
    assert search_s(traffic_s) == longest_s
