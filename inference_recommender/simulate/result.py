"""The result of a policy over all seeds, and the document of `simulate --json`. Pure."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from inference_recommender.capacity.statistics import Floats
from inference_recommender.simulate.curve import LatencyCurve
from inference_recommender.simulate.policy import Outcome, Policy
from inference_recommender.simulate.seeds import Case
from inference_recommender.simulate.simulation import columns_of

MONTH_MINUTES = 30 * 24 * 60
POINTS = 1440
"""Most entries of a timeline."""
QUANTILES = (50, 90, 99)


@dataclass(frozen=True, kw_only=True, slots=True)
class Tolerance:
    """How many minutes over the objective are tolerated, and in which share of seeds."""

    minutes: float = 5.0
    """In a month; a shorter trace is taken for the part of the month that is over it at all."""
    confidence: float = 0.99

    def allowed(self, minutes: float) -> float:
        """Returns the minutes that a trace of that length may be over the objective."""
        return self.minutes * max(1.0, minutes / MONTH_MINUTES)

    def seeds_that_may_exceed(self, seeds: int) -> int:
        return int(seeds * (1 - self.confidence) + 1e-9)


def too_few_seeds(seeds: int, confidence: float) -> str | None:
    """Returns a sentence if so few seeds cannot show a share: one of 99 % needs 100."""
    needed = math.ceil(1 / (1 - confidence) - 1e-9)
    if seeds >= needed:
        return None
    return f"{seeds} seed{'s' * (seeds != 1)}: no share of seeds can be given; use --seeds {needed}."


@dataclass(frozen=True, kw_only=True, slots=True)
class Result:
    """A policy's outcomes."""

    policy: Policy
    outcomes: tuple[Outcome, ...]
    minutes: float
    """Length of the trace."""
    price_per_hour_usd: float | None
    tolerance: Tolerance

    @property
    def exceeding(self) -> int:
        """Seeds with more minutes over the objective than are tolerated."""
        allowed = self.tolerance.allowed(self.minutes)
        return sum(each.minutes_over_objective > allowed for each in self.outcomes)

    @property
    def kept(self) -> bool:
        return self.exceeding <= self.tolerance.seeds_that_may_exceed(len(self.outcomes))

    @property
    def worst(self) -> Outcome:
        """The seed with the most minutes over the objective, then the most late requests."""
        return max(self.outcomes, key=lambda each: (each.minutes_over_objective, each.late_share))

    @property
    def instance_hours(self) -> float:
        return mean([each.instance_hours for each in self.outcomes])

    @property
    def lower_bound_hours(self) -> float:
        return mean([each.lower_bound_hours for each in self.outcomes])

    @property
    def minutes_over(self) -> float:
        return mean([each.minutes_over_objective for each in self.outcomes])

    @property
    def minutes_over_at_confidence(self) -> float:
        """Minutes over the objective that the tolerance's share of seeds does not exceed."""
        ordered = sorted(each.minutes_over_objective for each in self.outcomes)
        return ordered[-1 - self.tolerance.seeds_that_may_exceed(len(ordered))]

    def usd(self, hours: float) -> float | None:
        return None if self.price_per_hour_usd is None else hours * self.price_per_hour_usd

    def summary(self) -> dict[str, Any]:
        """Returns the figures of the policy: means over seeds, and quantiles."""
        requests = sum(each.requests for each in self.outcomes)
        return {
            "minutes_over_objective": self.minutes_over,
            "requests": mean([each.requests for each in self.outcomes]),
            "late_share": sum(each.late for each in self.outcomes) / requests if requests else 0.0,
            "dropped": mean([each.dropped for each in self.outcomes]),
            "instance_hours": self.instance_hours,
            "cost_usd": self.usd(self.instance_hours),
            "lower_bound_instance_hours": self.lower_bound_hours,
            "lower_bound_cost_usd": self.usd(self.lower_bound_hours),
            "most_instances": max(each.most_instances for each in self.outcomes),
            "kept": self.kept,
            "seeds_over_tolerance": self.exceeding,
            "over_seeds": {
                "minutes_over_objective": quantiles([each.minutes_over_objective for each in self.outcomes]),
                "late_share": quantiles([each.late_share for each in self.outcomes]),
                "instance_hours": quantiles([each.instance_hours for each in self.outcomes]),
            },
            "policy": self.policy.document(),
        }

    def extrapolated(self, curve: LatencyCurve) -> dict[str, float] | None:
        """Returns how far the load went beyond all that was measured, None where it did not."""
        above = [each for each in self.outcomes if each.minutes_extrapolated]
        if not above:
            return None
        highest = max(each.highest_rate for each in above)
        return {
            "seeds": len(above),
            "minutes": mean([each.minutes_extrapolated for each in self.outcomes]),
            "highest_invocations_per_minute_and_instance": highest * 60,
            "measured_up_to": curve.measured_up_to * 60,
            "times": highest / curve.measured_up_to,
        }

    def course(self, case: Case, seed: int) -> Mapping[str, Floats]:
        """Returns the course of a seed, simulated again where its outcome has none: an entry per step."""
        known = next((each.timeline for each in self.outcomes if each.seed == seed), {})
        return known or case.run(self.policy, seed, timeline=True).timeline

    def timeline(self, case: Case) -> dict[str, Any]:
        """Returns the worst seed's course: an entry per minute, or a mean of several."""
        worst = self.worst
        columns = columns_of(self.course(case, worst.seed), POINTS)
        length = len(columns["arrivals"])
        return {
            "seed": worst.seed,
            "minutes_per_entry": self.minutes / length,
            "requests_per_second": rounded(columns["arrivals"] / self.policy.step_s),
            "attempts_per_second": rounded(columns["attempts"] / self.policy.step_s),
            "instances_serving": rounded(columns["serving"]),
            "instances_paid": rounded(columns["paid"]),
            "instances_desired": rounded(columns["desired"]),
            "lower_bound_instances": rounded(columns["fewest"]),
            "late_share": [round(float(share), 6) for share in columns["late_share"]],
        }


def document(
    workload: str,
    case: Case,
    result: Result,
    today: Result | None,
    fixed: Result | None,
    found: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Returns the document of `--json`. `today` is the recommended policy, None if that is `result`; `found` is what a
    search adds. `fixed` is None if the simulation was interrupted before it.
    """
    load, curve = case.traffic.load(result.outcomes[0].seed), case.curve
    return {
        "workload": workload,
        "trace": {
            "name": case.traffic.name,
            "sha256": case.traffic.sha256,
            "start": load.start.isoformat(),
            "minutes": result.minutes,
            "mean_invocations_per_minute": round(load.mean_per_minute, 3),
            "peak_invocations_per_minute": round(load.peak_per_minute, 3),
        },
        "seeds": len(result.outcomes),
        "first_seed": result.outcomes[0].seed,
        "tolerance": {
            "minutes_a_month": result.tolerance.minutes,
            "confidence": result.tolerance.confidence,
            "allowed_minutes": result.tolerance.allowed(result.minutes),
        },
        "curve": {
            "basis": curve.basis,
            "max_invocations_per_minute": curve.capacity * 60,
            "saturation_invocations_per_minute": curve.saturation * 60,
            "measured_up_to": curve.measured_up_to * 60,
            "limit_ms": curve.limit_s * 1000,
        },
        "timing": case.timing.document(),
        "price_per_hour_usd": result.price_per_hour_usd,
        **result.summary(),
        "extrapolated": result.extrapolated(curve),
        "today": None if today is None else today.summary(),
        "fixed_fleet": None if fixed is None else fixed.summary(),
        **(found or {}),
        "timeline": result.timeline(case),
    }


def mean(values: Sequence[float]) -> float:
    return float(np.mean(values))


def quantiles(values: Sequence[float]) -> dict[str, float]:
    """Returns quantiles that were observed, and the most."""
    found = np.percentile(values, QUANTILES, method="inverted_cdf")
    return {**{f"p{rank}": float(value) for rank, value in zip(QUANTILES, found, strict=True)}, "most": max(values)}


def rounded(values: Any) -> list[float]:
    return [round(float(value), 2) for value in values]
