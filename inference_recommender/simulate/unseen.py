"""Judges policies on days that they were not chosen on. Pure.

A day is within the tolerance if it has at most the tolerated minutes over the objective. A policy holds if 95 % of the
days are. Its cost is compared with that of perfect foresight: the cheapest fleet that knows every minute of the load
ahead, whose instances take as long to start and to be gone as those of the policy.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date

import numpy as np

from inference_recommender.capacity.statistics import Floats
from inference_recommender.simulate.policy import Policy, Timing
from inference_recommender.simulate.seeds import SimulationCase
from inference_recommender.simulate.simulation import HOURS, minutes_over
from inference_recommender.simulate.tracking import DAY_MINUTES, MINUTE_S, OUT_DATAPOINTS
from workloads import UsageError

FEWEST_RATE = 1e-9
DAYS_WITHIN = 0.95
"""Share of the days that must be within the tolerance."""


@dataclass(frozen=True, kw_only=True, slots=True)
class UnseenDay:
    """A day under a policy: means over seeds, but the most minutes over the objective of any seed."""

    day: date
    peak_per_minute: float
    minutes_over: float
    instance_hours: float
    foresight_hours: float


@dataclass(frozen=True, kw_only=True, slots=True)
class UnseenResult:
    policy: Policy
    trace: str
    """Name of the trace that judges."""
    days: tuple[UnseenDay, ...]
    allowed_minutes: float
    """The tolerated minutes over the objective in a day."""

    @property
    def days_within(self) -> int:
        return sum(each.minutes_over <= self.allowed_minutes for each in self.days)

    @property
    def holds(self) -> bool:
        return self.days_within >= DAYS_WITHIN * len(self.days)

    @property
    def instance_hours(self) -> float:
        return sum(each.instance_hours for each in self.days)

    @property
    def cost_over_foresight(self) -> float:
        return self.instance_hours / sum(each.foresight_hours for each in self.days)


def judge(
    case: SimulationCase, policy: Policy, seeds: Sequence[int], least: int, done: Callable[[int], None]
) -> UnseenResult:
    """Simulates whole days from the trace's start on. `least` is the minimum of instances in production.

    Calls `done` after each seed with 1.
    """
    load, days = case.traffic.load(0), case.minutes // DAY_MINUTES
    if not days:
        raise UsageError(f"--judge-on: {case.traffic.name} has {case.minutes} minutes; give at least a day.")
    figures = np.zeros((len(seeds), 3, days))
    for number, seed in enumerate(seeds):
        course = case.run(policy, seed).course()
        foresight = foresight_instances(course["ideal"], case.timing, least)
        for row, values in enumerate((minutes_over(course, case.curve.allowed), course["paid"], foresight)):
            figures[number, row] = values[: days * DAY_MINUTES].reshape(days, -1).sum(axis=1)
        done(1)
    over, (hours, foreseen) = figures[:, 0].max(axis=0), figures[:, 1:].mean(axis=0) * HOURS
    peaks = load.rates[: days * DAY_MINUTES].reshape(days, -1).max(axis=1) * MINUTE_S
    first = load.start.date().toordinal()
    return UnseenResult(
        policy=policy,
        trace=case.traffic.name,
        allowed_minutes=case.tolerance.minutes,
        days=tuple(
            UnseenDay(
                day=date.fromordinal(first + day),
                peak_per_minute=float(peaks[day]),
                minutes_over=float(over[day]),
                instance_hours=float(hours[day]),
                foresight_hours=float(foreseen[day]),
            )
            for day in range(days)
        ),
    )


def foresight_instances(needed: Floats, timing: Timing, least: int) -> Floats:
    """Returns the instances that perfect foresight pays for in each minute.

    Each level of the need is an instance of its own: it is kept through a gap that is shorter than its restart, and is
    otherwise paid for while it starts before its interval and while it goes after it.
    """
    starts, goes = math.ceil(timing.start_s / MINUTE_S), math.ceil(timing.removal_s / MINUTE_S)
    paid, always = np.maximum(needed, least), 2 * len(needed) + starts + goes
    for level in range(least + 1, int(needed.max()) + 1):
        serves = np.flatnonzero(needed >= level)
        gaps = np.flatnonzero(np.diff(serves) > 1)
        ends, begins = (-always, *serves[gaps], serves[-1]), (serves[0], *serves[gaps + 1], always)
        for end, begin in zip(ends, begins, strict=True):
            if begin - end - 1 <= starts + goes:
                paid[end + 1 : begin] += 1
            else:
                paid[max(begin - starts, 0) : begin] += 1
                paid[max(end + 1, 0) : max(end + 1 + goes, 0)] += 1
    return paid


def rise_that_tracking_misses(case: SimulationCase, policy: Policy) -> str | None:
    """Returns a sentence if target tracking cannot follow the load within the tolerance, on more than 5 % of the days.

    Before a rise the fleet has the instances that the target requires. An instance for it serves after the metric's
    delay, the alarm's datapoints and its start.
    """
    timing, rates = case.timing, case.traffic.load(0).rates
    reacts = math.ceil((timing.metric_delay_s + timing.start_s) / MINUTE_S) + OUT_DATAPOINTS
    before, later = rates[:-reacts], rates[reacts:]
    if policy.function or policy.min_capacity == policy.max_capacity or policy.scheduled_minimums or not len(later):
        return None
    has = np.maximum(np.ceil(before * MINUTE_S / policy.target_invocations_per_instance), policy.min_capacity)
    too_high = later > has * case.curve.capacity
    missed = np.add.reduceat(too_high, range(0, len(later), DAY_MINUTES)) > case.tolerance.minutes
    if missed.sum() <= (1 - DAYS_WITHIN) * len(missed):
        return None
    worst = int(np.argmax(np.where(too_high, later / has, 0.0)))
    days = f" on {missed.sum()} of {len(missed)} days" if len(missed) > 1 else ""
    return (
        f"Target tracking cannot hold this traffic{days}: "
        f"the load rises up to {later[worst] / max(before[worst], FEWEST_RATE):.1f} × in {reacts} minutes, and an "
        f"instance serves {reacts} minutes after a rise begins. Lower the target, or raise the minimum before the rise "
        "with scheduled_minimums."
    )
