"""The report of `tune`: the capacity of each configuration, the one to serve, and those without probes."""

from collections.abc import Iterator, Mapping, Sequence

from inference_recommender.report.document import Plot, Report, ReportVerdict, Table, Value, table
from inference_recommender.report.inputs import FolderInputs
from inference_recommender.report.plots import BLUE, GREY, INK, ORANGE, RED, drawn, legend, new_figure
from inference_recommender.report.sections import (
    CHANGING_TRAFFIC,
    COLD_START,
    OTHER_PAYLOADS,
    generator_table,
    present,
)
from inference_recommender.tune.folder import PATCH, RESULT, TuneFolder
from inference_recommender.tune.probe_counts import ProbeCounts
from inference_recommender.tune.race import EndReason
from inference_recommender.tune.result import TunedConfiguration, TuneResult, decision
from workloads import LatencyObjective, UsageError

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
MOST_DRAWN = 16
"""Maximum number of configurations in the figure; the table has all of them."""
ROW_IN, LEAST_IN, WIDTH_IN = 0.3, 2.4, 10.6


def tune_report(name: str, folder: TuneFolder, inputs: FolderInputs) -> Report:
    """Reads a search. Raises `UsageError` if it has no result, or `InvalidDocument`."""
    result, workload, plan = _result(folder), folder.workload(), folder.plan()
    objective, patch = result.objective, folder.path / PATCH
    archives = {f"archive of {target}": sha256 for target, sha256 in plan.archives.items()}
    labels = (each.label for each in result.ranked)
    return Report(
        kind="tune",
        name=name,
        workload=result.workload,
        description=workload.description,
        objective=f"highest rate within {objective.percentile} ≤ {objective.model_latency_ms:g} ms",
        verdict=_verdict(result),
        decision=decision(result),
        cautions=(
            f"Measured on {result.machine}, together with the load generator. Another machine may have another best "
            "configuration.",
        ),
        tables=present((_configurations(result), _left_out(result), generator_table(inputs))),
        patch=patch.read_text("utf-8") if patch.exists() else None,
        not_tested=tuple(_untested(result)),
        environment={
            "fingerprint": inputs.fingerprint(result.machine, *archives.values(), *labels),
            "measured on": result.machine,
            "measured at": result.measured_at,
            "represents": result.instance_type or "unknown",
            **archives,
            **inputs.facts(),
        },
    )


def _verdict(result: TuneResult) -> ReportVerdict:
    if result.reason == EndReason.NOTHING_KEEPS.value:
        return "missed"
    return "met" if result.is_known else "unknown"


def tune_figures(folder: TuneFolder) -> dict[str, Plot]:
    """Returns the figures of a search by title. Raises the errors of `tune_report`."""
    result = _result(folder)
    known = [each for each in result.ranked if each.invocations_per_minute][:MOST_DRAWN]
    if not known:
        return {}
    probes: dict[str, list[ProbeCounts]] = {}
    for line in folder.lines():
        if line.counts is not None:
            probes.setdefault(line.label, []).append(line.counts)
    return {
        "Capacity of each configuration": _intervals(known),
        "Latency against load": _latencies(known, probes, result.objective),
    }


def _result(folder: TuneFolder) -> TuneResult:
    if not (folder.path / RESULT).exists():
        raise UsageError(
            f"{folder} has no result yet. Continue with `python -m inference_recommender tune --resume {folder}`."
        )
    return TuneResult.from_json(folder.path / RESULT)


def _configurations(result: TuneResult) -> Table:
    rows: list[tuple[Value, ...]] = [
        (
            each.label,
            each.invocations_per_minute,
            *each.interval,
            each.probes,
            each.load_s,
            each.requests,
            each.cost_per_million_usd,
            each.outcome,
        )
        for each in result.ranked
    ]
    note = (
        f"Capacity within {result.objective.percentile} ≤ {result.objective.model_latency_ms:g} ms. Figures of "
        "configurations that dropped out early are rough, and rather too high."
    )
    return table("configurations", "Configurations", CONFIGURATIONS, rows, note)


def _left_out(result: TuneResult) -> Table | None:
    rows: list[tuple[Value, ...]] = [(each.reason, len(each.configurations)) for each in result.left_out]
    heads = (("reason", "not tried, because", ""), ("configurations", "configurations", ",d"))
    return table("left-out", "Left out", heads, rows, detail=True) if rows else None


def _untested(result: TuneResult) -> Iterator[str]:
    if unprobed := sum(not each.probes for each in result.ranked):
        yield f"{unprobed} of {len(result.ranked)} configurations had no probe. The table has the reasons."
    yield "No fleet was sized or proven, and nothing was measured behind an endpoint."
    yield OTHER_PAYLOADS
    yield COLD_START
    yield CHANGING_TRAFFIC


def _intervals(ranked: Sequence[TunedConfiguration]) -> Plot:
    """Draws each capacity with its interval, the best at the top."""
    figure, axes = new_figure((WIDTH_IN, max(LEAST_IN, ROW_IN * len(ranked) + 1.0)))
    rates = [each.invocations_per_minute or 0.0 for each in ranked]
    highest = max(rates)
    for place, each in enumerate(ranked):
        low, high = each.interval
        ends = (low or 0.0, min(high or highest * 2, highest * 2))
        label = "_" if place else "95 % interval"
        axes.plot(ends, (place, place), color=GREY, linewidth=1.6, marker="|", label=label)
    colours = [BLUE if place else ORANGE for place in range(len(ranked))]
    axes.scatter(rates, range(len(ranked)), s=30, color=colours, zorder=3, label="capacity")
    axes.set_yticks(range(len(ranked)), [each.label for each in ranked])
    axes.set_ylim(len(ranked) - 0.5, -0.5)
    axes.set(xlabel="invocations per minute within the objective", xlim=(0, None))
    axes.xaxis.set_major_formatter("{x:,.0f}")
    legend(figure, axes, columns=2)
    return drawn(figure)


def _latencies(
    ranked: Sequence[TunedConfiguration], probes: Mapping[str, Sequence[ProbeCounts]], objective: LatencyObjective
) -> Plot:
    """Draws the latency of each probe over its rate: the best, the runner-up, and the others."""
    figure, axes = new_figure((WIDTH_IN, 3.4))
    names = ((ranked[2:], GREY, "o", "others"), (ranked[1:2], INK, "s", "runner-up"), (ranked[:1], ORANGE, "D", "best"))
    limit_ms = objective.model_latency_ms
    for some, colour, marker, name in names:
        points = [
            (one.invocations_per_minute, min(one.latency_ms, 3 * limit_ms))
            for each in some
            for one in probes.get(each.label, ())
            if one.latency_ms is not None
        ]
        if points:
            rates, latencies = zip(*points, strict=True)
            axes.scatter(rates, latencies, s=18, color=colour, marker=marker, alpha=0.8, label=name)
    axes.axhline(limit_ms, color=RED, linewidth=1.2, linestyle="--", label=f"limit {limit_ms:g} ms")
    axes.set(xlabel="invocations per minute", ylabel=f"{objective.percentile} of a probe, ms", xlim=(0, None))
    axes.set_ylim(0, 3.1 * limit_ms)
    axes.xaxis.set_major_formatter("{x:,.0f}")
    legend(figure, axes, columns=4)
    return drawn(figure)
