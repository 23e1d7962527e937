"""The result of a search for the best configuration: in numbers, in sentences, as a patch of workload.toml. Pure."""

import json
from collections.abc import Mapping, Sequence
from math import inf, isfinite, log, sqrt
from statistics import NormalDist
from typing import Any

from pydantic import Field

from inference_recommender.output import interval_text
from inference_recommender.sizing.fleet import cost_per_million_usd
from inference_recommender.tune.race import Entrant, Race
from inference_recommender.tune.space import Configuration, LeftOut
from workloads import LatencyObjective, Workload
from workloads.document import Document

MOST_UNSURE = 0.15
"""Half the winner's interval over its capacity, above which there is no verdict."""
VARIANT = "tuned"
TUNED_KEYS = (
    "max_batch_size",
    "dynamic_batching",
    "preferred_batch_sizes",
    "max_queue_delay_ms",
    "model_instances",
)


class Placed(Document):
    """A configuration and what it bears within the limit."""

    label: str
    configuration: Configuration
    invocations_per_minute: float
    interval: tuple[float | None, float | None] = Field(description="95 %; None where an end is not known.")
    requests: int
    cost_per_million_usd: float | None = Field(description="At its capacity; None without an instance type's price.")


class Fallen(Document):
    label: str
    why: str
    requests: int


class TuneResult(Document):
    workload: str
    objective: LatencyObjective
    instance_type: str | None
    machine: str
    measured_at: str
    reason: str
    complaint: str = Field(description="Why the generator was the bottleneck, where it was.")
    best: Placed | None
    runner_up: Placed | None
    best_is_better: float | None = Field(
        description="Probability that the best bears more than the runner-up; None where either is not known."
    )
    configurations: int
    probed: int
    requests: int
    load_s: float
    loads: int = Field(description="How often Triton loaded another configuration.")
    out: tuple[Fallen, ...]
    left_out: tuple[LeftOut, ...] = Field(description="Configurations that were never in the race.")

    @property
    def is_known(self) -> bool:
        """Whether the best is known well enough to be named."""
        if self.best is None:
            return False
        low, high = self.best.interval
        rate = self.best.invocations_per_minute
        return low is not None and high is not None and high - low <= 2 * MOST_UNSURE * rate


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
    """Returns what the race came to so far."""
    ranked = _ranked(race)
    placed = [_placed(each, price_per_hour_usd) for each in ranked[:2]]
    return TuneResult(
        workload=workload.name,
        objective=workload.latency_objective,
        instance_type=instance_type,
        machine=machine,
        measured_at=measured_at,
        reason=race.reason.value,
        complaint=race.complaint,
        best=placed[0] if placed else None,
        runner_up=placed[1] if len(placed) > 1 else None,
        best_is_better=_better(ranked[0], ranked[1]) if len(ranked) > 1 else None,
        configurations=len(race.entrants),
        probed=sum(bool(each.glimpses) for each in race.entrants),
        requests=race.requests,
        load_s=race.spent_s,
        loads=race.visits,
        out=tuple(
            Fallen(
                label=each.configuration.label,
                why=each.out or ("not tried: the search ended before" if not each.glimpses else "still in the race"),
                requests=each.requests,
            )
            for each in race.entrants
            if each not in ranked[:2]
        ),
        left_out=tuple(left_out),
    )


def _ranked(race: Race) -> list[Entrant]:
    """Returns the leader, then the others with a capacity: those that stayed longest in the race first."""
    if race.leader is None:
        return []
    others = [each for each in race.entrants if each is not race.leader and each.rate]
    others.sort(key=lambda each: (not each.out, each.duration_s, each.rate), reverse=True)
    return [race.leader, *others]


def _placed(entrant: Entrant, price_per_hour_usd: float | None) -> Placed:
    estimate = entrant.estimate
    assert estimate is not None, "it is ranked by it"
    return Placed(
        label=entrant.configuration.label,
        configuration=entrant.configuration,
        invocations_per_minute=estimate.rate,
        interval=(estimate.low or None, estimate.high if isfinite(estimate.high) else None),
        requests=entrant.requests,
        cost_per_million_usd=None
        if price_per_hour_usd is None
        else cost_per_million_usd(price_per_hour_usd, estimate.rate),
    )


def _better(best: Entrant, other: Entrant) -> float | None:
    """Returns the probability that `best` bears more, from two independent normal logarithms."""
    if best.estimate is None or other.estimate is None:
        return None
    deviation = sqrt(best.estimate.deviation**2 + other.estimate.deviation**2)
    if deviation in (0.0, inf):
        return None
    return NormalDist().cdf(log(best.rate / other.rate) / deviation)


def patch(workload: Workload, found: TuneResult) -> str:
    """Returns the tables of workload.toml that say how the best is served: `[variants.tuned]`, and a target of its own
    where its threads are not the target's.
    """
    assert found.best is not None, "there is something to patch"
    best, tables = found.best.configuration, []
    target = workload.targets[best.target]
    name, variant = best.target, _free(VARIANT, workload.deployables)
    if best.threads is not None and best.threads != getattr(target, "threads", None):
        name = _free(f"{best.target[:20]}-{best.threads}threads", workload.deployables)
        tables.append(
            (f"targets.{name}", {**target.model_dump(mode="json", exclude_defaults=True), "threads": best.threads})
        )
    serving = best.serving.model_dump(mode="json")
    tables.append((f"variants.{variant}", {"target": name, "serving": {key: serving[key] for key in TUNED_KEYS}}))
    head = f"# {sentence(found)}\n# Measured {found.measured_at} on {found.machine}.\n"
    return head + "\n".join(_table(header, values) for header, values in tables)


def _free(name: str, taken: Sequence[str]) -> str:
    """Returns the name, or with the first number behind it that makes it new."""
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


def sentence(found: TuneResult) -> str:
    """Returns the best in one sentence."""
    asked = f"{found.objective.percentile} ≤ {found.objective.model_latency_ms:g} ms"
    if found.best is None:
        return f"{asked}: {found.reason}."
    return f"{asked}: {found.best.label} bears {_rate(found.best)}."


def sentences(found: TuneResult) -> list[str]:
    """Returns what a person should know: the best, the runner-up, how sure, what was not tried."""
    said = [sentence(found)]
    if found.best is not None and found.best.cost_per_million_usd is not None:
        said.append(
            f"At its capacity a million cost {found.best.cost_per_million_usd:.2f} USD on {found.instance_type}."
        )
    if found.runner_up is not None:
        sure = "" if found.best_is_better is None else f" The first bears more with {found.best_is_better:.0%}."
        said.append(f"Runner-up: {found.runner_up.label}, {_rate(found.runner_up)}.{sure}")
    said.append(
        f"{found.configurations} configurations, {found.probed} of them probed, {found.requests:,} requests in "
        f"{found.load_s:,.0f} s of load; the search ended because {found.reason}."
    )
    unprobed = found.configurations - found.probed
    if unprobed:
        said.append(f"Not tried: {unprobed}, {_reasons([each for each in found.out if not each.requests])}.")
    said += [f"Left out before: {len(each.configurations)}, since {each.reason}." for each in found.left_out]
    return said


def _rate(placed: Placed) -> str:
    ends = interval_text(*placed.interval, ",.0f")
    return f"{placed.invocations_per_minute:,.0f} invocations/min (95 % interval {ends})"


def _reasons(fallen: Sequence[Fallen]) -> str:
    counts: dict[str, int] = {}
    for each in fallen:
        kind = each.why.partition(":")[0]
        counts[kind] = counts.get(kind, 0) + 1
    words = {
        "bounded": "ruled out by the most that their like could answer",
        "refused": "not loaded by Triton",
        "not judged": "not judged, since the generator was the bottleneck",
        "not tried": "left when the search ended",
    }
    return ", ".join(f"{count} {words.get(kind, kind)}" for kind, count in counts.items())
