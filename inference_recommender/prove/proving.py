"""Proves a recommendation under its loads, one after another, and concludes. Pure: a `Probe` is its one port."""

from collections.abc import Callable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from inference_recommender.capacity.percentile_interval import PercentileInterval
from inference_recommender.capacity.search import Probe
from inference_recommender.load_test.target import Target
from inference_recommender.measurement import limit_of
from inference_recommender.prove.loads import Load, loads
from inference_recommender.prove.sequential import SequentialTest, looks_s, shortest_s, warm_up
from workloads import Proof, ProofScenario, Recommendation, Sizing, UsageError

WORST_FIRST = ("missed", "unclear", "kept")
AFTER = {
    "peak": "",
    "instance-lost": " when an instance is lost",
    "zone-lost": " when a zone is lost",
}

Looked = Callable[[Load, float, PercentileInterval], None]
"""Is told each look: the load, the rate that is sent for it, and the percentile so far."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Origin:
    """Where and when a proof was made."""

    machine: str
    measured_at: str
    run: str


@dataclass(slots=True)
class Proving:
    """One proof, of which `proof` can be asked at any time, also after an interruption."""

    recommendation: Recommendation
    target: Target
    probe: Probe
    longest_s: float
    """Seconds of load, the two loads together, after the service has warmed up."""
    sizing: Sizing
    looked: Looked = lambda load, rate, interval: None
    tests: tuple[tuple[Load, SequentialTest | None], ...] = field(init=False)
    """None stands for a load with no instance left to send it to."""

    def __post_init__(self) -> None:
        """Raises `UsageError` where the time is too short for the percentile."""
        chosen = self.recommendation.recommended
        assert chosen is not None, "there is something to prove"
        every = loads(chosen, self.recommendation.objective, self.sizing)
        self.tests = tuple((load, self._test(load)) for load in every)

    def run(self) -> None:
        """Warms up at the peak's rate, then takes each test to its end. Raises what the probe raises."""
        for number, (_, test) in enumerate(self.tests):
            if test is not None:
                if number == 0:
                    warm_up(self.probe, test.rate_per_minute)
                test.run()

    def proof(self, origin: Origin) -> Proof:
        """Returns what is known so far."""
        scenarios = tuple(_scenario(load, test) for load, test in self.tests)
        claimed = {load.name for load, _ in self.tests if load.claimed}
        deciding = _deciding(scenarios, claimed)
        objective = self.recommendation.objective
        return Proof(
            verdict=deciding.verdict,
            scenario=deciding.name,
            invocations_per_minute=deciding.invocations_per_minute,
            percentile=objective.percentile,
            latency_ms=deciding.latency_ms,
            latency_interval_ms=deciding.latency_interval_ms,
            limit_ms=objective.model_latency_ms,
            reason=_reason(deciding, objective.percentile, objective.model_latency_ms),
            scenarios=scenarios,
            instances=self.target.instances,
            instance_type=self.target.instance_type,
            archive_sha256=self.target.archive_sha256,
            target=self.target.name,
            measured_on=self.target.measured_on,
            machine=origin.machine,
            measured_at=origin.measured_at,
            run=origin.run,
        )

    def _test(self, load: Load) -> SequentialTest | None:
        if load.per_instance is None:
            return None
        limit, rate = limit_of(self.recommendation.objective), load.per_instance * self.target.instances
        looks = looks_s(rate, limit.percentile, self.longest_s / 2)
        if not looks:
            needed_s = np.ceil(2 * shortest_s(rate, limit.percentile))
            raise UsageError(
                f"--max-duration-s: {self.longest_s:g} s are too short: {self.recommendation.objective.percentile} at "
                f"{rate:,.0f} invocations/min needs at least {needed_s:,.0f} s for the two loads."
            )
        return SequentialTest(
            probe=self.probe,
            rate_per_minute=rate,
            limit=limit,
            looks_s=looks,
            looked=lambda interval: self.looked(load, rate, interval),
        )


def _scenario(load: Load, test: SequentialTest | None) -> ProofScenario:
    interval = test.interval if test is not None else None
    verdict: Literal["kept", "missed", "unclear"] = test.verdict if test is not None else "missed"
    return ProofScenario(
        name=load.name,
        instances_left=load.instances_left,
        asked=load.asked,
        invocations_per_minute=test.rate_per_minute if test is not None else None,
        verdict=verdict,
        latency_ms=_known(interval.latency_ms) if interval else None,
        latency_interval_ms=(_known(interval.low_ms), _known(interval.high_ms)) if interval else (None, None),
        requests=interval.requests if interval else 0,
        errors=interval.errors if interval else 0,
        duration_s=interval.duration_s if interval else 0.0,
    )


def _deciding(scenarios: tuple[ProofScenario, ...], claimed: AbstractSet[str]) -> ProofScenario:
    """Returns the scenario of the worst verdict, of those that the fleet was sized for and those that show that the
    recommendation is not true. Of two alike it is that which says more: the higher rate that was kept, the lower one
    that was missed.
    """
    deciding = [each for each in scenarios if each.asked or (each.verdict == "missed" and each.name in claimed)]
    worst = min((each.verdict for each in deciding), key=WORST_FIRST.index)
    alike = [each for each in deciding if each.verdict == worst]
    return alike[0] if worst == "missed" else alike[-1]


def _reason(deciding: ProofScenario, percentile: str, limit_ms: float) -> str:
    after, rate = AFTER[deciding.name], deciding.invocations_per_minute
    if rate is None:
        return f"No instance is left{after}."
    at = f"at {rate:,.0f} invocations/min{after}"
    if not deciding.requests:
        return f"{percentile} {at} is not known: the proof ended before its first look."
    shown = figures(deciding)
    match deciding.verdict:
        case "kept":
            return f"{percentile} keeps {limit_ms:g} ms {at}: {shown}."
        case "missed":
            claim = "" if deciding.asked else ", a rate that the recommendation says an instance bears"
            return f"{percentile} misses {limit_ms:g} ms {at}{claim}: {shown}."
        case _:
            return f"{percentile} is neither shown to keep {limit_ms:g} ms nor to miss it {at}: {shown}."


def figures(scenario: ProofScenario) -> str:
    """Returns a percentile with its interval, such as "31.2 ms (95 % interval 28.9 to 38.4)"."""
    failed = f"{scenario.errors:,} of {scenario.requests:,} requests failed"
    if scenario.latency_ms is None:
        return failed
    low, high = scenario.latency_interval_ms
    upper = "unknown" if high is None else f"{high:.4g}"
    interval = f"{scenario.latency_ms:.4g} ms (95 % interval {low or 0:.4g} to {upper})"
    return f"{interval}; {failed}" if scenario.errors else interval


def _known(latency_ms: float) -> float | None:
    return latency_ms if latency_ms < float("inf") else None
