"""Open-loop searches: of a system without a test, after a load test, and of a job's candidates on temporary endpoints.

A search after a test that has no result leaves the estimate to decide and keeps the reason. It never ends a run.
"""

import time
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from aws_api.sagemaker import SageMakerAccount
from aws_api.temporary_endpoint import EndpointSpec, Sleep, temporary_endpoint
from inference_recommender.capacity.probe import Capacity, ProbeRecords
from inference_recommender.capacity.search import Reason, Search, SendProbe
from inference_recommender.kserve import Body
from inference_recommender.load_generator.requests import read_payloads
from inference_recommender.load_generator.time_stamps import fitted
from inference_recommender.measure.load_test import provenance
from inference_recommender.measure.probe import arrivals_to_send, probe_of
from inference_recommender.measure.start_stages import cold_start, start_of
from inference_recommender.measure.system import SystemUnderTest, system_of_endpoint
from inference_recommender.measurement import Measurement, limit_of
from inference_recommender.payloads import header_size
from inference_recommender.progress import Progress
from inference_recommender.run_folder import PAYLOADS, RunFolder
from inference_recommender.sizing.verdict import initial_rate
from workloads import POISSON, ArrivalProcess, Interrupted, LatencyObjective, Provenance, Unavailable

SHORTEST_S, LONGEST_S = 60.0, 300.0
"""A search after a test takes about as long as the test's traffic, within these bounds."""
SEARCH = "open-arrivals"
"""The folder of the probes below the run's."""
OPEN_LOOP = "open-loop"
"""The traffic of a recommendation from a search without a test; no profile has this name."""
DURATION_S = 270.0
"""Default time of all probes of a search without a test."""


@dataclass(frozen=True, kw_only=True, slots=True)
class OpenLoopSearch:
    """A `Source`: the highest rate of arrivals within the limit, searched without a test before it."""

    system: SystemUnderTest
    longest_s: float = DURATION_S

    def begin(self, run_folder: RunFolder) -> None:
        """Keeps a request without traffic, for the report."""
        run_folder.keep("request.json", {"InputConfig": {}})

    def measure(self, run_folder: RunFolder, progress: Progress) -> tuple[Measurement, ...]:
        """Raises `NoVerdict` if too little is known, or `Unavailable`."""
        objective = run_folder.workload().latency_objective
        probe = probe_of(self.system, run_folder, run_folder.path / SEARCH, progress.say)
        probe = with_progress(probe, self.system.name, self.longest_s, progress)
        arrivals = fitted(arrivals_to_send(run_folder.workload()), objective.peak_invocations_per_minute)
        search = Search(send=probe, limit=limit_of(objective), longest_s=self.longest_s, arrivals=arrivals)
        try:
            result = search.run()
        except KeyboardInterrupt:
            self._keep(search.result(Reason.INTERRUPTED), search, run_folder)
            raise Interrupted(f"Interrupted: the search was stopped. Measurements: {run_folder}.") from None
        measured = self._keep(result, search, run_folder)
        if not result.decides or search.reason is Reason.BOTTLENECK:
            raise run_folder.no_verdict(why_none(result, search))
        return (measured,)

    def provenance(self, run_folder: RunFolder) -> Provenance:
        return provenance(self.system, self.system.machine, run_folder)

    def _keep(self, found: Capacity, search: Search, run_folder: RunFolder) -> Measurement:
        measured = Measurement(
            instance_type=self.system.instance_type,
            endpoint_name=self.system.name,
            open_loop=found.per_instance(self.system.instances),
            warm_up_s=search.warm_up_s,
            failure_reason=None if found.decides else f"No capacity was found: {found.reason}.",
            instance_count=self.system.instances,
        )
        run_folder.keep_measurements((measured,))
        return measured


def search_system(
    system: SystemUnderTest,
    traffic_s: float,
    measured: Measurement,
    run_folder: RunFolder,
    progress: Progress,
    folder: str = "",
) -> Measurement:
    """Searches the system of a test with `traffic_s` seconds of traffic. `folder` of the probes is below the run's."""
    workload, longest_s = run_folder.workload(), min(max(traffic_s, SHORTEST_S), LONGEST_S)
    probe = probe_of(system, run_folder, run_folder.path / SEARCH / folder, progress.say)
    return searched(measured, probe, workload.latency_objective, longest_s, progress, arrivals_to_send(workload))


@dataclass(frozen=True, kw_only=True, slots=True)
class CandidateSearch:
    """Searches a job's candidate on an endpoint that exists only for the search, and measures its cold start."""

    account: SageMakerAccount
    sleep: Sleep = time.sleep

    def __call__(self, measured: Measurement, run_folder: RunFolder, progress: Progress) -> Measurement:
        jobs, folder = run_folder.jobs(), measured.endpoint_name
        try:
            if jobs.existing_endpoint is not None and folder == jobs.existing_endpoint["EndpointName"]:
                return search_system(self._system(folder), jobs.expected_s, measured, run_folder, progress, folder)
            spec = self._endpoint_spec(measured, run_folder.request()["InputConfig"])
            with temporary_endpoint(self.account, spec, progress.say, self.sleep) as name:
                system = self._system(name)
                started = self._started(measured, system, run_folder)
                return search_system(system, jobs.expected_s, started, run_folder, progress, folder)
        except Unavailable as error:
            found = unknown(run_folder.workload().latency_objective, str(error))
            return measured.model_copy(update={"open_loop": found})

    def _endpoint_spec(self, measured: Measurement, config: dict[str, Any]) -> EndpointSpec:
        """Returns an endpoint with the model of the job, or a copy with the environment of the test. Raises
        `Unavailable` if the job tested a model package.
        """
        if "ModelName" not in config:
            raise Unavailable("an endpoint cannot be created from a model package")
        variant = {"InstanceType": measured.instance_type}
        spec = EndpointSpec(model=config["ModelName"], variant=variant, lifetime_s=LONGEST_S)
        if not measured.environment:
            return spec
        copied = self.account.model(config["ModelName"])
        container = copied["PrimaryContainer"]
        environment = {**container.get("Environment", {}), **measured.environment}
        container = {**container, "Environment": environment}
        return replace(spec, model=None, container=container, role_arn=copied["ExecutionRoleArn"])

    def _system(self, endpoint: str) -> SystemUnderTest:
        return system_of_endpoint(self.account.endpoint_description(endpoint), self.account.region)

    def _started(self, measured: Measurement, system: SystemUnderTest, run_folder: RunFolder) -> Measurement:
        """Adds the stages of the endpoint's start, if the account reports them."""
        workload, contents = run_folder.workload(), read_payloads(run_folder.path / PAYLOADS)
        objective = workload.latency_objective
        size = header_size(workload.model.fields, objective)
        bodies = [Body(content=each, header_size=size) for each in contents]
        try:
            start = start_of(self.account, system, bodies, objective.model_latency_ms, self.sleep)
        except Unavailable:
            return measured
        stages = cold_start([start], system, run_folder.inputs().archive_sha256, datetime.now(UTC))
        return measured.model_copy(update={"cold_start": stages})


def with_progress(probe: SendProbe, name: str, expected_s: float, progress: Progress) -> SendProbe:
    """Returns the same probe, which also updates the progress."""
    report = progress.timed(name, expected_s)

    def reporting(rate_per_minute: float, duration_s: float) -> ProbeRecords:
        report("SEARCHING")
        return probe(rate_per_minute, duration_s)

    return reporting


def searched(
    measured: Measurement,
    probe: SendProbe,
    objective: LatencyObjective,
    longest_s: float,
    progress: Progress,
    arrivals: ArrivalProcess = POISSON,
) -> Measurement:
    """Returns the measurement with the search's result; unchanged if the closed-loop test had no rate. `probe` sends
    `arrivals` to all of its instances together.
    """
    start = initial_rate(measured, objective)
    if start is None:
        return measured
    reporting = with_progress(probe, f"{measured.instance_type}, open-loop search", longest_s, progress)
    begin = start * measured.instance_count
    process = fitted(arrivals, begin)
    search = Search(send=reporting, limit=limit_of(objective), start=begin, longest_s=longest_s, arrivals=process)
    try:
        found = search.run().per_instance(measured.instance_count)
    except Unavailable as error:
        found = unknown(objective, str(error))
    return measured.model_copy(update={"open_loop": found})


def unknown(objective: LatencyObjective, reason: str) -> Capacity:
    """Returns the result of a search that was not possible."""
    return Capacity(
        invocations_per_minute=None,
        percentile=objective.percentile,
        limit_ms=objective.model_latency_ms,
        reason=reason.removesuffix("."),
    )


def why_none(found: Capacity, search: Search) -> str:
    """Returns why there is no capacity, and what to do."""
    if search.reason is Reason.BOTTLENECK:
        return f"{search.complaint}. Run the generator on another machine than the server, or on one with more cores."
    if search.reason is Reason.NEVER_SETTLED:
        return f"the latency had not settled after {search.spent_s:.0f} s at {search.start:,.0f} invocations/min."
    if search.reason is not Reason.TIME:
        return f"{found.reason}."
    low, high = found.interval or (found.at_least or 0.0, float("inf"))
    ends = [f"above {low:,.0f}"] * bool(low) + [f"below {high:,.0f}"] * (high < float("inf"))
    so_far = f"{' and '.join(ends)} invocations/min (95 % interval)" if ends else "unknown"
    spent = f"after {search.spent_s:.0f} s of probes the capacity is {so_far}"
    return f"too few samples: {spent}. Search longer: --max-duration-s."
