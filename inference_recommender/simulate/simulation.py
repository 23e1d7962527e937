"""A traffic trace through a fleet under a policy, minute by minute. Pure: the same seed gives the same outcome.

In each minute

- arrivals are a random number around the trace's rate: Poisson, or negative binomial for bursty arrivals;
- instances answer at most `curve.saturation` each. Other requests wait. A request that would wait longer than
  `LONGEST_WAIT_S` is dropped: SageMaker ends an invocation after a minute;
- a request that waits longer than the limit is late. The curve gives the late share of the others by the rate;
- instances that start or stop within a minute count with their state in the middle of it, because SageMaker's
  InvocationsPerInstance has 1 / (active instances) of each request
  (https://docs.aws.amazon.com/sagemaker/latest/dg/monitoring-cloudwatch.html);
- alarms see the metric after its delay, and scaling takes effect at the minute's end.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from random import Random

import numpy as np
from numpy.typing import NDArray

from inference_recommender.capacity.statistics import Floats
from inference_recommender.simulate.curve import LatencyCurve
from inference_recommender.simulate.functions import ask, policy_function
from inference_recommender.simulate.instances import EcsFleet, SimulatedFleet
from inference_recommender.simulate.policy import Observed, Policy, Timing, TrafficLoad
from inference_recommender.simulate.tracking import MINUTE_S, Cooldowns, ScalingSchedule, TrackingAlarms, instances_for
from workloads import ScheduledMinimum, UsageError

LONGEST_WAIT_S = 60.0
HOURS = MINUTE_S / 3600
"""Hours of a minute."""
TOLERANCE = 1e-9
"""Relative; a late share this little above the allowed one is allowed."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SeedOutcome:
    """The figures of a policy with the traffic of one seed."""

    minutes_over_objective: float
    requests: float
    late: float
    """Requests without an answer within the limit, dropped ones included."""
    dropped: float
    instance_hours: float
    lower_bound_hours: float
    """Hours of the fewest instances that meet the objective in every minute, at least one."""
    most_instances: int
    """Most instances that were paid for at once."""
    highest_rate: float
    """Highest rate per second and serving instance."""
    minutes_extrapolated: float
    """Minutes in which that rate was above all measured rates."""
    seed: int

    @property
    def late_share(self) -> float:
        return self.late / self.requests if self.requests else 0.0


def simulate(
    load: TrafficLoad, policy: Policy, curve: LatencyCurve, timing: Timing, seed: int, dispersion: float = 1.0
) -> "FleetSimulation":
    """Returns a finished simulation. The seed draws arrivals, start times and the capacity within its interval."""
    random, known = np.random.default_rng(seed), curve.capacity
    curve = curve.stretched(math.exp(curve.spread * float(random.standard_normal())))
    expected = load.rates * MINUTE_S
    if dispersion > 1:  # a gamma mixture of Poisson numbers is negative binomial
        expected = random.gamma(expected / (dispersion - 1), dispersion - 1)
    arrivals = random.poisson(expected).astype(float)
    run = FleetSimulation(load, policy, curve, timing, arrivals, Random(seed), known)
    run.go()
    return run


class FleetCapacity:
    """The desired capacity of a fleet, with its bounds and cooldowns."""

    def __init__(self, policy: Policy, desired: int) -> None:
        self.policy = policy
        self.minimum = policy.min_capacity
        self.desired = desired
        self.cooldowns = Cooldowns()

    def scale_out(self, now_s: float, desired: int, instances: int) -> int:
        """Returns how many instances are added. `instances` are those of the datapoint."""
        desired = min(desired, self.policy.max_capacity)
        if desired <= self.desired or not self.cooldowns.allow_out(now_s, desired, instances):
            return 0
        added, self.desired = desired - self.desired, desired
        self.cooldowns.start_out(desired - instances)
        return added

    def scale_in(self, now_s: float, desired: int) -> int:
        """Returns how many instances are removed."""
        desired = max(desired, self.minimum)
        if not self.policy.scale_in or desired >= self.desired or not self.cooldowns.allow_in(now_s):
            return 0
        removed, self.desired = self.desired - desired, desired
        return removed


def scheduled(minimums: tuple[ScheduledMinimum, ...], start: datetime, length_s: float) -> list[tuple[float, int]]:
    """Returns second and new minimum of every scheduled action from `start` on. Raises `UsageError`."""
    end = start + timedelta(seconds=length_s)
    actions = []
    for each in minimums:
        try:
            times = list(ScalingSchedule.parse(each.schedule, each.timezone).times(start, end))
        except ValueError as error:
            raise UsageError(
                f"scheduled_minimums: {error}. A cron expression has minutes, hours, day of month, month, day of week "
                "and year, with numbers, names, *, ?, lists, ranges and steps."
            ) from error
        actions += [((at - start).total_seconds(), each.min_capacity) for at in times if start <= at < end]
    return sorted(actions)


class FleetSimulation:
    """The state of one simulation. `go` is the hot loop: half a million turns for a year."""

    def __init__(
        self,
        load: TrafficLoad,
        policy: Policy,
        curve: LatencyCurve,
        timing: Timing,
        arrivals: Floats,
        random: Random,
        known_capacity: float | None = None,
    ) -> None:
        """`known_capacity` is the measured capacity per second, which a policy function knows; None: the curve's."""
        self.curve, self.arrivals, self._arrived = curve, arrivals, arrivals.tolist()
        self.delay = timing.metric_delay_s // MINUTE_S
        first = math.ceil(float(arrivals[0]) / policy.target_invocations_per_instance)
        self.capacity = FleetCapacity(policy, min(max(first, policy.min_capacity), policy.max_capacity))
        kind = SimulatedFleet if timing.hosts == "sagemaker" else EcsFleet
        self.fleet = kind(self.capacity.desired, timing, random)
        self.alarms = TrackingAlarms(policy.target_invocations_per_instance)
        self.zero_is_missing = timing.hosts == "sagemaker"
        """Whether a minute without invocations has no datapoint. SageMaker emits no metric of zero, so a variant
        without traffic does not scale in.
        https://docs.aws.amazon.com/sagemaker/latest/dg/endpoint-auto-scaling-prerequisites.html"""
        self.schedule = scheduled(policy.scheduled_minimums, load.start, len(arrivals) * MINUTE_S)[::-1]
        self.losses = sorted(((each.at_s, each.zones) for each in load.losses), reverse=True)
        self.function = policy_function(policy.function) if policy.function else None
        self._load, self._timing, self._known = load, timing, known_capacity or curve.capacity
        self._shown = np.concatenate([load.history * MINUTE_S, arrivals])
        columns = ("serving", "paid", "desired", "wait_before_s", "wait_after_s", "dropped")
        self.columns: dict[str, list[float]] = {name: [0.0] * len(arrivals) for name in columns}

    def go(self) -> None:
        serving_at, paid_at, desired_at, before_at, after_at, dropped_at = self.columns.values()
        running, saturation, capacity = self.fleet, self.curve.saturation, self.capacity
        backlog, now_s = 0.0, 0.0
        for minute, arrived in enumerate(self._arrived):
            if now_s + MINUTE_S / 2 >= running.next_s:
                running.advance(now_s + MINUTE_S / 2)
            if self.schedule or self.losses:
                self._due(now_s)
            rate = running.serving * saturation if running.serving > 0 else 0.0
            before_at[minute] = backlog / rate if rate else math.inf
            backlog = max(backlog + (arrived - rate * MINUTE_S), 0.0)
            if backlog > rate * LONGEST_WAIT_S:
                dropped_at[minute] = backlog - rate * LONGEST_WAIT_S
                backlog = rate * LONGEST_WAIT_S
            after_at[minute] = backlog / rate if rate else math.inf
            serving_at[minute], paid_at[minute], desired_at[minute] = running.serving, running.paid, capacity.desired
            now_s += MINUTE_S
            self._scale(minute - self.delay, now_s)

    def _due(self, now_s: float) -> None:
        while self.losses and self.losses[-1][0] <= now_s:
            _, zones = self.losses.pop()
            self.fleet.lose(math.ceil(self.fleet.serving / zones), now_s)
        while self.schedule and self.schedule[-1][0] <= now_s:
            self.capacity.minimum = self.schedule.pop()[1]

    def _scale(self, seen: int, now_s: float) -> None:
        """Feeds the alarms with the datapoint of the minute `seen`, and does what they and the schedule require."""
        capacity, running = self.capacity, self.fleet
        if self.function:
            self._follow(seen, now_s)
            return
        instances = int(self.columns["serving"][seen]) if seen >= 0 else 0
        value = None
        if instances > 0 and (self._arrived[seen] or not self.zero_is_missing):
            value = self._arrived[seen] / instances
        action = self.alarms.observe(value) if seen >= 0 else 0
        short = capacity.minimum - capacity.desired
        if not (action or short > 0) or not running.takes_changes(now_s):
            return
        if short > 0:  # a scheduled minimum has no cooldown
            capacity.desired += short
            running.add(short, now_s)
            return
        assert value is not None, "an alarm acts on a datapoint only"
        desired = instances_for(instances, value, self.alarms.target)
        if action > 0 and (added := capacity.scale_out(now_s, desired, instances)):
            capacity.cooldowns.out_until_s = running.add(added, now_s) + capacity.policy.scale_out_cooldown_s
        elif action < 0 and (removed := capacity.scale_in(now_s, desired)):
            capacity.cooldowns.in_until_s = running.remove(removed, now_s) + capacity.policy.scale_in_cooldown_s

    def _follow(self, seen: int, now_s: float) -> None:
        """Does what the policy function decides, within the bounds."""
        assert self.function is not None
        capacity, policy = self.capacity, self.capacity.policy
        shown = len(self._load.history) + seen + 1
        if shown < 1 or not self.fleet.takes_changes(now_s):
            return
        observed = Observed(
            time=self._load.start + timedelta(seconds=now_s),
            invocations=self._shown[:shown],
            serving=self.fleet.serving,
            desired=capacity.desired,
            capacity=self._known * MINUTE_S,
            target=policy.target_invocations_per_instance,
            start_s=self._timing.start_s,
            delay_s=self._timing.metric_delay_s,
        )
        desired = min(max(ask(policy.function, self.function, observed), capacity.minimum), policy.max_capacity)
        added, capacity.desired = desired - capacity.desired, desired
        if added > 0:
            self.fleet.add(added, now_s)
        elif added < 0:
            self.fleet.remove(-added, now_s)

    def course(self) -> Mapping[str, Floats]:
        """Returns an array per column, one entry per minute."""
        at = {name: np.array(values) for name, values in self.columns.items()}
        rate = self.arrivals / MINUTE_S / np.maximum(at["serving"], 1)
        waits = _shares_above(at["wait_before_s"], at["wait_after_s"], self.curve.limit_s)
        answered = self.curve.late_share(np.minimum(rate, self.curve.saturation))
        late = np.where(at["serving"] > 0, waits + (1 - waits) * answered, 1.0)
        ideal = np.maximum(np.ceil(self.arrivals / MINUTE_S / self.curve.capacity - TOLERANCE), 1)
        return {**at, "arrivals": self.arrivals, "late_share": late, "ideal": ideal, "rate": rate}

    def outcome(self, seed: int) -> SeedOutcome:
        at = self.course()
        rate, serves = at["rate"], at["serving"] > 0
        return SeedOutcome(
            seed=seed,
            minutes_over_objective=float(minutes_over(at, self.curve.allowed).sum()),
            requests=float(self.arrivals.sum()),
            late=float((at["late_share"] * self.arrivals).sum()),
            dropped=float(at["dropped"].sum()),
            instance_hours=float(at["paid"].sum()) * HOURS,
            lower_bound_hours=float(at["ideal"].sum()) * HOURS,
            most_instances=int(at["paid"].max()),
            highest_rate=float(rate[serves].max(initial=0.0)),
            minutes_extrapolated=float(((rate > self.curve.measured_up_to) & serves).sum()),
        )


def minutes_over(course: Mapping[str, Floats], allowed: float) -> NDArray[np.bool_]:
    """Returns for each minute of a course whether more requests were late than are allowed."""
    over: NDArray[np.bool_] = course["late_share"] * course["arrivals"] > course["arrivals"] * allowed * (1 + TOLERANCE)
    return over


def _shares_above(before_s: Floats, after_s: Floats, limit_s: float) -> Floats:
    """Returns the share of each minute's requests that wait longer than the limit, if the wait changes evenly."""
    low, high = np.minimum(before_s, after_s), np.maximum(before_s, after_s)
    with np.errstate(invalid="ignore", divide="ignore"):
        part = (high - limit_s) / (high - low)
    shares: Floats = np.where(high <= limit_s, 0.0, np.where((low >= limit_s) | np.isinf(high), 1.0, part))
    return shares
