"""`report.html`: one self-contained page that says what was decided, why, and on what evidence. Pure."""

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from inference_recommender.measurement import Measurement
from inference_recommender.report import plots
from inference_recommender.report.candidate_notes import ClientLatency, client_latencies, notes
from workloads import Candidate, Recommendation, Workload

CSS = """
:root{--ink:#1c2330;--soft:#5b6472;--line:#e4e7ec;--card:#fff;--page:#f6f7f9;--good:#1d7f4e;--bad:#c8372d}
*{box-sizing:border-box}body{margin:0;background:var(--page);color:var(--ink);font:15px/1.55 system-ui,sans-serif}
main{max-width:1180px;margin:0 auto;padding:32px 24px 64px}h1{font-size:26px;margin:0 0 4px}
h2{font-size:17px;margin:0 0 12px}p{margin:0 0 10px}
.soft{color:var(--soft)}.good{color:var(--good)}.bad{color:var(--bad)}
.card{background:var(--card);border:1px solid var(--line);border-radius:10px;padding:20px 22px;margin:18px 0}
.note{border-left:4px solid #e0a339}.figures{display:flex;flex-wrap:wrap;gap:14px 32px;margin:6px 0 12px}
.figures b{display:block;font-size:20px;font-weight:650}.figures span{color:var(--soft);font-size:13px}
.plots{display:grid;grid-template-columns:repeat(auto-fit,minmax(440px,1fr));gap:18px}
.plots .card{margin:0}.plots .card:first-child{grid-column:1/-1}.wide{overflow-x:auto}
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}
th,td{text-align:right;padding:7px 8px;border-bottom:1px solid var(--line);white-space:nowrap}
th:first-child,td:first-child,td.text,th.text{text-align:left}td.text{white-space:normal}
th{color:var(--soft);font-weight:600;font-size:13px}code{font-size:13px}
"""

UNKNOWN = "unknown"


def page(
    workload: Workload, recommendation: Recommendation, measured: Sequence[Measurement], request: Mapping[str, Any]
) -> str:
    """The whole page. `request` is the job's, for the traffic that it asked for."""
    sections = [
        _decision(workload, recommendation),
        _locality(recommendation),
        _candidates(recommendation),
        *(_client_view(one) for one in recommendation.candidates if client_latencies(one)),
        *(_evidence(workload, one, request) for one in measured),
        _provenance(recommendation),
    ]
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{escape(workload.name)}: recommendation</title>'
        f'<meta name="viewport" content="width=device-width"><style>{CSS}</style><main>'
        f"<h1>{escape(workload.name)}</h1><p class=soft>{escape(workload.description)}</p>"
        f"{''.join(sections)}</main></html>\n"
    )


def _decision(workload: Workload, recommendation: Recommendation) -> str:
    objective = workload.latency_objective
    asked = (
        f"{objective.percentile} model latency ≤ {objective.model_latency_ms:g} ms at "
        f"{objective.peak_invocations_per_minute:,} invocations per minute"
    )
    chosen = recommendation.recommended
    if chosen is None or chosen.autoscaling is None:
        return _card("No candidate meets the objective", f"<p class=bad>Asked: {asked}.</p>{_reasons(recommendation)}")
    figures = (
        (f"{chosen.instance_count} × {chosen.instance_type}", "initial instance count"),
        (f"{chosen.autoscaling.target_invocations_per_instance:,.0f}", "autoscaling target, per min and instance"),
        (f"{chosen.autoscaling.min_capacity} to {chosen.autoscaling.max_capacity}", "instances, min to max"),
        (_usd(chosen.cost_per_hour_usd), "cost per hour"),
        (_usd(chosen.cost_per_million_invocations_usd), "cost per million invocations"),
    )
    shown = "".join(f"<div><b>{escape(value)}</b><span>{label}</span></div>" for value, label in figures)
    return _card(
        "Decision",
        f"<p>Asked: {asked}.</p><div class=figures>{shown}</div>{_sizing(workload, chosen)}{_reasons(recommendation)}",
    )


def _sizing(workload: Workload, chosen: Candidate) -> str:
    sizing, objective = workload.sizing, workload.latency_objective
    return (
        f"<p class=soft>{objective.peak_invocations_per_minute:,} at the peak, plus {sizing.headroom:.0%} headroom, "
        f"over {chosen.max_invocations_per_minute:,.0f} per instance makes {chosen.instance_count}. Autoscaling adds "
        f"an instance when the average exceeds {sizing.safety_factor:.0%} of that.</p>{_parts(chosen)}"
    )


def _parts(chosen: Candidate) -> str:
    """What the peak needs, and what each kind of headroom that was asked for added to it."""
    parts = {name: count for name, count in chosen.instance_count_parts.items() if count or name == "peak"}
    if not parts:
        return ""
    names = _row("th", [name.replace("_", " ") for name in parts])
    counts = _row("td", [f"+ {count}" if name != "peak" else str(count) for name, count in parts.items()])
    return f"<div class=wide><table>{names}{counts}</table></div>"


def _reasons(recommendation: Recommendation) -> str:
    items = "".join(
        f"<li><code>{escape(_name(one))}</code> <span class={'good' if one.meets_objective else 'bad'}>"
        f"{escape(one.reason)}</span> {escape(' '.join((*notes(one), one.cost_reason or '')))}</li>"
        for one in recommendation.candidates
    )
    return f"<ul>{items}</ul>"


def _locality(recommendation: Recommendation) -> str:
    if recommendation.provenance.measured_on != "local":
        return ""
    return (
        "<div class='card note'><p><b>Measured on this machine, not on SageMaker.</b> "
        f"{escape(recommendation.provenance.machine)} stood in for every instance type. The figures show that the "
        "walk works; size production from a job that SageMaker ran.</p></div>"
    )


def _candidates(recommendation: Recommendation) -> str:
    heads = (
        "candidate",
        "max invocations/min",
        "model latency, ms",
        "p50",
        "p95",
        "p99",
        "CPU %",
        "instances",
        "USD/h",
        "USD/million",
    )
    rows = "".join(_row("td", _cells(one)) for one in recommendation.candidates)
    table = f"<table>{_row('th', heads)}{rows}</table>"
    note = "<p class=soft>Rates are per instance. p50 to p99: model latency over the whole test.</p>"
    return _card("Candidates", f"<div class=wide>{table}</div>{note}")


def _cells(one: Candidate) -> tuple[str, ...]:
    percentiles = one.model_latency_percentiles_ms
    return (
        _name(one),
        _figure(one.max_invocations_per_minute, ",.0f"),
        _figure(one.model_latency_ms, ",.4g"),
        *(_figure(value, ",.3g") for value in (percentiles.p50, percentiles.p95, percentiles.p99)),
        _figure(one.cpu_utilization_percent, ",.0f"),
        _figure(one.instance_count, "d"),
        _usd(one.cost_per_hour_usd),
        _usd(one.cost_per_million_invocations_usd),
    )


def _client_view(one: Candidate) -> str:
    """Latency from intended and from actual send: a difference is time in which a request waited to be sent."""
    heads = ("percentile", "from actual send, ms", "from intended send, ms", "difference, ms")
    rows = "".join(
        _row(
            "td",
            (found.percentile, *(f"{ms:.4g}" for ms in (found.from_send_ms, found.from_intended_ms)), _gap(found)),
        )
        for found in client_latencies(one)
    )
    return _card(f"Client latency: {escape(_name(one))}", f"<table>{_row('th', heads)}{rows}</table>")


def _gap(found: ClientLatency) -> str:
    return f"{found.difference_ms:.3g}"


def _evidence(workload: Workload, measured: Measurement, request: Mapping[str, Any]) -> str:
    series = measured.series
    if series is None or not series.seconds:
        return _card(measured.instance_type, "<p class=soft>CloudWatch has no course of this test.</p>")
    objective, course = workload.latency_objective, series.complete()
    shown = {
        "Throughput over time": plots.throughput_over_time(
            course, request["InputConfig"].get("TrafficPattern"), measured.warm_up_s
        ),
        "Latency against load": plots.latency_against_load(course, measured, objective),
    }
    if series.model_latency_quantiles_ms:
        shown["Latency distribution"] = plots.latency_distribution(series.model_latency_quantiles_ms, objective)
    cards = "".join(_card(f"{title}: {escape(measured.instance_type)}", svg) for title, svg in shown.items())
    return f"<div class=plots>{cards}</div>"


def _provenance(recommendation: Recommendation) -> str:
    origin = recommendation.provenance
    facts = {
        "job": origin.job_name,
        "measured on": f"{origin.measured_on}: {origin.machine}",
        "traffic": origin.traffic,
        "measured at": origin.measured_at,
        "region": origin.region,
        "model archive": recommendation.archive_sha256,
        "run": origin.run,
    }
    rows = "".join(
        f"<tr><td>{name}</td><td class=text><code>{escape(value)}</code></td></tr>" for name, value in facts.items()
    )
    return _card("Where this is from", f"<table>{rows}</table>")


def _row(tag: str, cells: Sequence[str]) -> str:
    return f"<tr>{''.join(f'<{tag}>{escape(cell)}</{tag}>' for cell in cells)}</tr>"


def _card(title: str, body: str) -> str:
    return f"<section class=card><h2>{title}</h2>{body}</section>"


def _name(one: Candidate) -> str:
    settings = ", ".join(f"{key}={value}" for key, value in one.environment.items())
    return f"{one.instance_type} {settings}".strip()


def _figure(value: float | None, spec: str) -> str:
    return UNKNOWN if value is None else format(value, spec)


def _usd(value: float | None) -> str:
    return UNKNOWN if value is None else f"${value:,.2f}"
