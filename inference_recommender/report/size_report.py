"""The reports of `size`: a fleet from evidence, a batch's shards, and the price catalogue. Pure."""

from collections.abc import Sequence

from inference_recommender.report.candidates import no_candidate, notes
from inference_recommender.report.document import Report, table
from inference_recommender.sizing.fleet import Demand
from inference_recommender.sizing.prices import Catalogue
from workloads import BatchSizing, Candidate

SHARDS = (
    ("fleet", "", ""),
    ("instance_type", "instance type", ""),
    ("known_by", "rate", ""),
    ("rows_per_second", "rows/s", ",.4g"),
    ("shards", "shards", ",d"),
    ("run_s", "run, s", ",.0f"),
    ("cost_per_hour_usd", "$/h", ",.3f"),
    ("cost_per_run_usd", "$/run", ",.4f"),
    ("cost_per_million_rows_usd", "$/1M", ",.4f"),
)
CATALOGUE = (
    ("region", "region", ""),
    ("instance_type", "instance type", ""),
    ("usd_per_hour", "$/h", "g"),
    ("collected", "collected", ""),
    ("source", "source", ""),
)


def fleet_report(
    candidates: Sequence[Candidate], chosen: Candidate | None, demand: Demand, cautions: Sequence[str], *, explain: bool
) -> Report:
    """Returns the candidates for a demand. `explain` adds the source of each price."""
    limit = "" if demand.model_latency_ms is None else f" within {demand.model_latency_ms:g} ms"
    columns = (
        ("candidate", "candidate", ""),
        ("capacity_basis", "method", ""),
        ("max_invocations_per_minute", "capacity /min", ",.0f"),
        ("closed_loop_invocations_per_minute", "closed-loop /min", ",.0f"),
        ("model_latency_ms", "closed-loop ms", ",.4g"),
        ("objective_latency_ms", f"{demand.percentile or 'judged'} ms", ",.4g"),
        ("instance_count", "instances", ",d"),
        ("cost_per_hour_usd", "$/h", ",.3f"),
        ("cost_per_million_invocations_usd", "$/1M", ",.3f"),
    )
    rows = [{**dict(each), "candidate": each.title} for each in candidates]
    lines = []
    for each in candidates:
        sentences = [each.reason, *notes(each)]
        if explain or each.cost_per_hour_usd is None:
            sentences.append(f"Price: {each.cost_reason}")
        lines.append(f"{each.instance_type}: {' '.join(sentences)}")
    return Report(
        kind="size",
        name="Fleet",
        workload=None,
        objective=f"{demand.peak_invocations_per_minute:,.0f} invocations/min{limit}",
        verdict="met" if chosen else "missed" if all(each.verified for each in candidates) else "unknown",
        decision=f"Recommended: {chosen.instance_count} × {chosen.instance_type}."
        if chosen
        else no_candidate(candidates),
        cautions=tuple(cautions),
        tables=(table("candidates", "Candidates", columns, rows),),
        notes=tuple(lines),
    )


def batch_report(result: BatchSizing, *, explain: bool) -> Report:
    """Returns the shards of a batch, and its baseline if there is one. `explain` adds the source of each price."""
    fleets = {"recommended": result.recommended, **({"baseline": result.baseline} if result.baseline else {})}
    rows, lines = [], []
    for name, fleet in fleets.items():
        basis = fleet.known_by if fleet.known_by == "stated" else f"measured, {fleet.known_by}"
        rows.append({**dict(fleet), "fleet": name, "known_by": basis})
        price = f" Price: {fleet.cost_reason}" if explain or fleet.cost_per_hour_usd is None else ""
        lines.append(
            f"{name.capitalize()}: {fleet.rows_per_second:,.4g} rows/s on {fleet.instance_type}: {fleet.source}.{price}"
        )
    if result.saving_percent is not None:
        change = "less" if result.saving_percent >= 0 else "more"
        lines.append(f"A row costs {abs(result.saving_percent):.1f} % {change} than on the baseline.")
    run = f", {result.rows_per_run:,} rows a run" if result.rows_per_run else ""
    return Report(
        kind="size",
        name=result.workload,
        workload=result.workload,
        objective=f"{result.objective.rows_per_second:,g} rows/s{run}",
        verdict="met",
        decision=f"Recommended: {result.recommended.shards} × {result.recommended.instance_type}.",
        tables=(table("shards", "Shards", SHARDS, rows),),
        notes=(*lines, result.reason),
    )


def catalogue_report(catalogue: Catalogue) -> Report:
    """Returns the prices of the catalogue, and the reasons for types without one."""
    rows: list[tuple[str | float | None, ...]] = [
        (region, name, price.usd_per_hour, str(price.collected), price.source)
        for region, listed in catalogue.regions.items()
        for name, price in listed.items()
    ]
    rows += [(None, name, None, None, why) for name, why in catalogue.unlisted.items()]
    return Report(
        kind="size",
        name="Prices",
        workload=None,
        objective="on-demand prices per hour",
        verdict="unknown",
        decision=f"{len(rows)} entries. `size --refresh-prices` updates them.",
        tables=(table("prices", "Prices", CATALOGUE, rows),),
    )
