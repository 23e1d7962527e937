"""The experiment's plots, each an SVG of its own. Pure: rows in, text out; the same input gives the same bytes."""

from collections.abc import Sequence
from typing import Literal

from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from inference_recommender.experiment.result import Result, Row
from inference_recommender.report.plots import BLUE, GREY, ORANGE, RED, new_figure, svg

GREEN = "#1d7f4e"
PLACES: tuple[tuple[Literal["left", "right"], tuple[int, int]], ...] = (
    ("left", (7, 4)),
    ("right", (-7, 4)),
    ("left", (7, -12)),
)
"""Of names beside their points, in turn, so that neighbours do not cover each other's."""
ROW_IN, LEAST_IN, WIDTH_IN = 0.34, 2.2, 6.4
MARKERS = "osD^vP*X"
"""One for each instance type, again from the start where there are more."""


def tradeoff(result: Result) -> str:
    """Each measured cell: its cost, or its rate where costs are not known, against its latency; the front joined."""
    figure, axes = new_figure((13.0, 4.6))
    costs = result.front_against == "cost per million"
    types = list(dict.fromkeys(row.instance_type for row in result.rows))
    shown = [(row, x, row.latency_ms) for row in result.rows if (x := _x(row, costs)) and row.latency_ms]
    front = sorted((x, y) for row, x, y in shown if row.on_pareto_front)
    axes.plot([x for x, _ in front], [y for _, y in front], color=GREY, linewidth=1.2, zorder=1, label="Pareto front")
    for name in types:
        points = [(row, x, y) for row, x, y in shown if row.instance_type == name]
        axes.scatter(
            [x for _, x, _ in points],
            [y for _, _, y in points],
            color=[_colour(row) for row, _, _ in points],
            marker=MARKERS[types.index(name) % len(MARKERS)],
            s=52,
            zorder=2,
            label=name,
        )
    for number, (row, x, y) in enumerate(sorted(shown, key=lambda point: point[1:])):
        side, offset = PLACES[number % len(PLACES)]
        axes.annotate(
            row.variant, (x, y), xytext=offset, textcoords="offset points", horizontalalignment=side, color=_colour(row)
        )
    _objective(axes, result, [y for *_, y in shown])
    axes.set(xlabel="USD per million invocations at capacity" if costs else "invocations per minute, per instance")
    axes.set(ylabel="model latency, ms", ylim=(0, None))
    axes.margins(x=0.12, y=0.15)
    axes.xaxis.set_major_formatter("{x:,.3g}" if costs else "{x:,.0f}")
    axes.legend(loc="best")
    for handle in axes.get_legend().legend_handles[1:]:  # type: ignore[union-attr]
        handle.set_color(BLUE)  # type: ignore[union-attr]  # a type's marker, whatever its first cell's colour
    return svg(figure)


def throughput(result: Result) -> str:
    """Invocations per minute of one instance, a bar for each cell, with the confidence interval where there is one."""
    rows = [row for row in result.rows if row.rate]
    figure, axes = new_figure((WIDTH_IN, _height(rows)))
    names = [f"{row.variant}, {row.instance_type}" for row in rows]
    axes.barh(names, [row.rate or 0 for row in rows], color=[_colour(row) for row in rows], height=0.62)
    for number, row in enumerate(rows):
        if row.candidate and (interval := row.candidate.max_invocations_interval):
            axes.plot(interval, (number, number), color="#3b4252", linewidth=1.4, marker="|")
    _bars(axes, "invocations per minute, per instance")
    return svg(figure)


def latencies(result: Result) -> str:
    """p50 to p99 of each cell's whole test, P95 marked, with the objective."""
    rows = [row for row in result.rows if row.p95_ms is not None]
    figure, axes = new_figure((WIDTH_IN, _height(rows)))
    names = [f"{row.variant}, {row.instance_type}" for row in rows]
    for name, row in zip(names, rows, strict=True):
        assert row.candidate is not None, "it has a P95"
        found = row.candidate.model_latency_percentiles_ms
        ends = [value for value in (found.p50, found.p95, found.p99) if value is not None]
        axes.plot([min(ends), max(ends)], [name, name], color=_colour(row), linewidth=3, alpha=0.45)
        axes.plot([row.p95_ms or 0], [name], color=_colour(row), marker="o")
    _objective(axes, result, [row.p95_ms or 0 for row in rows], vertical=True)
    _bars(axes, "model latency, ms: p50 to p99, P95 marked")
    return svg(figure)


def _x(row: Row, costs: bool) -> float | None:
    return row.cost_per_million_at_capacity_usd if costs else row.rate


def _colour(row: Row) -> str:
    """Green is the recommended one, orange on the front, blue meets the objective, grey does not."""
    if row.cheapest:
        return GREEN
    if row.on_pareto_front:
        return ORANGE
    return BLUE if row.candidate and row.candidate.meets_objective else GREY


def _height(rows: Sequence[Row]) -> float:
    return max(LEAST_IN, 0.9 + ROW_IN * len(rows))


def _bars(axes: Axes, label: str) -> None:
    axes.invert_yaxis()
    axes.grid(axis="y", visible=False)
    axes.set(xlabel=label, xlim=(0, None))
    axes.xaxis.set_major_formatter("{x:,.6g}")
    axes.xaxis.set_major_locator(MaxNLocator(5))


def _objective(axes: Axes, result: Result, latencies_ms: Sequence[float], *, vertical: bool = False) -> None:
    """The limit as a line; where it is far above all that was measured, in words alone, so that these can be read."""
    objective = result.objective
    text = f"objective {objective.percentile} ≤ {objective.model_latency_ms:g} ms"
    if not latencies_ms or objective.model_latency_ms > 3 * max(latencies_ms):
        axes.annotate(
            f"{text}, beyond this scale", (1, 1), xycoords="axes fraction", ha="right", va="bottom", color=RED
        )
        return
    draw = axes.axvline if vertical else axes.axhline
    draw(objective.model_latency_ms, color=RED, linewidth=1.2, linestyle="--")
    axes.annotate(text, (1, 1), xycoords="axes fraction", ha="right", va="bottom", color=RED)
