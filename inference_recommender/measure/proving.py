"""Proves a recommendation under its loads, one after another, and concludes. Pure: its only port is a `Probe`.

peak             peak / n for each instance, n the recommended instance count
instance-lost    peak / (n - lost), lost being the spare instances of [sizing], or 1
zone-lost        peak / (n - ceil(n / zones)), if [sizing] has zones and that loss is larger

The peak decides. The load after a loss is sent if [sizing] requires it. A longer proof also sends it if it is within
the recommended capacity: a miss then shows that the capacity is too high. A load above the capacity is not sent.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from inference_recommender.capacity.arrivals import markov_arrivals
from inference_recommender.capacity.search import SendProbe
from inference_recommender.measure.percentile_interval import BLOCK_S, PercentileInterval
from inference_recommender.measure.sequential import SequentialTest, first_conclusive_s, looks_s, shortest_s, warm_up
from inference_recommender.measure.system import SystemUnderTest
from inference_recommender.measurement import limit_of
from workloads import (
    POISSON,
    ArrivalProcess,
    Candidate,
    LatencyObjective,
    Proof,
    ProofScenario,
    Recommendation,
    Sizing,
    UsageError,
)

PROOF = "proof.json"
"""The file with the proof, in its run folder."""
WORST_FIRST = ("missed", "unclear", "kept")
COPIED = ("requests", "late", "late_allowed", "errors", "duration_s", "rises")
"""Fields that a scenario takes from the interval unchanged."""
PEAK_SHARE = 0.5
"""The share of the time that the peak may take if a second load follows."""

DURATION_S, MOST_TIMES = 900.0, 6.0
"""Default seconds of load for Poisson arrivals, and at most how many times as long for others."""
OPTIONAL_LOAD_S = 300.0
"""A shorter proof has no time for a load that [sizing] does not require."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Load:
    name: Literal["peak", "instance-lost", "zone-lost"]
    instances_left: int
    per_instance: float | None
    """Invocations per minute of each instance; None if no instance is left."""
    required: bool
    """Whether the fleet is sized for this load: the peak always, a loss if [sizing] asks for it."""
    within_capacity: bool
    """Whether the rate is within the lower bound of the recommended capacity."""


OnLook = Callable[[Load, float, PercentileInterval], None]
"""Receives each look: the load, the rate that is sent for it, and the percentile so far."""


@dataclass(slots=True)
class Proving:
    """One proof. `proof` returns the result so far, also after an interruption."""

    recommendation: Recommendation
    system: SystemUnderTest
    probe: SendProbe
    longest_s: float
    """Seconds of load, both loads together, after the warm-up."""
    sizing: Sizing
    arrivals: ArrivalProcess = POISSON
    """The process that `probe` sends, or the one that fits its recorded arrivals."""
    on_look: OnLook = lambda load, rate, interval: None
    peak: Load = field(init=False)
    loss: Load = field(init=False)
    tests: dict[str, SequentialTest] = field(init=False)
    """By load. A load that is not sent has none."""

    def __post_init__(self) -> None:
        """Raises `UsageError` if the time is too short for the percentile."""
        self.peak, self.loss = loads(self._chosen, self.recommendation.objective, self.sizing)
        peak_s = self._shortest_s(self.peak)
        both_s = max(peak_s / PEAK_SHARE, self._shortest_s(self.loss) / (1 - PEAK_SHARE))
        loss_is_possible = self.loss.per_instance is not None
        needed_s = both_s if self.loss.required and loss_is_possible else peak_s
        if self.longest_s < needed_s:
            raise UsageError(
                f"--max-duration-s: {self.longest_s:g} s is too short for {self.recommendation.objective.percentile} "
                f"at {self._rate(self.peak):,.0f} invocations/min. Allowed: {np.ceil(needed_s):,.0f} s or more."
            )
        optional = self.loss.within_capacity and self.longest_s >= max(both_s, OPTIONAL_LOAD_S)
        if loss_is_possible and (self.loss.required or optional):
            peak = self._test(self.peak, self.longest_s * PEAK_SHARE)
            self.tests = {"peak": peak, self.loss.name: self._test(self.loss, self.longest_s - peak.looks_s[0])}
        else:
            self.tests = {"peak": self._test(self.peak, self.longest_s)}

    def plan(self) -> Iterator[tuple[str, float, float, float]]:
        """Yields the name of each load that is sent, its rate, and the seconds of its shortest and longest test."""
        percentile = limit_of(self.recommendation.objective).percentile
        for load in (self.peak, self.loss):
            if test := self.tests.get(load.name):
                rate, looks = test.rate_per_minute, test.looks_s
                yield load.name, rate, first_conclusive_s(rate, percentile, looks), looks[-1]

    def run(self) -> None:
        """Warms up at the peak's rate, then runs the tests. Raises what the probe raises."""
        peak, loss = self.tests["peak"], self.tests.get(self.loss.name)
        warm_up(self.probe, peak.rate_per_minute, peak.limit)
        if peak.run() != "missed" and loss is not None:
            percentile = limit_of(self.recommendation.objective).percentile
            loss.looks_s = looks_s(loss.rate_per_minute, percentile, self.longest_s - peak.passed_s)
            loss.run()

    def proof(self, *, machine: str, measured_at: str, run: str) -> Proof:
        """Returns the result so far. `machine` sends the load; `run` is the proof's folder."""
        scenarios = tuple(self._scenarios())
        deciding = _deciding(scenarios)
        objective = self.recommendation.objective
        not_tested = self._not_tested(scenarios)
        return Proof(
            verdict=deciding.verdict,
            scenario=deciding.name,
            invocations_per_minute=deciding.invocations_per_minute,
            percentile=objective.percentile,
            latency_ms=deciding.latency_ms,
            latency_interval_ms=deciding.latency_interval_ms,
            limit_ms=objective.model_latency_ms,
            reason=self._reason(deciding),
            scenarios=scenarios,
            not_tested=(not_tested,) if not_tested else (),
            instances=self.system.instances,
            instance_type=self.system.instance_type,
            archive_sha256=self.system.archive_sha256,
            target=self.system.name,
            measured_on=self.system.measured_on,
            machine=machine,
            measured_at=measured_at,
            run=run,
        )

    @property
    def _chosen(self) -> Candidate:
        assert self.recommendation.recommended is not None, "checked before the proof"
        return self.recommendation.recommended

    def _rate(self, load: Load) -> float:
        return (load.per_instance or 0.0) * self.system.instances

    def _shortest_s(self, load: Load) -> float:
        if load.per_instance is None:
            return 0.0
        return shortest_s(self._rate(load), limit_of(self.recommendation.objective).percentile)

    def _test(self, load: Load, longest_s: float) -> SequentialTest:
        limit, rate = limit_of(self.recommendation.objective), self._rate(load)
        return SequentialTest(
            probe=self.probe,
            rate_per_minute=rate,
            limit=limit,
            looks_s=looks_s(rate, limit.percentile, longest_s),
            arrivals=self.arrivals,
            on_look=lambda interval: self.on_look(load, rate, interval),
        )

    def _scenarios(self) -> Iterator[ProofScenario]:
        yield _scenario(self.peak, self.tests["peak"])
        test = self.tests.get(self.loss.name)
        begun = test is not None and test.interval is not None
        if begun or (self.loss.required and self.tests["peak"].verdict != "missed"):
            yield _scenario(self.loss, test)

    def _not_tested(self, scenarios: tuple[ProofScenario, ...]) -> str | None:
        """Returns why the load after a loss is missing in the proof; None if it is there."""
        if any(each.name == self.loss.name for each in scenarios):
            return None
        words = self.loss.name.replace("-", " ")
        if self.tests["peak"].verdict == "missed":
            return f"{words}: not tested, because the peak load missed."
        if self.loss.name in self.tests:
            return f"{words}: not tested, because the proof ended first."
        if self.loss.per_instance is None:
            return f"{words}: not tested, because sizing.spare_instances is 0; no instance would be left."
        within = self.loss.within_capacity
        why = "--max-duration-s is too short for it" if within else "sizing.spare_instances is 0"
        return (
            f"{words}: not tested, because {why}; {self.loss.per_instance:,.0f}/min per instance would be "
            f"{'within' if within else 'above'} the capacity of {capacity_lower_bound(self._chosen):,.0f}/min."
        )

    def _reason(self, deciding: ProofScenario) -> str:
        objective = self.recommendation.objective
        lost = self.peak.instances_left - deciding.instances_left
        instances = "an instance" if lost == 1 else f"{lost} instances"
        after = {"peak": "", "zone-lost": " without a zone"}.get(deciding.name, f" without {instances}")
        if deciding.invocations_per_minute is None:
            return f"No instance is left{after}."
        rate, limit_ms = deciding.invocations_per_minute, objective.model_latency_ms
        at = f"at {rate:,.0f} invocations/min{after} (limit {limit_ms:g} ms)"
        if not deciding.requests:
            return f"{objective.percentile} is unknown {at}: the proof ended before its first result."
        figure = milliseconds(deciding.latency_ms)
        if deciding.verdict == "unclear":
            low, high = map(milliseconds, deciding.latency_interval_ms)
            figure += f" (95 % interval {low} to {high})" + ", and the latency rises" * deciding.rises
        claim = ""
        if not deciding.asked:
            claim = f" The recommended capacity is {capacity_lower_bound(self._chosen):,.0f}/min per instance or more."
        return f"{objective.percentile} {figure} {at}: {late_in_words(deciding)}.{claim}"


def default_duration_s(arrivals: ArrivalProcess, rate_per_minute: float) -> float:
    """Returns the default seconds of load. Arrivals that come together carry less information and wait for longer."""
    together = markov_arrivals(arrivals, rate_per_minute / 60).dispersion(BLOCK_S)
    return DURATION_S * min(max(2 * together - 1, 1.0), MOST_TIMES)


def milliseconds(latency_ms: float | None) -> str:
    """Returns "31.7 ms", or "unknown"."""
    if latency_ms is None:
        return "unknown"
    return f"{latency_ms:,.0f} ms" if latency_ms >= 100 else f"{latency_ms:.3g} ms"


def late_in_words(counts: ProofScenario | PercentileInterval) -> str:
    """Returns "3 of 9,818 requests were late, 98 allowed"."""
    failed = f" ({counts.errors:,} failed)" if counts.errors else ""
    return f"{counts.late:,} of {counts.requests:,} requests were late{failed}, {counts.late_allowed:,} allowed"


def _scenario(load: Load, test: SequentialTest | None) -> ProofScenario:
    interval = test.interval if test is not None else None
    return ProofScenario(
        name=load.name,
        instances_left=load.instances_left,
        asked=load.required,
        invocations_per_minute=test.rate_per_minute if test is not None else None,
        verdict=test.verdict if test is not None else "missed",
        latency_ms=_finite(interval.latency_ms) if interval else None,
        latency_interval_ms=(_finite(interval.low_ms), _finite(interval.high_ms)) if interval else (None, None),
        **({name: getattr(interval, name) for name in COPIED} if interval else {}),
    )


def _deciding(scenarios: tuple[ProofScenario, ...]) -> ProofScenario:
    """Returns the scenario with the worst verdict. A load that is not required decides only if it missed.

    Of two equal verdicts the one that says more: the higher rate kept, or the lower rate missed.
    """
    deciding = [each for each in scenarios if each.asked or each.verdict == "missed"]
    worst = min((each.verdict for each in deciding), key=WORST_FIRST.index)
    equal = [each for each in deciding if each.verdict == worst]
    return equal[0] if worst == "missed" else equal[-1]


def _finite(latency_ms: float) -> float | None:
    return latency_ms if latency_ms < float("inf") else None


def loads(recommended: Candidate, objective: LatencyObjective, sizing: Sizing) -> tuple[Load, Load]:
    """Returns the load at the peak and the one after a loss. `recommended` must have an instance count."""
    assert recommended.instance_count is not None
    peak, count = objective.peak_invocations_per_minute, recommended.instance_count
    of_a_zone = math.ceil(count / sizing.availability_zones) if sizing.availability_zones else 0
    single = max(sizing.spare_instances, 1)
    left = max(count - max(of_a_zone, single), 0)
    after_loss = peak / left if left else None
    return (
        Load(name="peak", instances_left=count, per_instance=peak / count, required=True, within_capacity=True),
        Load(
            name="zone-lost" if of_a_zone >= single else "instance-lost",
            instances_left=left,
            per_instance=after_loss,
            required=bool(sizing.spare_instances or sizing.availability_zones),
            within_capacity=after_loss is not None and after_loss <= capacity_lower_bound(recommended),
        ),
    )


def capacity_lower_bound(recommended: Candidate) -> float:
    """Returns the lower end of the capacity's interval, in invocations per minute; without an interval the capacity
    itself, or 0 if it is unknown.
    """
    low, _ = recommended.max_invocations_interval or (recommended.max_invocations_per_minute or 0.0, None)
    return low
