"""The folder that `simulate` leaves below runs/: what it found, for `report` and for people. Pure, but for the writing.

    simulation.json   the document of --json, and of each policy that was compared or is on the search's frontier the
                      figures and its course over the worst day; `Simulation` are its members that are read
    outcomes.csv      a line for each policy and seed
    workload.json     the workload as it was
    trace.csv         the traffic, where CloudWatch had it: it forgets

The worst day is that of the judged policy's worst seed; the other policies have the same seed there, so that they
compare: the same arrivals, the same capacity within its interval. A trace of more than a day has many days, counted
from its first step; the worst is the one with the most minutes over the objective, then with the most late requests.
A course has `POINTS` entries at most: means of load and instances, and the worst late share and latency.
"""

import csv
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import BaseModel, ValidationError

from inference_recommender.capacity.statistics import Floats
from inference_recommender.run_folder import RunFolder
from inference_recommender.simulate.evidence import Service
from inference_recommender.simulate.policy import MINUTE_S, Load, Policy
from inference_recommender.simulate.result import Result, rounded
from inference_recommender.simulate.seeds import Case
from inference_recommender.simulate.simulation import columns_of, minutes_over
from inference_recommender.simulate.terminal import policy_in_words
from workloads import Workload
from workloads.errors import InvalidDocument

SIMULATION, OUTCOMES, TRACE = "simulation.json", "outcomes.csv", "trace.csv"
DAY_MINUTES = 24 * 60
POINTS = 480
"""Three minutes each of a day: about a pixel and a half of a plot."""
FRONTIER = 12
"""Most policies of the frontier that have a course. A longer frontier is thinned evenly; both ends are kept."""
ON_FRONTIER = "frontier"
"""Begins the names of its policies, which are numbered, the cheapest first."""
RECOMMENDED, FIXED = "as recommended now", "fixed fleet"
"""The names of the recommended policy and of the fleet that is compared with it."""
LATE_DIGITS = 3


@dataclass(frozen=True, kw_only=True, slots=True)
class Named:
    """A policy that was simulated, and what it is to the reader."""

    name: str
    """Such as `RECOMMENDED`; the first of several is the judged one."""
    result: Result


def kept(base: Mapping[str, Any], case: Case, service: Service, named: Sequence[Named], **facts: Any) -> dict[str, Any]:
    """Returns the content of simulation.json. `base` is the document of --json, and `facts` are further members."""
    judged = named[0].result
    day = WorstDay.of(case, judged)
    return {
        **base,
        **facts,
        "judged": named[0].name,
        "minutes_over_at_confidence": judged.minutes_over_at_confidence,
        "service": _service(service),
        "caution": service.caution,
        "day": day.document(),
        "policies": [
            {
                "name": each.name,
                "in_words": policy_in_words(each.result.policy),
                "seeds": len(each.result.outcomes),
                "first_seed": each.result.outcomes[0].seed,
                "minutes_over_at_confidence": each.result.minutes_over_at_confidence,
                **each.result.summary(),
                "day": day.under(each.result),
            }
            for each in named
        ],
    }


def on_frontier(frontier: Sequence[Result], others: Sequence[Named]) -> list[Named]:
    """Returns at most `FRONTIER` policies of a frontier, without those that are among the others."""
    taken = {each.result.policy for each in others}
    free = [each for each in frontier if each.policy not in taken]
    if len(free) > FRONTIER:
        free = [free[round(place)] for place in np.linspace(0, len(free) - 1, FRONTIER)]
    return [Named(name=f"{ON_FRONTIER} {number}", result=each) for number, each in enumerate(free, start=1)]


@dataclass(frozen=True, kw_only=True, slots=True)
class WorstDay:
    """A day of one seed's traffic."""

    case: Case
    seed: int
    steps: slice
    judged: Policy
    course: Mapping[str, Floats]
    """That of the judged policy, an entry per step of the whole trace."""

    @classmethod
    def of(cls, case: Case, judged: Result) -> "WorstDay":
        seed, step_s = judged.worst.seed, judged.policy.step_s
        course = judged.course(case, seed)
        day, length = DAY_MINUTES * MINUTE_S // step_s, len(course["arrivals"])

        def bad(first: int) -> tuple[float, float]:
            of_day = {name: values[first : first + day] for name, values in course.items()}
            return (
                minutes_over(of_day["late_share"], of_day["attempts"], step_s, case.curve.allowed),
                float((of_day["late_share"] * of_day["arrivals"]).sum()),
            )

        first = max(range(0, length, day), key=bad)
        return cls(case=case, seed=seed, steps=slice(first, first + day), judged=judged.policy, course=course)

    def document(self) -> dict[str, Any]:
        """Returns what is the same under every policy."""
        columns, step_s = self._thinned(self.course), self.judged.step_s
        start = self.case.traffic.load(self.seed).start + timedelta(seconds=(self.steps.start or 0) * step_s)
        minutes = len(self.course["arrivals"][self.steps]) * step_s / MINUTE_S
        return {
            "seed": self.seed,
            "start": start.isoformat(),
            "minutes": minutes,
            "minutes_per_entry": minutes / len(columns["arrivals"]),
            "requests_per_second": rounded(columns["arrivals"] / step_s),
            "lower_bound_instances": rounded(columns["fewest"]),
        }

    def under(self, result: Result) -> dict[str, Any]:
        """Returns the day's figures and course under a policy."""
        policy = result.policy
        whole = self.course if policy == self.judged else result.course(self.case, self.seed)
        day = {name: values[self.steps] for name, values in whole.items()}
        arrivals, late = float(day["arrivals"].sum()), float((day["late_share"] * day["arrivals"]).sum())
        hours = float(day["paid"].sum()) * policy.step_s / 3600
        columns = self._thinned(whole)
        return {
            "minutes_over_objective": minutes_over(
                day["late_share"], day["attempts"], policy.step_s, self.case.curve.allowed
            ),
            "late_share": late / arrivals if arrivals else 0.0,
            "most_instances": int(day["paid"].max()),
            "instance_hours": hours,
            "cost_usd": result.usd(hours),
            "lower_bound_instance_hours": float(day["fewest"].sum()) * policy.step_s / 3600,
            "attempts_per_second": rounded(columns["attempts"] / policy.step_s),
            "instances_serving": rounded(columns["serving"]),
            "instances_paid": rounded(columns["paid"]),
            "instances_desired": rounded(columns["desired"]),
            "late_shares": [float(f"{share:.{LATE_DIGITS}g}") for share in columns["late_share"]],
            "latency_ms": [
                float(f"{latency * 1000:.{LATE_DIGITS + 1}g}") if np.isfinite(latency) else None
                for latency in columns["latency_s"]
            ],
        }

    def _thinned(self, course: Mapping[str, Floats]) -> dict[str, Floats]:
        return columns_of({name: values[self.steps] for name, values in course.items()}, POINTS)


def keep(
    runs: Path, now: datetime, content: Mapping[str, Any], workload: Workload, named: Sequence[Named], trace: str | None
) -> RunFolder:
    """Writes a new folder below `runs`; simulation.json comes last, so that a folder that has one is whole."""
    name = f"{workload.name}-simulation-{now.strftime('%Y%m%d-%H%M%S')}".replace("_", "-")
    paths = (runs / (f"{name}-{number}" if number > 1 else name) for number in count(1))
    folder = RunFolder(next(path for path in paths if not path.exists()))
    folder.keep_workload(workload)
    folder.keep_text(OUTCOMES, outcomes(named))
    if trace is not None:
        folder.keep_text(TRACE, trace)
    folder.keep(SIMULATION, {"made_at": now.isoformat(timespec="seconds"), **content})
    return folder


def trace_csv(load: Load) -> str:
    """Returns the traffic as `--trace` reads it."""
    times = (load.start + timedelta(seconds=number * load.step_s) for number in range(len(load.rates)))
    lines = (f"{at.isoformat()},{rate:.6g}" for at, rate in zip(times, load.rates.tolist(), strict=True))
    return "\n".join(("time,requests_per_second", *lines)) + "\n"


def outcomes(named: Sequence[Named]) -> str:
    """Returns a line for each policy and seed, under a heading."""
    text = io.StringIO()
    lines = csv.writer(text, lineterminator="\n")
    figures = (
        "seed",
        "minutes_over_objective",
        "requests",
        "late",
        "dropped",
        "instance_hours",
        "lower_bound_hours",
        "most_instances",
    )
    lines.writerow(("policy", *figures))
    for each in named:
        words = f"{each.name}: {policy_in_words(each.result.policy)}"
        lines.writerows([words, *(getattr(one, name) for name in figures)] for one in each.result.outcomes)
    return text.getvalue()


def _service(service: Service) -> dict[str, Any]:
    """Returns what was simulated and the origin of its figures, which is None if --from names a measurement."""
    candidate, recommendation = service.candidate, service.recommendation
    origin = recommendation.provenance if recommendation else None
    return {
        "instance_type": candidate.instance_type,
        "variant": candidate.variant,
        "instance_count": candidate.instance_count,
        "measured_on": origin.measured_on if origin else None,
        "machine": origin.machine if origin else None,
        "measured_at": origin.measured_at if origin else None,
        "run": origin.run if origin else None,
        "archive_sha256": recommendation.archive_sha256 if recommendation else None,
        "cost_reason": candidate.cost_reason,
    }


class Day(BaseModel):
    """The course of a policy over the worst day, an entry per few minutes, and its figures."""

    minutes_over_objective: float
    late_share: float
    most_instances: int
    instance_hours: float
    cost_usd: float | None
    lower_bound_instance_hours: float
    attempts_per_second: tuple[float, ...]
    instances_serving: tuple[float, ...]
    instances_paid: tuple[float, ...]
    instances_desired: tuple[float, ...]
    late_shares: tuple[float, ...]
    latency_ms: tuple[float | None, ...]


class Simulated(BaseModel):
    """A policy and its figures, means over seeds."""

    name: str
    in_words: str
    seeds: int
    first_seed: int
    minutes_over_objective: float
    minutes_over_at_confidence: float
    late_share: float
    dropped: float
    instance_hours: float
    cost_usd: float | None
    lower_bound_instance_hours: float
    lower_bound_cost_usd: float | None
    most_instances: int
    kept: bool
    seeds_over_tolerance: int
    policy: dict[str, Any]
    day: Day

    @property
    def on_frontier(self) -> bool:
        return self.name.startswith(ON_FRONTIER)


class _Trace(BaseModel):
    name: str
    sha256: str
    start: str
    minutes: float


class _Tolerance(BaseModel):
    minutes_a_month: float
    confidence: float
    allowed_minutes: float


class _Curve(BaseModel):
    basis: str
    max_invocations_per_minute: float
    saturation_invocations_per_minute: float
    measured_up_to: float
    limit_ms: float


class TheDay(BaseModel):
    seed: int
    start: str
    minutes: float
    minutes_per_entry: float
    requests_per_second: tuple[float, ...]
    lower_bound_instances: tuple[float, ...]


class _Beyond(BaseModel):
    minutes: float
    highest_invocations_per_minute_and_instance: float
    measured_up_to: float
    times: float


class _Service(BaseModel):
    instance_type: str
    measured_on: str | None
    machine: str | None
    measured_at: str | None
    archive_sha256: str | None
    cost_reason: str | None


class _Confirmed(BaseModel):
    seeds: int
    failed: int


class Simulation(BaseModel):
    """The members of simulation.json that a report shows."""

    made_at: str
    complete: bool
    safe: bool
    judged: str
    workload: str
    trace: _Trace
    seeds: int
    first_seed: int
    tolerance: _Tolerance
    curve: _Curve
    timing: dict[str, Any]
    assumed: dict[str, str]
    price_per_hour_usd: float | None
    extrapolated: _Beyond | None
    caution: str | None = None
    service: _Service
    day: TheDay
    policies: tuple[Simulated, ...]
    tried: tuple[tuple[float, float], ...] | None = None
    policies_tried: int | None = None
    confirmed_on: _Confirmed | None = None

    @property
    def chosen(self) -> Simulated:
        """The policy that is judged."""
        return self.policies[0]

    @property
    def today(self) -> Simulated | None:
        """The recommended policy; None if the simulation was interrupted before it."""
        return next((each for each in self.policies if each.name == RECOMMENDED), None)

    @property
    def optimised(self) -> bool:
        return self.policies_tried is not None

    def by_cost(self) -> tuple[Simulated, ...]:
        """Returns the policies, that with the fewest instance hours first."""
        return tuple(sorted(self.policies, key=lambda each: (each.instance_hours, -each.minutes_over_objective)))


def read_simulation(path: Path) -> Simulation:
    """Reads a folder's simulation.json. Raises `InvalidDocument` where it is damaged or of another version."""
    file = path / SIMULATION
    try:
        return Simulation.model_validate(json.loads(file.read_text("utf-8")))
    except (OSError, ValueError, RecursionError, ValidationError) as error:
        raise InvalidDocument(file, [f"cannot be read: {error}"]) from error
