"""The folder that `simulate` writes below runs/: what `--json` prints and `report` renders.

simulation.json   a `Simulation`: figures of each policy, and the judged policy's course over the worst day
workload.json     the workload
trace.csv         the traffic, if it came from CloudWatch
"""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from itertools import count
from pathlib import Path

import numpy as np

from inference_recommender.run_folder import RunFolder
from inference_recommender.simulate.curve import LatencyCurve
from inference_recommender.simulate.policy import Policy, Timing, TrafficLoad
from inference_recommender.simulate.policy_search import PolicySearchResult
from inference_recommender.simulate.seeds import PolicyResult, SimulationCase, Tolerance
from inference_recommender.simulate.simulation import minutes_over
from inference_recommender.simulate.sized_service import SizedService
from workloads import Provenance, Workload
from workloads.document import Document

SIMULATION, TRACE = "simulation.json", "trace.csv"
DAY_MINUTES = 24 * 60
FRONTIER = 12
"""Most policies of the frontier that are stored. A longer frontier is thinned evenly; both ends are kept."""
ON_FRONTIER = "frontier"
"""Begins the names of its policies, which are numbered, the cheapest first."""
RECOMMENDED, FIXED = "recommended", "fixed fleet"
"""The names of the recommended policy and of the fixed fleet."""


class SimulatedPolicy(Document):
    """A policy and its figures, means over seeds."""

    name: str
    policy: Policy
    seeds: int
    minutes_over_objective: float
    minutes_over_at_confidence: float
    seeds_over_tolerance: int
    is_within_tolerance: bool
    requests: float
    late_share: float
    dropped: float
    instance_hours: float
    cost_usd: float | None
    lower_bound_instance_hours: float
    most_instances: int

    @property
    def on_frontier(self) -> bool:
        return self.name.startswith(ON_FRONTIER)


class TraceSummary(Document):
    name: str
    sha256: str
    start: str
    minutes: int
    mean_invocations_per_minute: float
    peak_invocations_per_minute: float


class WorstDay(Document):
    """The judged policy on the day with the most minutes over the objective, then the most late requests, of the worst
    seed: instances in each minute.
    """

    seed: int
    start: str
    serving: tuple[int, ...]
    desired: tuple[int, ...]
    fewest: tuple[int, ...]
    """Those that meet the objective."""


class SearchSummary(Document):
    """The result of `--optimise`."""

    tried: int
    """The number of policies."""
    confirmed_on_seeds: int
    """0: no policy was confirmed, or the recommended one stays."""
    failed_seeds: int


class Simulation(Document):
    """The content of simulation.json. The first policy is judged."""

    made_at: str
    safe: bool
    """Whether the judged policy may be deployed."""
    workload: str
    trace: TraceSummary
    seeds: int
    first_seed: int
    tolerance: Tolerance
    curve: LatencyCurve
    timing: Timing
    instance_type: str
    provenance: Provenance | None
    """None if --from names a measurement."""
    archive_sha256: str | None
    price_per_hour_usd: float | None
    cost_reason: str | None
    minutes_extrapolated: float
    """Minutes with a load above all measured rates, the mean over seeds."""
    highest_invocations_per_minute: float
    """The highest load of an instance in any seed."""
    cautions: tuple[str, ...]
    day: WorstDay
    policies: tuple[SimulatedPolicy, ...]
    search: SearchSummary | None = None

    @property
    def judged(self) -> SimulatedPolicy:
        return self.policies[0]

    @property
    def recommended(self) -> SimulatedPolicy:
        return next(each for each in self.policies if each.name == RECOMMENDED)

    @property
    def allowed_minutes(self) -> float:
        """The tolerated minutes of the whole trace."""
        return self.tolerance.allowed(self.trace.minutes)

    def by_cost(self) -> tuple[SimulatedPolicy, ...]:
        """Returns the policies, the one with the fewest instance hours first."""
        return tuple(sorted(self.policies, key=lambda each: (each.instance_hours, -each.minutes_over_objective)))


def simulation_of(
    case: SimulationCase,
    service: SizedService,
    workload: Workload,
    results: Mapping[str, PolicyResult],
    now: datetime,
    search: PolicySearchResult | None = None,
) -> Simulation:
    """Returns the document of results by name. The first result is judged."""
    judged = next(iter(results.values()))
    first, worst = judged.outcomes[0].seed, judged.worst.seed
    load, origin, price = case.traffic.load(first), service.recommendation, service.price_per_hour_usd
    summary = None
    if search:
        confirmed = len(search.held_out or ())
        summary = SearchSummary(tried=len(search.tried), confirmed_on_seeds=confirmed, failed_seeds=search.failed)
    return Simulation(
        made_at=now.isoformat(timespec="seconds"),
        safe=search.safe if search else judged.is_within_tolerance,
        workload=workload.name,
        trace=TraceSummary(
            name=case.traffic.name,
            sha256=case.traffic.sha256,
            start=load.start.isoformat(),
            minutes=case.minutes,
            mean_invocations_per_minute=round(load.mean_per_minute, 3),
            peak_invocations_per_minute=round(load.peak_per_minute, 3),
        ),
        seeds=len(judged.outcomes),
        first_seed=first,
        tolerance=case.tolerance,
        curve=case.curve,
        timing=case.timing,
        instance_type=service.candidate.instance_type,
        provenance=origin.provenance if origin else None,
        archive_sha256=origin.archive_sha256 if origin else None,
        price_per_hour_usd=price,
        cost_reason=service.candidate.cost_reason,
        minutes_extrapolated=judged.mean("minutes_extrapolated"),
        highest_invocations_per_minute=max(each.highest_rate for each in judged.outcomes) * 60,
        cautions=service.cautions,
        day=_worst_day(case, judged.policy, worst),
        policies=tuple(_simulated(name, result, price) for name, result in results.items()),
        search=summary,
    )


def _worst_day(case: SimulationCase, policy: Policy, seed: int) -> WorstDay:
    course, start = case.run(policy, seed).course(), case.traffic.load(seed).start
    over, late = minutes_over(course, case.curve.allowed), course["late_share"] * course["arrivals"]
    days = range(0, case.minutes, DAY_MINUTES)
    first = max(days, key=lambda day: (over[day : day + DAY_MINUTES].sum(), late[day : day + DAY_MINUTES].sum()))
    columns = {name: course[name][first : first + DAY_MINUTES] for name in ("serving", "desired", "fewest")}
    return WorstDay(
        seed=seed,
        start=(start + timedelta(minutes=first)).isoformat(),
        **{name: tuple(map(int, values)) for name, values in columns.items()},
    )


def _simulated(name: str, result: PolicyResult, price: float | None) -> SimulatedPolicy:
    return SimulatedPolicy(
        name=name,
        policy=result.policy,
        seeds=len(result.outcomes),
        minutes_over_objective=result.minutes_over,
        minutes_over_at_confidence=result.minutes_over_at_confidence,
        seeds_over_tolerance=result.exceeding(),
        is_within_tolerance=result.is_within_tolerance,
        requests=result.mean("requests"),
        late_share=result.late_share,
        dropped=result.mean("dropped"),
        instance_hours=result.instance_hours,
        cost_usd=None if price is None else result.instance_hours * price,
        lower_bound_instance_hours=result.mean("lower_bound_hours"),
        most_instances=max(each.most_instances for each in result.outcomes),
    )


def frontier_results(frontier: Sequence[PolicyResult], others: Mapping[str, PolicyResult]) -> dict[str, PolicyResult]:
    """Returns at most `FRONTIER` policies of a frontier by name, without those that are among the others."""
    taken = {each.policy for each in others.values()}
    free = [each for each in frontier if each.policy not in taken]
    if len(free) > FRONTIER:
        free = [free[round(place)] for place in np.linspace(0, len(free) - 1, FRONTIER)]
    return {f"{ON_FRONTIER} {number}": each for number, each in enumerate(free, start=1)}


def write_folder(runs: Path, simulation: Simulation, workload: Workload, load: TrafficLoad | None) -> RunFolder:
    """Writes a new folder below `runs`, simulation.json last. `load` is traffic to keep."""
    stamp = datetime.fromisoformat(simulation.made_at).strftime("%Y%m%d-%H%M%S")
    name = f"{workload.name}-simulation-{stamp}".replace("_", "-")
    paths = (runs / (f"{name}-{number}" if number > 1 else name) for number in count(1))
    folder = RunFolder(next(path for path in paths if not path.exists()))
    folder.keep_workload(workload)
    if load is not None:
        folder.keep_text(TRACE, trace_csv(load))
    simulation.write_json(folder.path / SIMULATION)
    return folder


def trace_csv(load: TrafficLoad) -> str:
    """Returns the traffic in the format of `--trace`."""
    times = (load.start + timedelta(minutes=number) for number in range(len(load.rates)))
    lines = (f"{at.isoformat()},{rate:.6g}" for at, rate in zip(times, load.rates.tolist(), strict=True))
    return "\n".join(("time,requests_per_second", *lines)) + "\n"
