"""`report.html` of an experiment: the table, the trade-off, and where the figures are from. Pure."""

from html import escape

from inference_recommender.experiment import plots
from inference_recommender.experiment.result import Result, Row
from inference_recommender.experiment.terminal import locality
from inference_recommender.report.page import CSS
from workloads.instances import shapes_source

UNKNOWN, MISSING = "unknown", "–"
OWN_CSS = """
main{max-width:1280px}tr.cheapest td{background:#e8f5ee;font-weight:600}tr.missed td{color:var(--soft)}
.badge{display:inline-block;border-radius:9px;padding:0 8px;font-size:12px;font-weight:600;margin-right:4px}
th,td{padding:7px 5px}th{white-space:normal;vertical-align:bottom}table{font-size:14px;margin-bottom:14px}
.badge.good{background:#d3ecdf}.badge.front{background:#fbe6d6;color:#8a4413}
"""
HEADS = (
    "variant",
    "instance type",
    "vCPUs",
    "GPUs",
    "Neuron chips",
    "GiB",
    "instances",
    "inv/min per instance",
    "model latency ms",
    "P95 ms",
    "USD/h",
    "USD per million",
    "the same at capacity",
)
RATIO_HEADS = ("inv/min ×", "P95 ×", "USD/1M ×")


def page(result: Result, title: str) -> str:
    """The whole page; `title` is the workload's description."""
    sections = [
        _decision(result),
        _locality(result),
        _table(result),
        *_plots(result),
        _failures(result),
        _origin(result),
    ]
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{escape(result.workload)}: experiment</title>'
        f'<meta name="viewport" content="width=device-width"><style>{CSS}{OWN_CSS}</style><main>'
        f"<h1>{escape(result.workload)}: {len(result.rows)} cells</h1><p class=soft>{escape(title)}</p>"
        f"{''.join(sections)}</main></html>\n"
    )


def _decision(result: Result) -> str:
    objective = result.objective
    asked = (
        f"<p>Asked: {objective.percentile} model latency ≤ {objective.model_latency_ms:g} ms at "
        f"{objective.peak_invocations_per_minute:,} invocations per minute.</p>"
    )
    if result.why_no_verdict:
        return _card("No verdict", f"{asked}<p class=bad>{escape(result.why_no_verdict)}</p>")
    chosen = next((row for row in result.rows if row.cheapest), None)
    if chosen is None or chosen.candidate is None:
        return _card("No cell meets the objective", asked)
    one = chosen.candidate
    figures = (
        (f"{one.instance_count} × {chosen.instance_type}", "initial instance count"),
        (chosen.variant, "variant"),
        (_figure(chosen.rate, ",.0f"), "invocations per minute and instance"),
        (f"{_figure(chosen.latency_ms, ',.4g')} ms", f"{objective.percentile} model latency there"),
        (_usd(one.cost_per_hour_usd), "cost per hour"),
        (_usd(one.cost_per_million_invocations_usd), "cost per million invocations"),
    )
    shown = "".join(f"<div><b>{escape(value)}</b><span>{label}</span></div>" for value, label in figures)
    reason = f"<p><span class=good>{escape(one.reason)}</span> {escape(one.cost_reason or '')}</p>"
    known = one.cost_per_hour_usd is not None
    title = "The cheapest that meets the objective" if known else "Meets the objective with the fewest instances"
    return _card(title, f"{asked}<div class=figures>{shown}</div>{reason}")


def _locality(result: Result) -> str:
    note = locality(result)
    if not note:
        return ""
    return (
        f"<div class='card note'><p><b>{escape(note)}</b> vCPUs and memory are those of the types, not of "
        "this machine. The figures compare the variants; size production from jobs that SageMaker ran.</p></div>"
    )


def _table(result: Result) -> str:
    heads = (*HEADS, *(RATIO_HEADS if result.baseline else ()))
    head = "".join(f"<th>{escape(name)}</th>" for name in heads)
    rows = "".join(_row(row, with_ratios=result.baseline is not None) for row in result.rows)
    notes = [
        "Instances, USD/h and USD per million are of the fleet for the peak; the rest is of one instance. "
        f"{MISSING}: not known, or not sized since the objective is missed.",
        f"Front: no other cell beats it in latency and in {result.front_against} both.",
    ]
    if result.front_against == "invocations per minute":
        notes.append("Prices are not known for every cell, so the front is not drawn over costs.")
    if result.baseline:
        notes.append(f"Ratios are to {result.baseline}; that of costs is of one instance at its capacity.")
    words = "".join(f"<p class=soft>{escape(note)}</p>" for note in notes)
    return _card("All cells", f"<div class=wide><table><tr>{head}</tr>{rows}</table></div>{words}")


def _row(row: Row, *, with_ratios: bool) -> str:
    one, ratios = row.candidate, row.ratios
    badges = ("<span class='badge good'>recommended</span>" if row.cheapest else "") + (
        "<span class='badge front'>front</span>" if row.on_pareto_front else ""
    )
    cells = (
        row.instance_type,
        _cell(row.vcpus, "d"),
        _cell(row.gpus, "d"),
        _cell(row.neuron_chips, "d"),
        _cell(row.memory_gib, "g"),
        _cell(one.instance_count if one else None, "d"),
        _cell(row.rate, ",.0f"),
        _cell(row.latency_ms, ",.3g"),
        _cell(row.p95_ms, ",.3g"),
        _cell(one.cost_per_hour_usd if one else None, ",.2f"),
        _cell(one.cost_per_million_invocations_usd if one else None, ",.2f"),
        _cell(row.cost_per_million_at_capacity_usd, ",.2f"),
    )
    compared = (
        _cell(ratios.invocations_per_minute if ratios else None, ".2f"),
        _cell(ratios.p95_latency if ratios else None, ".2f"),
        _cell(ratios.cost_per_million if ratios else None, ".2f"),
    )
    shown = "".join(f"<td>{escape(cell)}</td>" for cell in (*cells, *(compared if with_ratios else ())))
    kind = "cheapest" if row.cheapest else "missed" if one is None or not one.meets_objective else ""
    return f"<tr class='{kind}'><td>{escape(row.variant)}{'<br>' if badges else ''}{badges}</td>{shown}</tr>"


def _plots(result: Result) -> list[str]:
    if not any(row.rate and row.latency_ms for row in result.rows):
        return []
    wide = "Latency against cost" if result.front_against == "cost per million" else "Latency against throughput"
    cards = [_card(wide, plots.tradeoff(result)), _card("Throughput of one instance", plots.throughput(result))]
    if any(row.p95_ms is not None for row in result.rows):
        cards.append(_card("Latency", plots.latencies(result)))
    return [f"<div class=plots>{''.join(cards)}</div>"]


def _failures(result: Result) -> str:
    missed = [row for row in result.rows if row.candidate is None or not row.candidate.meets_objective]
    if not missed:
        return ""
    items = "".join(
        f"<li><code>{escape(str(row.cell))}</code> <span class=bad>"
        f"{escape(row.candidate.reason if row.candidate else 'Not measured.')}</span></li>"
        for row in missed
    )
    return _card("Cells that do not meet the objective", f"<ul>{items}</ul>")


def _origin(result: Result) -> str:
    origin = result.origin
    facts = {
        "experiment": result.experiment,
        "measured on": f"{origin.measured_on}: {origin.machine}",
        "traffic": result.traffic,
        "measured at": origin.measured_at,
        "region": origin.region,
        "jobs": ", ".join(arn.rsplit("/", 1)[-1] for arn in result.job_arns) or UNKNOWN,
        "instance types": shapes_source(),
    }
    rows = "".join(
        f"<tr><td>{name}</td><td class=text><code>{escape(value)}</code></td></tr>" for name, value in facts.items()
    )
    return _card("Where this is from", f"<table>{rows}</table>")


def _card(title: str, body: str) -> str:
    return f"<section class=card><h2>{escape(title)}</h2>{body}</section>"


def _cell(value: float | None, spec: str) -> str:
    return MISSING if value is None else format(value, spec)


def _figure(value: float | None, spec: str) -> str:
    return UNKNOWN if value is None else format(value, spec)


def _usd(value: float | None) -> str:
    return UNKNOWN if value is None else f"${value:,.2f}"
