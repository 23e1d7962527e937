"""Open arrivals, after closed-loop users told where to look: the search that decides what an instance bears.

Only where the server is ours to load: a load test's own, and on an account of this machine an endpoint for each
candidate, as the job's test had one. A search that comes to nothing leaves the estimate from the users' records to
decide, and says why; it never ends a run.
"""

import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Protocol

from inference_recommender.capacity.search import Probe, Search, Seen
from inference_recommender.cold_start import first_answer, own_endpoint
from inference_recommender.cold_start.stages import cold_start
from inference_recommender.load_generator.requests import read_payloads
from inference_recommender.load_test.probe import GeneratorProbe
from inference_recommender.measurement import Measurement, OpenLoop, limit_of
from inference_recommender.progress import Progress, ProgressUpdate
from inference_recommender.run_folder import RunFolder
from inference_recommender.sizing.open_loop import open_loop
from inference_recommender.sizing.verdict import where_to_look
from workloads import LatencyObjective, ProjectError, Unavailable

SHORTEST_S, LONGEST_S = 60.0, 300.0
"""A search takes about as long as the users' traffic did, within these bounds."""
PAYLOADS, SEARCH = "payloads.tar.gz", "open-arrivals"

Sleep = Callable[[float], None]


class Account(own_endpoint.Account, first_answer.Account, Protocol):
    """The calls for an endpoint of a candidate's own, and for its start. Every method raises `AwsUnavailable`."""


def search_s(traffic_s: float) -> float:
    return min(max(traffic_s, SHORTEST_S), LONGEST_S)


def searched(
    measured: Measurement, probe: Probe, objective: LatencyObjective, longest_s: float, progress: Progress
) -> Measurement:
    """Returns the measurement with what a search found; as it is where users had no rate. `probe` asks all of its
    instances together.
    """
    start = where_to_look(measured, objective)
    if start is None:
        return measured
    began = time.monotonic()

    def told(rate_per_minute: float, duration_s: float) -> Seen:
        progress.update(
            ProgressUpdate(
                job_name=f"{measured.instance_type}, open arrivals",
                status="SEARCHING",
                elapsed_s=time.monotonic() - began,
                expected_s=longest_s,
            )
        )
        return probe(rate_per_minute, duration_s)

    begin, limit = start * measured.instance_count, limit_of(objective)
    search = Search(probe=told, limit=limit, start=begin, longest_s=longest_s)
    try:
        found = open_loop(search.run(), objective, measured.instance_count, search.complaint)
    except Unavailable as error:
        found = unknown(objective, str(error))
    return measured.model_copy(update={"open_loop": found})


def unknown(objective: LatencyObjective, why: str) -> OpenLoop:
    """Returns the outcome of a search that could not be made."""
    return OpenLoop(
        invocations_per_minute=None,
        percentile=objective.percentile,
        limit_ms=objective.model_latency_ms,
        reason=why.removesuffix("."),
    )


class OwnEndpoints:
    """Searches each candidate of a job on an endpoint that is made for it and deleted after it. How long that took to
    start is kept.
    """

    def __init__(self, account: Account, progress: Progress, machine: str, sleep: Sleep = time.sleep) -> None:
        """`machine` is what stands in for the instance types."""
        self._account = account
        self._progress = progress
        self._machine = machine
        self._sleep = sleep

    def __call__(self, measured: Measurement, run_folder: RunFolder) -> Measurement:
        """`run_folder` is the job's run, which tells the model and the objective, and keeps every probe."""
        objective = run_folder.workload().latency_objective
        if where_to_look(measured, objective) is None:
            return measured
        deployed = run_folder.jobs().deployed
        try:
            if deployed is not None and measured.endpoint_name == deployed.name:
                return self._searched(measured, deployed.name, run_folder)
            with own_endpoint.own_endpoint(self._account, _wanted(measured, run_folder), self._sleep) as name:
                started = self._started(measured, name, run_folder)
                return self._searched(started, name, run_folder)
        except ProjectError as error:
            if not isinstance(error, Unavailable):
                raise
            return measured.model_copy(update={"open_loop": unknown(objective, str(error))})

    def _searched(self, measured: Measurement, endpoint: str, run_folder: RunFolder) -> Measurement:
        """Raises `Unavailable`."""
        url = self._account.invocations_url(endpoint)
        if url is None:
            raise Unavailable(f"endpoint {endpoint} does not tell the address of its server")
        objective = run_folder.workload().latency_objective
        probe = GeneratorProbe(run_folder.path / PAYLOADS, run_folder.path / SEARCH / measured.endpoint_name, url=url)
        return searched(measured, probe, objective, search_s(run_folder.jobs().expected_s), self._progress)

    def _started(self, measured: Measurement, endpoint: str, run_folder: RunFolder) -> Measurement:
        """Returns the measurement with the stages of the endpoint's start, and asks it for the first time. Where the
        account does not tell them, the search goes on without.
        """
        objective, bodies = run_folder.workload().latency_objective, read_payloads(run_folder.path / PAYLOADS)
        try:
            start = first_answer.start_of(self._account, endpoint, bodies, objective.model_latency_ms, self._sleep)
        except Unavailable:
            return measured
        told = cold_start(
            [start],
            measured_on="local",
            machine=self._machine,
            instance_type=measured.instance_type,
            archive_sha256=run_folder.inputs().archive_sha256,
            measured_at=datetime.now(UTC),
        )
        return measured.model_copy(update={"cold_start": told})


def _wanted(measured: Measurement, run_folder: RunFolder) -> own_endpoint.Wanted:
    """Raises `Unavailable` where the job's model is none of an endpoint."""
    model = run_folder.request()["InputConfig"].get("ModelName")
    if model is None:
        raise Unavailable("a version in the model registry has no model to make an endpoint of")
    return own_endpoint.Wanted(
        model=model,
        variant={"InstanceType": measured.instance_type},
        environment=measured.environment,
        lives_s=LONGEST_S,
    )
