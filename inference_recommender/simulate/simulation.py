"""A traffic trace through a fleet under a policy, step by step. Pure: the same seed gives the same outcome.

A step is a minute, or ten seconds if the policy has a metric of ten seconds. In each step

- arrivals are a Poisson number around the trace's rate, plus requests that callers send again;
- instances answer at most `curve.saturation` each. Other requests wait. A request that would wait longer than
  `LONGEST_WAIT_S` is dropped: SageMaker ends an invocation after a minute;
- a request that waits longer than the limit is late. The curve gives the late share of the others by the step's rate;
- instances that start or stop within a step count with their state in the middle of the step, because SageMaker's
  InvocationsPerInstance has 1 / (active instances) of each request
  (https://docs.aws.amazon.com/sagemaker/latest/dg/monitoring-cloudwatch.html);
- alarms see the metrics after their delay, and scaling takes effect at the step's end.

The lower bound has in each step the fewest instances that meet the objective, at least one, which start and stop at
once.
"""

import math
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from random import Random

import numpy as np

from inference_recommender.capacity.statistics import Floats
from inference_recommender.simulate.curve import LatencyCurve
from inference_recommender.simulate.instances import SimulatedFleet, fleet
from inference_recommender.simulate.policy import Policy, SeedOutcome, Timing, TrafficLoad
from inference_recommender.simulate.tracking import (
    MINUTE_S,
    Cooldowns,
    ScalingSchedule,
    TrackingAlarms,
    instances_for,
)
from workloads import ScheduledMinimum, UsageError

LONGEST_WAIT_S = 60.0
MOST_LATE = 1 - 1e-9
"""A larger share has no finite latency."""
TOLERANCE = 1e-9
"""Relative; a late share this little above the allowed one is allowed."""


def simulate(
    load: TrafficLoad, policy: Policy, curve: LatencyCurve, timing: Timing, seed: int, *, timeline: bool = False
) -> SeedOutcome:
    """Returns the outcome of a policy with a load. With `timeline` it has arrays, one entry per step."""
    random = np.random.default_rng(seed)
    curve = curve.stretched(math.exp(curve.spread * float(random.standard_normal())))
    rates = _at_steps(load, policy.step_s)
    arrivals = random.poisson(rates * policy.step_s).astype(float)
    run = FleetSimulation(load, policy, curve, timing, arrivals, Random(seed))
    run.go()
    return run.outcome(seed, timeline=timeline)


def _at_steps(load: TrafficLoad, step_s: int) -> Floats:
    """Returns the rates at steps of another length. The lengths divide one another."""
    if load.step_s >= step_s:
        return np.repeat(load.rates, load.step_s // step_s)
    return load.rates.reshape(-1, step_s // load.step_s).mean(axis=1)  # type: ignore[no-any-return]


class FleetCapacity:
    """The desired capacity of a fleet, with its bounds and cooldowns."""

    def __init__(self, policy: Policy, desired: int) -> None:
        self.policy = policy
        self.minimum = policy.min_capacity
        self.desired = desired
        self._cooldowns = Cooldowns()

    def scale_out(self, now_s: float, desired: int, instances: int) -> int:
        """Returns how many instances are added. `instances` are those of the datapoint."""
        desired = min(desired, self.policy.max_capacity)
        if desired <= self.desired or not self._cooldowns.allow_out(now_s, desired, instances):
            return 0
        added, self.desired = desired - self.desired, desired
        self._cooldowns.start_out(desired - instances)
        return added

    def scale_in(self, now_s: float, desired: int) -> int:
        """Returns how many instances are removed."""
        desired = max(desired, self.minimum)
        if not self.policy.scale_in or desired >= self.desired or not self._cooldowns.allow_in(now_s):
            return 0
        removed, self.desired = self.desired - desired, desired
        return removed

    def schedule(self, minimum: int) -> int:
        """Sets another minimum. Returns how many instances it adds, regardless of cooldowns."""
        self.minimum = minimum
        added = max(minimum - self.desired, 0)
        self.desired += added
        return added

    def scaled_out(self, done_s: float) -> None:
        self._cooldowns.out_until_s = done_s + self.policy.scale_out_cooldown_s

    def scaled_in(self, done_s: float) -> None:
        self._cooldowns.in_until_s = done_s + self.policy.scale_in_cooldown_s


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
        self, load: TrafficLoad, policy: Policy, curve: LatencyCurve, timing: Timing, arrivals: Floats, random: Random
    ) -> None:
        self.load, self.policy, self.curve, self.step_s = load, policy, curve, policy.step_s
        self.arrivals = arrivals
        self.delays = (timing.metric_delay_s // MINUTE_S, timing.high_resolution_delay_s // self.step_s)
        first = float(arrivals[0]) * MINUTE_S / self.step_s
        wanted = math.ceil(first / policy.target_invocations_per_instance)
        self.capacity = FleetCapacity(policy, min(max(wanted, policy.min_capacity), policy.max_capacity))
        self.fleet: SimulatedFleet = fleet(self.capacity.desired, timing, random)
        self.invocations = TrackingAlarms(policy.target_invocations_per_instance)
        self.zero_is_missing = timing.hosts == "sagemaker"
        """Whether a minute without invocations has no datapoint. SageMaker emits no metric of zero, so a variant
        without traffic does not scale in.
        https://docs.aws.amazon.com/sagemaker/latest/dg/endpoint-auto-scaling-prerequisites.html"""
        requests = policy.concurrent_requests_per_instance
        self.concurrency = None if requests is None else TrackingAlarms(requests, self.step_s)
        length_s = len(arrivals) * self.step_s
        self.schedule = scheduled(policy.scheduled_minimums, load.start, length_s)[::-1]
        self.losses = sorted(((each.at_s, each.zones) for each in load.losses), reverse=True)
        columns = ("attempts", "serving", "paid", "desired", "wait_before_s", "wait_after_s", "dropped", "gave_up")
        self.columns: dict[str, list[float]] = {name: [0.0] * len(arrivals) for name in columns}

    def go(self) -> None:
        columns, step_s, running = self.columns, self.step_s, self.fleet
        attempts_at, serving_at, paid_at, desired_at = (
            columns["attempts"],
            columns["serving"],
            columns["paid"],
            columns["desired"],
        )
        before_at, after_at, dropped_at = columns["wait_before_s"], columns["wait_after_s"], columns["dropped"]
        saturation, capacity = self.curve.saturation, self.capacity
        callers = self.load.callers
        again = [0.0] * (callers.retries if callers else 0)
        backlog = 0.0
        now_s, half_s = 0.0, step_s / 2
        for step, fresh in enumerate(self.arrivals.tolist()):
            if now_s + half_s >= running.next_s:
                running.advance(now_s + half_s)
            if self.schedule or self.losses:
                self._due(now_s)
            serving = running.serving
            attempts = fresh + sum(again) if again else fresh
            rate = serving * saturation if serving > 0 else 0.0
            before_s = backlog / rate if rate else math.inf
            backlog += attempts - rate * step_s
            dropped = 0.0
            if backlog < 0.0:
                backlog = 0.0
            elif backlog > rate * LONGEST_WAIT_S:
                dropped = backlog - rate * LONGEST_WAIT_S
                backlog = rate * LONGEST_WAIT_S
            after_s = backlog / rate if rate else math.inf
            attempts_at[step], serving_at[step] = attempts, serving
            paid_at[step], desired_at[step] = running.paid, capacity.desired
            before_at[step], after_at[step], dropped_at[step] = before_s, after_s, dropped
            if callers:
                lost = _share_above(before_s, after_s, callers.timeout_s)
                if lost or again[0]:
                    failed = [fresh * lost, *(count * lost for count in again)]
                    again = failed[:-1]
                    columns["gave_up"][step] = failed[-1]
            now_s += step_s
            self._scale(step, now_s)

    def _due(self, now_s: float) -> None:
        while self.losses and self.losses[-1][0] <= now_s:
            _, zones = self.losses.pop()
            self.fleet.lose(math.ceil(self.fleet.serving / zones), now_s)
        while self.schedule and self.schedule[-1][0] <= now_s:
            self.capacity.minimum = self.schedule.pop()[1]

    def _scale(self, step: int, now_s: float) -> None:
        """Feeds the alarms with the visible datapoints, and does what they and the schedule require."""
        capacity = self.capacity
        asked, wanted, seen_by = 0, 0, 0
        per_minute = MINUTE_S // self.step_s
        if (step + 1) % per_minute == 0:
            minute = step - self.delays[0] * per_minute
            if minute >= per_minute - 1:
                asked, wanted, seen_by = self._ask(self.invocations, *self._invocations(minute, per_minute))
        if self.concurrency is not None and step >= self.delays[1]:
            other = self._ask(self.concurrency, *self._concurrency(step - self.delays[1]))
            if other[0] and (other[0] > asked or (other[0] == asked and other[1] > wanted)):
                asked, wanted, seen_by = other
            if asked < 0 and not (self.invocations.in_low and self.concurrency.in_low):
                asked = 0
        short = capacity.minimum - capacity.desired
        if (asked or short > 0) and self.fleet.takes_changes(now_s):
            self._act(asked, wanted, seen_by, now_s)

    def _ask(self, alarms: TrackingAlarms, value: float | None, instances: int) -> tuple[int, int, int]:
        asked = alarms.observe(value)
        if not asked or value is None:
            return 0, 0, instances
        return asked, instances_for(instances, value, alarms.target), instances

    def _act(self, asked: int, wanted: int, seen_by: int, now_s: float) -> None:
        capacity, running = self.capacity, self.fleet
        if added := capacity.schedule(capacity.minimum):
            running.add(added, now_s)
        elif asked > 0:
            if added := capacity.scale_out(now_s, wanted, seen_by):
                capacity.scaled_out(running.add(added, now_s))
        elif asked < 0 and (removed := capacity.scale_in(now_s, wanted)):
            capacity.scaled_in(running.remove(removed, now_s))

    def _invocations(self, last: int, steps: int) -> tuple[float | None, int]:
        """Returns SageMaker's InvocationsPerInstance of the minute that ends with step `last`, and its instances."""
        serving = int(self.columns["serving"][last])
        if serving <= 0:
            return None, 0
        attempts = self.columns["attempts"]
        found = attempts[last] if steps == 1 else sum(attempts[last + 1 - steps : last + 1])
        return (None if not found and self.zero_is_missing else found / serving), serving

    def _concurrency(self, step: int) -> tuple[float | None, int]:
        """Returns the requests that an instance has at once, by Little's law: those in service and those that wait."""
        serving = int(self.columns["serving"][step])
        if serving <= 0:
            return None, 0
        rate = min(self.columns["attempts"][step] / self.step_s / serving, self.curve.saturation)
        waits = (self.columns["wait_before_s"][step] + self.columns["wait_after_s"][step]) / 2
        return rate * self.curve.mean_latency_s(rate) + waits * self.curve.saturation, serving

    def outcome(self, seed: int, *, timeline: bool) -> SeedOutcome:
        at = {name: np.array(values) for name, values in self.columns.items()}
        attempts, serving, limit_s = at["attempts"], at["serving"], self.curve.limit_s
        rate = attempts / self.step_s / np.maximum(serving, 1)
        waits = _shares_above(at["wait_before_s"], at["wait_after_s"], limit_s)
        answered = self.curve.late_share(np.minimum(rate, self.curve.saturation))
        late = np.where(serving > 0, waits + (1 - waits) * answered, 1.0)
        above = (rate > self.curve.measured_up_to) & (serving > 0)
        fewest = np.maximum(np.ceil(self.arrivals / self.step_s / self.curve.capacity - TOLERANCE), 1)
        hours = self.step_s / 3600
        columns = {**at, "arrivals": self.arrivals, "late_share": late, "fewest": fewest, "rate": rate}
        if timeline:
            columns["latency_s"] = self._latency_s(at, answered)
        return SeedOutcome(
            seed=seed,
            minutes_over_objective=minutes_over(late, attempts, self.step_s, self.curve.allowed),
            requests=float(self.arrivals.sum()),
            late=float((late * self.arrivals).sum()),
            dropped=float(at["gave_up"].sum() if self.load.callers else at["dropped"].sum()),
            instance_hours=float(at["paid"].sum()) * hours,
            lower_bound_hours=float(fewest.sum()) * hours,
            most_instances=int(at["paid"].max()),
            highest_rate=float(rate[serving > 0].max(initial=0.0)),
            minutes_extrapolated=float(above.sum()) * self.step_s / 60,
            timeline=columns if timeline else {},
        )

    def _latency_s(self, at: Mapping[str, Floats], answered: Floats) -> Floats:
        """Estimates the latency at the objective's percentile: an exponential time in service with the curve's late
        share, plus the longest wait of the step. Infinite if no instance serves.
        """
        in_service = self.curve.limit_s * math.log(self.curve.allowed) / np.log(np.minimum(answered, MOST_LATE))
        latency: Floats = in_service + np.maximum(at["wait_before_s"], at["wait_after_s"])
        return latency


def minutes_over(late_share: Floats, attempts: Floats, step_s: int, allowed: float) -> float:
    """Returns the minutes of a course, an entry per step, in which more requests were late than are allowed."""
    per_minute = MINUTE_S // step_s
    late = (late_share * attempts).reshape(-1, per_minute).sum(axis=1)
    most = attempts.reshape(-1, per_minute).sum(axis=1) * allowed * (1 + TOLERANCE)
    return float((late > most).sum())


def _share_above(before_s: float, after_s: float, limit_s: float) -> float:
    """Returns the share of a step's requests that wait longer than the limit, if the wait changes evenly."""
    low, high = (before_s, after_s) if before_s < after_s else (after_s, before_s)
    if high <= limit_s:
        return 0.0
    return 1.0 if low >= limit_s or high == math.inf else (high - limit_s) / (high - low)


def _shares_above(before_s: Floats, after_s: Floats, limit_s: float) -> Floats:
    """Returns the share of every step."""
    low, high = np.minimum(before_s, after_s), np.maximum(before_s, after_s)
    with np.errstate(invalid="ignore", divide="ignore"):
        part = (high - limit_s) / (high - low)
    shares: Floats = np.where(high <= limit_s, 0.0, np.where((low >= limit_s) | np.isinf(high), 1.0, part))
    return shares


def without_policy(policy: Policy, count: int) -> Policy:
    """Returns a fleet of `count` instances that never changes."""
    return replace(policy, min_capacity=count, max_capacity=count, scheduled_minimums=())


def columns_of(timeline: Mapping[str, Floats], points: int) -> dict[str, Floats]:
    """Returns a timeline in at most `points` entries: means of load and instances, the worst late share and latency."""
    length = len(timeline["arrivals"])
    each = -(-length // points)
    starts = np.arange(0, length, each)
    counts = np.diff(np.append(starts, length))
    means = ("arrivals", "attempts", "serving", "paid", "desired", "fewest")
    found = {name: np.add.reduceat(timeline[name], starts) / counts for name in means}
    worst = {name: np.maximum.reduceat(timeline[name], starts) for name in ("late_share", "latency_s")}
    return {**found, **worst}
