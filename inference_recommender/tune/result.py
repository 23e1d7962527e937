"""The result of `tune`, and its patch of workload.toml. Pure."""

import json
from collections.abc import Mapping, Sequence
from math import inf, isfinite, log, sqrt
from statistics import NormalDist
from typing import Any

from pydantic import Field

from inference_recommender.sizing.fleet import cost_per_million_usd
from inference_recommender.tune.probe_counts import deviation
from inference_recommender.tune.race import EndReason, Entrant, Race
from inference_recommender.tune.space import LeftOut, ServingConfiguration
from workloads import LatencyObjective, Workload
from workloads.document import Document

MOST_UNSURE = 0.15
"""Half the winner's interval over its capacity above which the best is unknown."""
VARIANT = "tuned"
TUNED_KEYS = (
    "max_batch_size",
    "dynamic_batching",
    "preferred_batch_sizes",
    "max_queue_delay_ms",
    "model_instances",
)


class TunedConfiguration(Document):
    """A configuration of the race, with its capacity within the limit if that is known."""

    configuration: ServingConfiguration
    invocations_per_minute: float | None
    interval: tuple[float | None, float | None] = Field(description="95 %; None for an unknown end.")
    probes: int
    load_s: float = Field(description="Seconds of its probes.")
    requests: int
    cost_per_million_usd: float | None = Field(description="At its capacity; None without a price.")
    outcome: str = Field(description="Why it dropped out, or its place.")

    @property
    def label(self) -> str:
        return self.configuration.label


class TuneResult(Document):
    workload: str
    objective: LatencyObjective
    instance_type: str | None
    machine: str
    measured_at: str
    reason: str = Field(description="Why the search ended.")
    complaint: str = Field(description="Why the generator was the bottleneck, if it was.")
    has_best: bool
    ranked: tuple[TunedConfiguration, ...] = Field(description="The best first.")
    best_is_better: float | None = Field(
        description="Probability that the best has a higher capacity than the runner-up; None if either is unknown."
    )
    load_s: float
    loads: int = Field(description="Number of times that Triton loaded another configuration.")
    left_out: tuple[LeftOut, ...] = Field(description="Configurations that were not tried, with the reason.")

    @property
    def best(self) -> TunedConfiguration | None:
        return self.ranked[0] if self.has_best else None

    @property
    def runner_up(self) -> TunedConfiguration | None:
        second = self.ranked[1] if self.has_best and len(self.ranked) > 1 else None
        return second if second and second.invocations_per_minute else None

    @property
    def is_known(self) -> bool:
        """Whether the interval of the best is narrow enough for a verdict."""
        if self.best is None or self.best.invocations_per_minute is None:
            return False
        low, high = self.best.interval
        return low is not None and high is not None and high - low <= 2 * MOST_UNSURE * self.best.invocations_per_minute


def result(
    race: Race,
    workload: Workload,
    left_out: Sequence[LeftOut],
    *,
    instance_type: str | None,
    price_per_hour_usd: float | None,
    machine: str,
    measured_at: str,
) -> TuneResult:
    """Returns the result of the race so far."""
    # The runner-up is the one that stayed longest in the race.
    others = [each for each in race.entrants if each is not race.leader]
    others.sort(key=lambda each: (each.rate > 0, not each.out, each.duration_s, each.rate), reverse=True)
    ranked = [*([race.leader] if race.leader else []), *others]
    return TuneResult(
        workload=workload.name,
        objective=workload.latency_objective,
        instance_type=instance_type,
        machine=machine,
        measured_at=measured_at,
        reason=race.reason.value,
        complaint=race.complaint,
        has_best=race.leader is not None,
        ranked=tuple(_tuned(each, race, price_per_hour_usd) for each in ranked),
        best_is_better=_better(race.leader, others[0]) if race.leader and others else None,
        load_s=race.spent_s,
        loads=race.visits,
        left_out=tuple(left_out),
    )


def _tuned(entrant: Entrant, race: Race, price_per_hour_usd: float | None) -> TunedConfiguration:
    estimate = entrant.estimate
    outcome = "best" if entrant is race.leader else entrant.out or "still in the race"
    return TunedConfiguration(
        configuration=entrant.configuration,
        invocations_per_minute=estimate.rate if estimate else None,
        interval=(
            (estimate.low or None, estimate.high if isfinite(estimate.high) else None) if estimate else (None, None)
        ),
        probes=len(entrant.probes),
        load_s=entrant.duration_s,
        requests=entrant.requests,
        cost_per_million_usd=(
            cost_per_million_usd(price_per_hour_usd, estimate.rate) if estimate and price_per_hour_usd else None
        ),
        outcome=outcome if entrant.probes or entrant.out else "not tried: the search ended before",
    )


def _better(best: Entrant, other: Entrant) -> float | None:
    """Returns the probability that `best` has the higher capacity, from two independent normal logarithms."""
    if best.estimate is None or other.estimate is None:
        return None
    spread = sqrt(deviation(best.estimate) ** 2 + deviation(other.estimate) ** 2)
    if spread in (0.0, inf):
        return None
    return NormalDist().cdf(log(best.rate / other.rate) / spread)


def decision(result: TuneResult) -> str:
    """Returns the configuration to serve, or why there is none."""
    best, limit = result.best, f"{result.objective.percentile} ≤ {result.objective.model_latency_ms:g} ms"
    if result.reason == EndReason.NOTHING_KEEPS.value:
        return f"Serve none of them: {result.reason}."
    if best is None or not result.is_known:
        why = result.complaint.removesuffix(".") or result.reason
        return f"Inconclusive: the best is not known to 15 %, and the search ended because {why}."
    order = (
        "" if result.best_is_better is None else f" It beats the runner-up with {result.best_is_better:.0%} confidence."
    )
    return f"Serve with {best.label}: {best.invocations_per_minute:,.0f} invocations/min within {limit}.{order}"


def patch(workload: Workload, result: TuneResult) -> str:
    """Returns tables for workload.toml: `[variants.tuned]`, and a target if the best has other threads."""
    assert result.best is not None, "a known result has one"
    best, tables = result.best.configuration, []
    target = workload.targets[best.target]
    name, variant = best.target, _free(VARIANT, workload.deployables)
    if best.threads is not None and best.threads != getattr(target, "threads", None):
        name = _free(f"{best.target[:20]}-{best.threads}threads", workload.deployables)
        tables.append(
            (f"targets.{name}", {**target.model_dump(mode="json", exclude_defaults=True), "threads": best.threads})
        )
    serving = best.serving.model_dump(mode="json")
    tables.append((f"variants.{variant}", {"target": name, "serving": {key: serving[key] for key in TUNED_KEYS}}))
    head = f"# {decision(result)}\n# Measured {result.measured_at} on {result.machine}.\n"
    return head + "\n".join(_table(header, values) for header, values in tables)


def _free(name: str, taken: Sequence[str]) -> str:
    """Returns the name, with the first number that makes it new if it is taken."""
    names = [name, *(f"{name}-{number}" for number in range(2, len(taken) + 3))]
    return next(each for each in names if each not in taken)


def _table(header: str, values: Mapping[str, Any]) -> str:
    return "\n".join([f"[{header}]", *(f"{key} = {_toml(value)}" for key, value in values.items())]) + "\n"


def _toml(value: Any) -> str:
    match value:
        case dict():
            return f"{{ {', '.join(f'{key} = {_toml(each)}' for key, each in value.items())} }}"
        case list() | tuple():
            return f"[{', '.join(map(_toml, value))}]"
        case _:
            return json.dumps(value, ensure_ascii=False)
