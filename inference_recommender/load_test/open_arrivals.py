"""Open arrivals, after closed-loop users told where to look: the search that decides what an instance bears.

Only where the server is ours to load: a load test's own, and on an account of this machine an endpoint for each
candidate, as the job's test had one. A search that comes to nothing leaves the estimate from the users' records to
decide, and says why; it never ends a run.
"""

import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

from aws_api.expiry import GRACE_S, expiry_tag
from inference_recommender.capacity.search import Probe, Search, Seen
from inference_recommender.load_test.probe import GeneratorProbe
from inference_recommender.measurement import Measurement, OpenLoop, limit_of
from inference_recommender.progress import Progress, ProgressUpdate
from inference_recommender.run_folder import RunFolder
from inference_recommender.sizing.open_loop import open_loop
from inference_recommender.sizing.verdict import where_to_look
from workloads import LatencyObjective, ProjectError, Unavailable

SHORTEST_S, LONGEST_S = 60.0, 300.0
"""A search takes about as long as the users' traffic did, within these bounds."""
POLL_S = 1.0
START_S = 600.0
"""An endpoint that is not in service by then is given up."""
PAYLOADS, SEARCH = "payloads.tar.gz", "open-arrivals"
VARIANT = "AllTraffic"

Sleep = Callable[[float], None]


class Account(Protocol):
    """The calls for an endpoint of a candidate's own. Every method raises `AwsUnavailable`."""

    def model(self, name: str) -> Mapping[str, Any]: ...

    def make_model(self, request: Mapping[str, Any]) -> None: ...

    def delete_model(self, name: str) -> None: ...

    def make_endpoint(self, config: Mapping[str, Any], endpoint: Mapping[str, Any]) -> None: ...

    def endpoint_status(self, name: str) -> tuple[str, str | None]: ...

    def delete_endpoint(self, name: str) -> None: ...

    def invocations_url(self, endpoint: str) -> str | None: ...


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
    """Searches each candidate of a job on an endpoint that is made for it and deleted after it."""

    def __init__(self, account: Account, progress: Progress, sleep: Sleep = time.sleep) -> None:
        self._account = account
        self._progress = progress
        self._sleep = sleep

    def __call__(self, measured: Measurement, run_folder: RunFolder) -> Measurement:
        """`run_folder` is the job's run, which tells the model and the objective, and keeps every probe."""
        objective = run_folder.workload().latency_objective
        if where_to_look(measured, objective) is None:
            return measured
        try:
            with self._endpoint(measured, run_folder) as url:
                folder = run_folder.path / SEARCH / measured.endpoint_name
                probe = GeneratorProbe(run_folder.path / PAYLOADS, folder, url=url)
                return searched(measured, probe, objective, search_s(run_folder.jobs().expected_s), self._progress)
        except ProjectError as error:
            if not isinstance(error, Unavailable):
                raise
            return measured.model_copy(update={"open_loop": unknown(objective, str(error))})

    @contextmanager
    def _endpoint(self, measured: Measurement, run_folder: RunFolder) -> Iterator[str]:
        """Yields the address of the candidate's server. Raises `Unavailable`."""
        jobs = run_folder.jobs()
        if jobs.deployed is not None and measured.endpoint_name == jobs.deployed.name:
            yield self._address(jobs.deployed.name)
            return
        model = run_folder.request()["InputConfig"].get("ModelName")
        if model is None:
            raise Unavailable("a version in the model registry has no model to make an endpoint of")
        name = f"open-{uuid.uuid4().hex[:12]}"
        try:
            self._make(name, model, measured)
            self._wait(name)
            yield self._address(name)
        finally:
            self._account.delete_endpoint(name)
            if measured.environment:
                self._account.delete_model(name)

    def _make(self, name: str, model: str, measured: Measurement) -> None:
        tags = [expiry_tag(datetime.now(UTC) + timedelta(seconds=START_S + LONGEST_S + GRACE_S))]
        if measured.environment:
            self._account.make_model(_with_environment(self._account.model(model), name, measured.environment, tags))
        variant = {
            "VariantName": VARIANT,
            "ModelName": name if measured.environment else model,
            "InstanceType": measured.instance_type,
            "InitialInstanceCount": 1,
        }
        self._account.make_endpoint(
            {"EndpointConfigName": name, "ProductionVariants": [variant], "Tags": tags},
            {"EndpointName": name, "EndpointConfigName": name, "Tags": tags},
        )

    def _wait(self, name: str) -> None:
        waited_s = 0.0
        while waited_s < START_S:
            status, reason = self._account.endpoint_status(name)
            if status == "InService":
                return
            if status != "Creating":
                raise Unavailable(f"endpoint {name} is {status}: {reason or 'the service gave no reason'}")
            self._sleep(POLL_S)
            waited_s += POLL_S
        raise Unavailable(f"endpoint {name} was not in service after {START_S:.0f} s")

    def _address(self, endpoint: str) -> str:
        url = self._account.invocations_url(endpoint)
        if url is None:
            raise Unavailable(f"endpoint {endpoint} does not tell the address of its server")
        return url


def _with_environment(
    model: Mapping[str, Any], name: str, environment: Mapping[str, str], tags: list[dict[str, str]]
) -> dict[str, Any]:
    """Returns the request of CreateModel for the same model with a candidate's environment, as a job makes one."""
    container = model["PrimaryContainer"]
    return {
        "ModelName": name,
        "ExecutionRoleArn": model["ExecutionRoleArn"],
        "PrimaryContainer": {**container, "Environment": {**container.get("Environment", {}), **environment}},
        "Tags": tags,
    }
