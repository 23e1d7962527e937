"""The open-loop search after a closed-loop test: `--search`, or the check of an estimate that is far too low.

A job's candidate is searched on a temporary endpoint, on the local account and on AWS alike. A search without a result
leaves the estimate to decide and keeps the reason; it never ends a run.
"""

import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Protocol

from inference_recommender.capacity.probe import ProbeRecords
from inference_recommender.capacity.rate import Capacity
from inference_recommender.capacity.search import Search, SendProbe
from inference_recommender.load_generator.plan import SageMakerEndpoint
from inference_recommender.load_generator.requests import read_payloads
from inference_recommender.measure import first_answer, temporary_endpoint
from inference_recommender.measure.probe import GeneratorProbe
from inference_recommender.measure.start_stages import cold_start
from inference_recommender.measurement import Measurement, limit_of
from inference_recommender.progress import Progress, ProgressUpdate
from inference_recommender.run_folder import RunFolder
from inference_recommender.sizing.verdict import initial_rate, is_far_below_closed_loop
from workloads import LatencyObjective, ProjectError, Unavailable

SHORTEST_S, LONGEST_S = 60.0, 300.0
"""A search takes about as long as the users' traffic did, within these bounds."""
PAYLOADS, SEARCH = "payloads.tar.gz", "open-arrivals"

Sleep = Callable[[float], None]


class Account(temporary_endpoint.Account, first_answer.Account, Protocol):
    """The calls for a temporary endpoint and for its start. Every method raises `AwsUnavailable`."""

    @property
    def region(self) -> str: ...


def search_s(traffic_s: float) -> float:
    return min(max(traffic_s, SHORTEST_S), LONGEST_S)


def searched(
    measured: Measurement, probe: SendProbe, objective: LatencyObjective, longest_s: float, progress: Progress
) -> Measurement:
    """Returns the measurement with the search's result; unchanged if the closed-loop test had no rate. `probe` sends to
    all of its instances together.
    """
    start = initial_rate(measured, objective)
    if start is None:
        return measured
    began = time.monotonic()

    def told(rate_per_minute: float, duration_s: float) -> ProbeRecords:
        progress.update(
            ProgressUpdate(
                job_name=f"{measured.instance_type}, open-loop search",
                status="SEARCHING",
                elapsed_s=time.monotonic() - began,
                expected_s=longest_s,
            )
        )
        return probe(rate_per_minute, duration_s)

    begin, limit = start * measured.instance_count, limit_of(objective)
    search = Search(send=told, limit=limit, start=begin, longest_s=longest_s)
    try:
        found = search.run().per_instance(measured.instance_count)
    except Unavailable as error:
        found = unknown(objective, str(error))
    return measured.model_copy(update={"open_loop": found})


def unknown(objective: LatencyObjective, why: str) -> Capacity:
    """Returns the result of a search that was not possible."""
    return Capacity(
        invocations_per_minute=None,
        percentile=objective.percentile,
        limit_ms=objective.model_latency_ms,
        reason=why.removesuffix("."),
    )


class TemporaryEndpoints:
    """Searches a job's candidates, each on an endpoint that exists for the search only, and measures its cold start.

    Searches every candidate if `search_all`, else those whose estimate is far below the closed-loop rate.
    """

    def __init__(
        self, account: Account, progress: Progress, machine: str, *, search_all: bool, sleep: Sleep = time.sleep
    ) -> None:
        """`machine` is what stands in for the instance types; empty on AWS."""
        self._account = account
        self._progress = progress
        self._machine = machine
        self._search_all = search_all
        self._sleep = sleep

    def __call__(self, measured: Measurement, run_folder: RunFolder) -> Measurement:
        """Reads the model and the objective from `run_folder`, which also keeps every probe."""
        objective = run_folder.workload().latency_objective
        if initial_rate(measured, objective) is None:
            return measured
        if not self._search_all:
            if not is_far_below_closed_loop(measured, objective):
                return measured
            self._progress.say(
                f"{measured.instance_type}: the estimate is far below the closed-loop rate. Checking it with an "
                "open-loop search."
            )
        deployed = run_folder.jobs().deployed
        try:
            if deployed is not None and measured.endpoint_name == deployed.name:
                return self._searched(measured, deployed.name, run_folder)
            spec = _endpoint_spec(measured, run_folder)
            with temporary_endpoint.temporary_endpoint(self._account, spec, self._sleep) as name:
                started = self._started(measured, name, run_folder)
                return self._searched(started, name, run_folder)
        except ProjectError as error:
            if not isinstance(error, Unavailable):
                raise
            return measured.model_copy(update={"open_loop": unknown(objective, str(error))})

    def _searched(self, measured: Measurement, endpoint: str, run_folder: RunFolder) -> Measurement:
        """Raises `Unavailable`."""
        url = self._account.invocations_url(endpoint)
        objective = run_folder.workload().latency_objective
        probe = GeneratorProbe(
            run_folder.path / PAYLOADS,
            run_folder.path / SEARCH / measured.endpoint_name,
            url=url,
            endpoint=None if url else SageMakerEndpoint(name=endpoint, region=self._account.region),
            tell=self._progress.say,
        )
        return searched(measured, probe, objective, search_s(run_folder.jobs().expected_s), self._progress)

    def _started(self, measured: Measurement, endpoint: str, run_folder: RunFolder) -> Measurement:
        """Adds the stages of the endpoint's start, if the account reports them."""
        objective, bodies = run_folder.workload().latency_objective, read_payloads(run_folder.path / PAYLOADS)
        try:
            start = first_answer.start_of(self._account, endpoint, bodies, objective.model_latency_ms, self._sleep)
        except Unavailable:
            return measured
        stages = cold_start(
            [start],
            measured_on="local" if self._machine else "sagemaker",
            machine=self._machine or measured.instance_type,
            instance_type=measured.instance_type,
            archive_sha256=run_folder.inputs().archive_sha256,
            measured_at=datetime.now(UTC),
        )
        return measured.model_copy(update={"cold_start": stages})


def _endpoint_spec(measured: Measurement, run_folder: RunFolder) -> temporary_endpoint.EndpointSpec:
    """Raises `Unavailable` if the job tested no model of which an endpoint can be made."""
    model = run_folder.request()["InputConfig"].get("ModelName")
    if model is None:
        raise Unavailable("a model package has no model to make an endpoint of")
    return temporary_endpoint.EndpointSpec(
        model=model,
        variant={"InstanceType": measured.instance_type},
        environment=measured.environment,
        lives_s=LONGEST_S,
    )
