"""The experiment's plots, each an SVG of its own. Pure: the same rows give the same bytes."""

from collections.abc import Callable, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from inference_recommender.experiment.result import ExperimentResult, ExperimentRow
from inference_recommender.report.document import Plot
from inference_recommender.report.plots import (
    BLUE,
    GREEN,
    GREY,
    INK,
    ORANGE,
    RED,
    asked,
    drawn,
    legend,
    new_figure,
)

ROW_IN, LEAST_IN, WIDTH_IN = 0.34, 2.6, 5.4
WIDE_IN = (10.6, 4.2)
MARKERS = "osD^vP*X"
"""One for each instance type, in turn."""


def tradeoff(result: ExperimentResult) -> Plot:
    """Draws each cell's latency over its cost, or over its rate without prices, and the front with its names."""
    figure, axes = new_figure(WIDE_IN)
    costs = result.front_against == "cost per million"
    points = [
        (row, x, row.compared_ms)
        for row in result.rows
        if (x := row.cost_per_million_at_capacity_usd if costs else row.rate) and row.compared_ms
    ]
    front = sorted(((x, y, row) for row, x, y in points if row.on_pareto_front), key=lambda point: point[:2])
    line = [x for x, *_ in front], [y for _, y, _ in front]
    axes.plot(*line, color=GREY, linewidth=1.2, zorder=1, label="Pareto front")
    for number, name in enumerate(dict.fromkeys(row.instance_type for row in result.rows)):
        of_type = [(row, x, y) for row, x, y in points if row.instance_type == name]
        marker = MARKERS[number % len(MARKERS)]
        colours = [_colour(row) for row, _, _ in of_type]
        axes.scatter([x for _, x, _ in of_type], [y for *_, y in of_type], color=colours, marker=marker, s=52, zorder=2)
        # The legend shows a type's marker in one colour, whatever the colours of its cells are.
        axes.add_line(Line2D([], [], color=BLUE, marker=marker, linestyle="", label=name))
    for x, y, row in front:
        axes.annotate(row.variant, (x, y), xytext=(8, 4), textcoords="offset points", color=_colour(row))
    _draw_limit(axes, result, [y for *_, y in points])
    axes.set(xlabel="USD per million invocations at capacity" if costs else "invocations per minute, per instance")
    p95 = all(row.p95_ms is not None for row, _, _ in points)
    axes.set(ylabel="P95 model latency, ms" if p95 else "model latency, ms", ylim=(0, None))
    axes.margins(x=0.12, y=0.15)
    axes.xaxis.set_major_formatter("{x:,.3g}" if costs else "{x:,.0f}")
    legend(figure, axes, columns=6)
    return drawn(figure)


def throughput(result: ExperimentResult) -> Plot:
    """Draws a bar for each cell's rate per instance, with its confidence interval."""
    rows = [row for row in result.rows if row.rate]
    figure, axes = _bars(rows, lambda row: row.rate, "invocations per minute, per instance")
    for number, row in enumerate(rows):
        if row.candidate and (interval := row.candidate.max_invocations_interval):
            axes.plot(interval, (number, number), color=INK, linewidth=1.4, marker="|")
    return drawn(figure)


def latencies(result: ExperimentResult) -> Plot:
    """Draws P50 to P99 of each cell's whole test with P95 marked, and the objective."""
    rows = [row for row in result.rows if row.p95_ms is not None]
    figure, axes = _bars(rows, None, "model latency, ms: P50 to P99, P95 marked")
    for number, row in enumerate(rows):
        assert row.candidate is not None, "it has a P95"
        percentiles = row.candidate.model_latency_percentiles_ms
        ends = [value for value in (percentiles.p50, percentiles.p95, percentiles.p99) if value is not None]
        axes.plot([min(ends), max(ends)], [number, number], color=_colour(row), linewidth=3, alpha=0.45)
        axes.plot([row.p95_ms or 0], [number], color=_colour(row), marker="o")
    _draw_limit(axes, result, [row.p95_ms or 0 for row in rows], vertical=True)
    legend(figure, axes, columns=1)
    return drawn(figure)


def speed_ups(result: ExperimentResult) -> Plot:
    """Draws a bar for the factor of each optimisation on each instance type."""
    rows = [row for row in result.rows if row.speed_up is not None]
    base = result.baseline.variant if result.baseline else ""
    figure, axes = _bars(rows, lambda row: row.speed_up, f"invocations per minute over those of {base}, same type")
    for number, row in enumerate(rows):
        axes.annotate(f"{row.speed_up:.2f} ×", (row.speed_up or 0, number), xytext=(4, -4), textcoords="offset points")
    axes.axvline(1, color=INK, linewidth=1.0)
    axes.margins(x=0.2)
    return drawn(figure)


def gpu_utilisation(result: ExperimentResult) -> Plot:
    """Draws a bar for the utilisation of a GPU in each cell's busiest minute."""
    rows = [row for row in result.rows if row.gpu_utilization_percent is not None]
    figure, axes = _bars(rows, lambda row: row.gpu_utilization_percent, "GPU utilisation in the busiest minute, %")
    axes.set(xlim=(0, 100))
    return drawn(figure)


def _bars(
    rows: Sequence[ExperimentRow], value: Callable[[ExperimentRow], float | None] | None, label: str
) -> tuple[Figure, Axes]:
    """Returns a figure with a line for each row, the first on top, and bars of `value` if it is given."""
    figure, axes = new_figure((WIDTH_IN, max(LEAST_IN, 1.1 + ROW_IN * len(rows))))
    if value:
        lengths = [value(row) or 0 for row in rows]
        axes.barh(range(len(rows)), lengths, color=[_colour(row) for row in rows], height=0.62)
    axes.set_yticks(range(len(rows)), [f"{row.variant}\n{row.instance_type}" for row in rows])
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.grid(axis="y", visible=False)
    axes.tick_params(axis="y", labelsize=9)
    axes.set(xlabel=label, xlim=(0, None))
    axes.xaxis.set_major_formatter("{x:,.6g}")
    axes.xaxis.set_major_locator(MaxNLocator(5))
    return figure, axes


def _colour(row: ExperimentRow) -> str:
    """Returns green for the recommended cell, orange for the front, blue if the objective is met, else grey."""
    if row.cheapest:
        return GREEN
    if row.on_pareto_front:
        return ORANGE
    return BLUE if row.candidate and row.candidate.meets_objective else GREY


def _draw_limit(axes: Axes, result: ExperimentResult, latencies_ms: Sequence[float], *, vertical: bool = False) -> None:
    """Draws the limit as a line, or only its legend if the limit is far above all figures."""
    limit_ms, text = result.objective.model_latency_ms, asked(result.objective)
    if not latencies_ms or limit_ms > 3 * max(latencies_ms):
        axes.plot([], [], color=RED, linestyle="--", linewidth=1.2, label=f"{text}, beyond this scale")
        return
    draw = axes.axvline if vertical else axes.axhline
    draw(limit_ms, color=RED, linewidth=1.2, linestyle="--", label=text)
