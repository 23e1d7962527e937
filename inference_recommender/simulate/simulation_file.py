"""The folder that `simulate` writes below runs/: what `--json` prints and `report` renders.

    simulation.json   a `Simulation`: figures of each policy, and its course over the worst day
    outcomes.csv      a line for each policy and seed
    workload.json     the workload
    trace.csv         the traffic, if it came from CloudWatch

The worst day is that of the judged policy's worst seed. The other policies are simulated with that seed too, so that
they compare: equal arrivals and equal capacity. A longer trace has several days; the worst has the most minutes over
the objective, then the most late requests. A course has at most `POINTS` entries: means of load and instances, and the
worst late share and latency.
"""

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import count
from pathlib import Path

import numpy as np

from inference_recommender.capacity.statistics import Floats
from inference_recommender.run_folder import RunFolder
from inference_recommender.simulate.curve import LatencyCurve
from inference_recommender.simulate.policy import Policy, Timing, TrafficLoad
from inference_recommender.simulate.policy_result import PolicyResult, Tolerance, mean
from inference_recommender.simulate.policy_search import PolicySearchResult
from inference_recommender.simulate.seeds import SimulationCase
from inference_recommender.simulate.simulation import columns_of, minutes_over
from inference_recommender.simulate.sized_service import SizedService
from inference_recommender.simulate.tracking import MINUTE_S
from workloads import Provenance, Workload
from workloads.document import Document

SIMULATION, OUTCOMES, TRACE = "simulation.json", "outcomes.csv", "trace.csv"
DAY_MINUTES = 24 * 60
POINTS = 480
"""Three minutes each of a day: about a pixel and a half of a plot."""
FRONTIER = 12
"""Most policies of the frontier that are stored. A longer frontier is thinned evenly; both ends are kept."""
ON_FRONTIER = "frontier"
"""Begins the names of its policies, which are numbered, the cheapest first."""
RECOMMENDED, FIXED = "recommended", "fixed fleet"
"""The names of the recommended policy and of the fixed fleet."""
FIGURES = (
    "seed",
    "minutes_over_objective",
    "requests",
    "late",
    "dropped",
    "instance_hours",
    "lower_bound_hours",
    "most_instances",
)
"""Columns of outcomes.csv."""


class PolicyDay(Document):
    """The course of a policy over the worst day, one entry per few minutes."""

    attempts_per_second: tuple[float, ...]
    instances_serving: tuple[float, ...]
    instances_paid: tuple[float, ...]
    instances_desired: tuple[float, ...]
    late_shares: tuple[float, ...]
    latency_ms: tuple[float | None, ...]


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
    day: PolicyDay

    @property
    def on_frontier(self) -> bool:
        return self.name.startswith(ON_FRONTIER)


class TraceSummary(Document):
    name: str
    sha256: str
    start: str
    minutes: float
    mean_invocations_per_minute: float
    peak_invocations_per_minute: float


class SimulatedSubject(Document):
    """The simulated configuration. `provenance` is None if --from names a measurement."""

    instance_type: str
    variant: str | None
    provenance: Provenance | None
    archive_sha256: str | None
    price_per_hour_usd: float | None
    cost_reason: str | None


class WorstDay(Document):
    """The traffic of the worst day."""

    seed: int
    start: str
    minutes: float
    minutes_per_entry: float
    requests_per_second: tuple[float, ...]
    lower_bound_instances: tuple[float, ...]


class Extrapolation(Document):
    """Load above all measured rates."""

    minutes: float
    highest_invocations_per_minute_and_instance: float


class SearchSummary(Document):
    """The result of `--optimise`."""

    points: tuple[tuple[float, float], ...]
    """Instance hours and minutes over the objective of every policy that was tried, on the search's seeds."""
    confirmed_on_seeds: int
    """0: no policy was confirmed, or the recommended one stays."""
    failed_seeds: int


class Simulation(Document):
    """The content of simulation.json. The first policy is judged."""

    made_at: str
    complete: bool
    """False: interrupted."""
    safe: bool
    """Whether the judged policy may be deployed."""
    workload: str
    trace: TraceSummary
    seeds: int
    first_seed: int
    tolerance: Tolerance
    curve: LatencyCurve
    timing: Timing
    subject: SimulatedSubject
    extrapolation: Extrapolation | None
    caution: str | None
    day: WorstDay
    policies: tuple[SimulatedPolicy, ...]
    search: SearchSummary | None = None

    @property
    def judged(self) -> SimulatedPolicy:
        return self.policies[0]

    @property
    def recommended(self) -> SimulatedPolicy | None:
        """The recommended policy; None if the simulation was interrupted before it."""
        return next((each for each in self.policies if each.name == RECOMMENDED), None)

    @property
    def allowed_minutes(self) -> float:
        """The tolerated minutes of the whole trace."""
        return self.tolerance.allowed(self.trace.minutes)

    def by_cost(self) -> tuple[SimulatedPolicy, ...]:
        """Returns the policies, the one with the fewest instance hours first."""
        return tuple(sorted(self.policies, key=lambda each: (each.instance_hours, -each.minutes_over_objective)))


@dataclass(frozen=True, kw_only=True, slots=True)
class NamedResult:
    """The result of a policy and the name of its role."""

    name: str
    result: PolicyResult


def simulation_of(
    case: SimulationCase,
    service: SizedService,
    workload: Workload,
    named: Sequence[NamedResult],
    now: datetime,
    *,
    complete: bool = True,
    search: PolicySearchResult | None = None,
) -> Simulation:
    """Returns the document. The first result is judged."""
    judged = named[0].result
    load, first = case.traffic.load(judged.outcomes[0].seed), judged.outcomes[0].seed
    course = judged.course(case, judged.worst.seed)
    day = worst_day(course, judged.policy.step_s, case.curve.allowed)
    origin = service.recommendation
    return Simulation(
        made_at=now.isoformat(timespec="seconds"),
        complete=complete,
        safe=complete and (judged.is_within_tolerance if search is None else search.safe),
        workload=workload.name,
        trace=TraceSummary(
            name=case.traffic.name,
            sha256=case.traffic.sha256,
            start=load.start.isoformat(),
            minutes=judged.minutes,
            mean_invocations_per_minute=round(load.mean_per_minute, 3),
            peak_invocations_per_minute=round(load.peak_per_minute, 3),
        ),
        seeds=len(judged.outcomes),
        first_seed=first,
        tolerance=judged.tolerance,
        curve=case.curve,
        timing=case.timing,
        subject=SimulatedSubject(
            instance_type=service.candidate.instance_type,
            variant=service.candidate.variant,
            provenance=origin.provenance if origin else None,
            archive_sha256=origin.archive_sha256 if origin else None,
            price_per_hour_usd=judged.price_per_hour_usd,
            cost_reason=service.candidate.cost_reason,
        ),
        extrapolation=_extrapolation(judged),
        caution=service.caution,
        day=_day(case, judged, course, day),
        policies=tuple(_simulated(case, each, judged, day) for each in named),
        search=None if search is None else _search_summary(search),
    )


def _search_summary(search: PolicySearchResult) -> SearchSummary:
    return SearchSummary(
        points=tuple((each.instance_hours, each.minutes_over) for each in search.tried),
        confirmed_on_seeds=len(search.held_out or ()),
        failed_seeds=search.failed,
    )


def worst_day(course: Mapping[str, Floats], step_s: int, allowed: float) -> slice:
    """Returns the steps of the day with the most minutes over the objective, then the most late requests."""
    steps, length = DAY_MINUTES * MINUTE_S // step_s, len(course["arrivals"])

    def badness(first: int) -> tuple[float, float]:
        day = {name: values[first : first + steps] for name, values in course.items()}
        minutes = minutes_over(day["late_share"], day["attempts"], step_s, allowed)
        return minutes, float((day["late_share"] * day["arrivals"]).sum())

    first = max(range(0, length, steps), key=badness)
    return slice(first, first + steps)


def _day(case: SimulationCase, judged: PolicyResult, course: Mapping[str, Floats], day: slice) -> WorstDay:
    columns, step_s, seed = _thinned(course, day), judged.policy.step_s, judged.worst.seed
    start = case.traffic.load(seed).start + timedelta(seconds=day.start * step_s)
    minutes = len(course["arrivals"][day]) * step_s / MINUTE_S
    return WorstDay(
        seed=seed,
        start=start.isoformat(),
        minutes=minutes,
        minutes_per_entry=minutes / len(columns["arrivals"]),
        requests_per_second=_rounded(columns["arrivals"] / step_s),
        lower_bound_instances=_rounded(columns["fewest"]),
    )


def _simulated(case: SimulationCase, named: NamedResult, judged: PolicyResult, day: slice) -> SimulatedPolicy:
    result = named.result
    return SimulatedPolicy(
        name=named.name,
        policy=result.policy,
        seeds=len(result.outcomes),
        minutes_over_objective=result.minutes_over,
        minutes_over_at_confidence=result.minutes_over_at_confidence,
        seeds_over_tolerance=result.exceeding,
        is_within_tolerance=result.is_within_tolerance,
        requests=mean([each.requests for each in result.outcomes]),
        late_share=result.late_share,
        dropped=mean([each.dropped for each in result.outcomes]),
        instance_hours=result.instance_hours,
        cost_usd=result.usd(result.instance_hours),
        lower_bound_instance_hours=result.lower_bound_hours,
        most_instances=max(each.most_instances for each in result.outcomes),
        day=policy_day(result.course(case, judged.worst.seed), day, result.policy.step_s),
    )


def policy_day(course: Mapping[str, Floats], day: slice, step_s: int) -> PolicyDay:
    """Returns the course of a policy over some steps."""
    columns = _thinned(course, day)
    return PolicyDay(
        attempts_per_second=_rounded(columns["attempts"] / step_s),
        instances_serving=_rounded(columns["serving"]),
        instances_paid=_rounded(columns["paid"]),
        instances_desired=_rounded(columns["desired"]),
        late_shares=tuple(float(f"{share:.3g}") for share in columns["late_share"]),
        latency_ms=tuple(float(f"{1000 * each:.4g}") if np.isfinite(each) else None for each in columns["latency_s"]),
    )


def _thinned(course: Mapping[str, Floats], day: slice) -> dict[str, Floats]:
    return columns_of({name: values[day] for name, values in course.items()}, POINTS)


def _extrapolation(judged: PolicyResult) -> Extrapolation | None:
    above = [each for each in judged.outcomes if each.minutes_extrapolated]
    if not above:
        return None
    return Extrapolation(
        minutes=mean([each.minutes_extrapolated for each in judged.outcomes]),
        highest_invocations_per_minute_and_instance=max(each.highest_rate for each in above) * 60,
    )


def frontier_results(frontier: Sequence[PolicyResult], others: Sequence[NamedResult]) -> list[NamedResult]:
    """Returns at most `FRONTIER` policies of a frontier, without those that are among the others."""
    taken = {each.result.policy for each in others}
    free = [each for each in frontier if each.policy not in taken]
    if len(free) > FRONTIER:
        free = [free[round(place)] for place in np.linspace(0, len(free) - 1, FRONTIER)]
    return [NamedResult(name=f"{ON_FRONTIER} {number}", result=each) for number, each in enumerate(free, start=1)]


def write_folder(
    runs: Path, simulation: Simulation, workload: Workload, named: Sequence[NamedResult], load: TrafficLoad | None
) -> RunFolder:
    """Writes a new folder below `runs`, simulation.json last. `load` is traffic to keep."""
    stamp = datetime.fromisoformat(simulation.made_at).strftime("%Y%m%d-%H%M%S")
    name = f"{workload.name}-simulation-{stamp}".replace("_", "-")
    paths = (runs / (f"{name}-{number}" if number > 1 else name) for number in count(1))
    folder = RunFolder(next(path for path in paths if not path.exists()))
    folder.keep_workload(workload)
    folder.keep_text(OUTCOMES, outcomes_csv(named))
    if load is not None:
        folder.keep_text(TRACE, trace_csv(load))
    simulation.write_json(folder.path / SIMULATION)
    return folder


def trace_csv(load: TrafficLoad) -> str:
    """Returns the traffic in the format of `--trace`."""
    times = (load.start + timedelta(seconds=number * load.step_s) for number in range(len(load.rates)))
    lines = (f"{at.isoformat()},{rate:.6g}" for at, rate in zip(times, load.rates.tolist(), strict=True))
    return "\n".join(("time,requests_per_second", *lines)) + "\n"


def outcomes_csv(named: Sequence[NamedResult]) -> str:
    """Returns a line for each policy and seed, below a heading."""
    text = io.StringIO()
    lines = csv.writer(text, lineterminator="\n")
    lines.writerow(("policy", *FIGURES))
    for each in named:
        policy = f"{each.name}: {each.result.policy.text}"
        lines.writerows([policy, *(getattr(one, name) for name in FIGURES)] for one in each.result.outcomes)
    return text.getvalue()


def _rounded(values: Floats) -> tuple[float, ...]:
    return tuple(round(float(value), 2) for value in values)
