"""The report of `tune`, which is its result: the capacity of each configuration, the one to serve, and its patch."""

import json
from collections.abc import Sequence
from math import inf, isfinite, log, sqrt
from statistics import NormalDist
from typing import Any

from inference_recommender.capacity.rate_at_limit import RateAtLimit
from inference_recommender.capacity.statistics import CONFIDENCE
from inference_recommender.report.document import Plot, Report, ReportVerdict, table
from inference_recommender.report.inputs import read_inputs
from inference_recommender.report.plots import BLUE, GREY, ORANGE, drawn, new_figure
from inference_recommender.report.sections import CHANGING_TRAFFIC, COLD_START, OTHER_PAYLOADS, generator_table, present
from inference_recommender.sizing.fleet import cost_per_million_usd
from inference_recommender.tune.folder import TuneFolder
from inference_recommender.tune.race import EndReason, Entrant, Race
from workloads import Workload

CONFIGURATIONS = (
    ("configuration", "configuration", ""),
    ("invocations_per_minute", "capacity /min", ",.0f"),
    ("interval_low", "95 % from", ",.0f"),
    ("interval_high", "to", ",.0f"),
    ("probes", "probes", ",d"),
    ("duration_s", "load, s", ",.0f"),
    ("requests", "requests", ",d"),
    ("cost_per_million_usd", "$/1M", ",.3f"),
    ("outcome", "outcome", ""),
)
LEFT_OUT = (("reason", "not tried, because", ""), ("configurations", "configurations", ",d"))
MOST_UNSURE = 0.15
"""Half the winner's interval over its capacity above which the best is unknown."""
TUNED_KEYS = ("max_batch_size", "dynamic_batching", "preferred_batch_sizes", "max_queue_delay_ms", "model_instances")
MOST_DRAWN = 16
"""Maximum number of configurations in the figure; the table has all of them."""
ROW_IN, LEAST_IN, WIDTH_IN = 0.3, 2.4, 10.6


def tune_report(
    folder: TuneFolder, race: Race, *, price_per_hour_usd: float | None, machine: str, measured_at: str
) -> Report:
    """Returns the report of a race so far, the best first."""
    plan, workload, inputs = folder.plan(), folder.workload(), read_inputs(folder.path)
    # The runner-up is the one that stayed longest in the race.
    others = [each for each in race.entrants if each is not race.leader]
    others.sort(key=lambda each: (each.rate > 0, not each.out, each.duration_s, each.rate), reverse=True)
    ranked = [*([race.leader] if race.leader else []), *others]
    objective = workload.latency_objective
    within = f"{objective.percentile} ≤ {objective.model_latency_ms:g} ms"
    is_known = race.leader is not None and race.leader.is_known_within(MOST_UNSURE)
    verdict: ReportVerdict = "missed" if race.reason is EndReason.NOTHING_KEEPS else "met" if is_known else "unknown"
    if race.leader and verdict == "met":
        better = _better(race.leader, others[0]) if others else None
        order = "" if better is None else f" It beats the runner-up with {better:.0%} confidence."
        best = race.leader.configuration.label
        decision = f"Serve with {best}: {race.leader.rate:,.0f} invocations/min within {within}.{order}"
    elif verdict == "missed":
        decision = f"Serve none of them: {race.reason.value}."
    else:
        why = race.complaint.removesuffix(".") or race.reason.value
        decision = f"Inconclusive: the best is not known to 15 %, and the search ended because {why}."
    archives = {f"archive of {target}": sha256 for target, sha256 in plan.archives.items()}
    note = f"Capacity within {within}. Figures of configurations that dropped out early are rough, and rather too high."
    left_out = [(reason, len(labels)) for reason, labels in plan.left_out.items()]
    rows = [_row(each, race, price_per_hour_usd) for each in ranked]
    head = f"# {decision}\n# Measured {measured_at} on {machine}.\n"
    return Report(
        kind="tune",
        name=folder.path.resolve().name,
        workload=workload.name,
        description=workload.description,
        objective=f"highest rate within {within}",
        verdict=verdict,
        decision=decision,
        cautions=(
            f"Measured on {machine}, together with the load generator. Another machine may have another best "
            "configuration.",
        ),
        tables=present(
            (
                table("configurations", "Configurations", CONFIGURATIONS, rows, note),
                table("left-out", "Left out", LEFT_OUT, left_out, detail=True) if left_out else None,
                generator_table(inputs),
            )
        ),
        patch=head + patch(workload, race.leader) if race.leader and verdict == "met" else None,
        not_tested=(
            f"{sum(not each.probes for each in ranked)} of {len(ranked)} configurations, which had no probe. The table "
            "has the reasons.",
            "No fleet was sized or proven, and nothing was measured behind an endpoint.",
            OTHER_PAYLOADS,
            COLD_START,
            CHANGING_TRAFFIC,
        ),
        environment={
            "fingerprint": inputs.fingerprint(
                machine, *archives.values(), *(each.configuration.label for each in ranked)
            ),
            "measured on": machine,
            "measured at": measured_at,
            "represents": plan.instance_type or "unknown",
            **archives,
            **inputs.facts(),
        },
    )


def _row(entrant: Entrant, race: Race, price_per_hour_usd: float | None) -> tuple[str | float | None, ...]:
    known = entrant.estimate
    outcome = "best" if entrant is race.leader else entrant.out or "still in the race"
    return (
        entrant.configuration.label,
        known.rate if known else None,
        (known.low or None) if known else None,
        known.high if known and isfinite(known.high) else None,
        len(entrant.probes),
        entrant.duration_s,
        sum(each.sent for each in entrant.probes),
        cost_per_million_usd(price_per_hour_usd, known.rate) if known and price_per_hour_usd else None,
        outcome if entrant.probes or entrant.out else "not tried: the search ended before",
    )


def _better(best: Entrant, other: Entrant) -> float | None:
    """Returns the probability that `best` has the higher capacity, from two independent normal logarithms."""
    if best.estimate is None or other.estimate is None:
        return None
    spread = sqrt(_deviation(best.estimate) ** 2 + _deviation(other.estimate) ** 2)
    return None if spread in (0.0, inf) else NormalDist().cdf(log(best.rate / other.rate) / spread)


def _deviation(rate: RateAtLimit) -> float:
    """Returns the standard deviation of the rate's logarithm. Infinite if an end of the interval is unknown."""
    if rate.low <= 0 or rate.high == inf:
        return inf
    return log(rate.high / rate.low) / (2 * NormalDist().inv_cdf((1 + CONFIDENCE) / 2))


def patch(workload: Workload, best: Entrant) -> str:
    """Returns tables for workload.toml: `[variants.tuned]`, and a target if the best has other threads."""
    chosen, tables = best.configuration, []
    target = workload.targets[chosen.target]
    name, variant = chosen.target, _free("tuned", workload.deployables)
    if chosen.threads is not None and chosen.threads != getattr(target, "threads", None):
        name = _free(f"{chosen.target[:20]}-{chosen.threads}threads", workload.deployables)
        changed = {**target.model_dump(mode="json", exclude_defaults=True), "threads": chosen.threads}
        tables.append((f"targets.{name}", changed))
    serving = chosen.serving.model_dump(mode="json")
    tables.append((f"variants.{variant}", {"target": name, "serving": {key: serving[key] for key in TUNED_KEYS}}))
    lines = ([f"[{head}]", *(f"{key} = {_toml(value)}" for key, value in values.items())] for head, values in tables)
    return "\n".join("\n".join(each) + "\n" for each in lines)


def _free(name: str, taken: Sequence[str]) -> str:
    """Returns the name, with the first number that makes it new if it is taken."""
    names = [name, *(f"{name}-{number}" for number in range(2, len(taken) + 3))]
    return next(each for each in names if each not in taken)


def _toml(value: Any) -> str:
    match value:
        case dict():
            return f"{{ {', '.join(f'{key} = {_toml(each)}' for key, each in value.items())} }}"
        case list() | tuple():
            return f"[{', '.join(map(_toml, value))}]"
        case _:
            return json.dumps(value, ensure_ascii=False)


def tune_figures(report: Report) -> dict[str, Plot]:
    """Returns a figure of each capacity with its interval, the best at the top, by its title."""
    known = [row for row in report.tables[0].rows if row["invocations_per_minute"]][:MOST_DRAWN]
    if not known:
        return {}
    figure, axes = new_figure((WIDTH_IN, max(LEAST_IN, ROW_IN * len(known) + 1.0)))
    names = ("invocations_per_minute", "interval_low", "interval_high")
    rates, lows, highs = ([float(row[name] or 0.0) for row in known] for name in names)
    for place, (low, high) in enumerate(zip(lows, highs, strict=True)):
        ends, label = (low, min(high or inf, max(rates) * 2)), "_" if place else "95 % interval"
        axes.plot(ends, (place, place), color=GREY, linewidth=1.6, marker="|", label=label)
    colours = [BLUE if place else ORANGE for place in range(len(known))]
    axes.scatter(rates, range(len(known)), s=30, color=colours, zorder=3, label="capacity")
    axes.set_yticks(range(len(known)), [str(row["configuration"]) for row in known])
    axes.set_ylim(len(known) - 0.5, -0.5)
    axes.set(xlabel="invocations per minute within the objective", xlim=(0, None))
    axes.xaxis.set_major_formatter("{x:,.0f}")
    return {"Capacity of each configuration": drawn(figure, legend_columns=2)}
