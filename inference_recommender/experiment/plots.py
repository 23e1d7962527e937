"""The experiment's plots, each an SVG of its own. Pure: rows in, text out; the same input gives the same bytes."""

from collections.abc import Sequence
from typing import Literal

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from inference_recommender.experiment.result import Result, Row
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

Side = Literal["left", "center", "right"]
PLACES: tuple[tuple[Side, tuple[int, int]], ...] = (
    ("left", (8, -3)),
    ("right", (-8, -3)),
    ("left", (6, 7)),
    ("right", (-6, 7)),
    ("left", (6, -14)),
    ("right", (-6, -14)),
    ("center", (0, 20)),
    ("center", (0, -27)),
)
"""Where a name may stand beside its point: how it is aligned, and its offset in points."""
LETTER_PT, LINE_PT = 5.6, 11.0
"""Mean width and height of a letter at the plots' font size."""
ROW_IN, LEAST_IN, WIDTH_IN = 0.34, 2.6, 5.4
WIDE_IN = (10.6, 4.2)
MARKERS = "osD^vP*X"
"""One for each instance type, starting again where there are more."""


def tradeoff(result: Result) -> Plot:
    """Draws each cell's latency over its cost, or over its rate where costs are not known, and joins the front."""
    figure, axes = new_figure(WIDE_IN)
    costs = result.front_against == "cost per million"
    types = list(dict.fromkeys(row.instance_type for row in result.rows))
    shown = [(row, x, row.compared_ms) for row in result.rows if (x := _x(row, costs)) and row.compared_ms]
    front = sorted((x, y) for row, x, y in shown if row.on_pareto_front)
    axes.plot([x for x, _ in front], [y for _, y in front], color=GREY, linewidth=1.2, zorder=1, label="Pareto front")
    for name in types:
        points = [(row, x, y) for row, x, y in shown if row.instance_type == name]
        marker = MARKERS[types.index(name) % len(MARKERS)]
        colours = [_colour(row) for row, _, _ in points]
        axes.scatter([x for _, x, _ in points], [y for *_, y in points], color=colours, marker=marker, s=52, zorder=2)
        # The legend shows a type's marker in one colour, whatever its cells' colours are.
        axes.add_line(Line2D([], [], color=BLUE, marker=marker, linestyle="", label=name))
    _objective(axes, result, [y for *_, y in shown])
    axes.set(xlabel="USD per million invocations at capacity" if costs else "invocations per minute, per instance")
    p95 = all(row.p95_ms is not None for row, _, _ in shown)
    axes.set(ylabel="P95 model latency, ms" if p95 else "model latency, ms", ylim=(0, None))
    axes.margins(x=0.12, y=0.15)
    axes.xaxis.set_major_formatter("{x:,.3g}" if costs else "{x:,.0f}")
    legend(figure, axes, columns=6)
    _name_points(figure, axes, shown)
    return drawn(figure)


def throughput(result: Result) -> Plot:
    """Draws a bar for each cell's rate per instance, with the confidence interval where there is one."""
    rows = [row for row in result.rows if row.rate]
    figure, axes = new_figure((WIDTH_IN, _height(rows)))
    names = [_name(row) for row in rows]
    axes.barh(names, [row.rate or 0 for row in rows], color=[_colour(row) for row in rows], height=0.62)
    for number, row in enumerate(rows):
        if row.candidate and (interval := row.candidate.max_invocations_interval):
            axes.plot(interval, (number, number), color=INK, linewidth=1.4, marker="|")
    _bars(axes, len(rows), "invocations per minute, per instance")
    return drawn(figure)


def latencies(result: Result) -> Plot:
    """Draws p50 to p99 of each cell's whole test with P95 marked, and the objective."""
    rows = [row for row in result.rows if row.p95_ms is not None]
    figure, axes = new_figure((WIDTH_IN, _height(rows)))
    names = [_name(row) for row in rows]
    for name, row in zip(names, rows, strict=True):
        assert row.candidate is not None, "it has a P95"
        percentiles = row.candidate.model_latency_percentiles_ms
        ends = [value for value in (percentiles.p50, percentiles.p95, percentiles.p99) if value is not None]
        axes.plot([min(ends), max(ends)], [name, name], color=_colour(row), linewidth=3, alpha=0.45)
        axes.plot([row.p95_ms or 0], [name], color=_colour(row), marker="o")
    _objective(axes, result, [row.p95_ms or 0 for row in rows], vertical=True)
    _bars(axes, len(rows), "model latency, ms: p50 to p99, P95 marked")
    legend(figure, axes, columns=1)
    return drawn(figure)


def speed_ups(result: Result) -> Plot:
    """Draws a bar for what each optimisation multiplies the throughput by, on each instance type."""
    rows = [row for row in result.rows if row.speed_up is not None]
    figure, axes = new_figure((WIDTH_IN, _height(rows)))
    axes.barh([_name(row) for row in rows], [row.speed_up or 0 for row in rows], color=_colours(rows), height=0.62)
    for number, row in enumerate(rows):
        axes.annotate(f"{row.speed_up:.2f} ×", (row.speed_up or 0, number), xytext=(4, -4), textcoords="offset points")
    axes.axvline(1, color=INK, linewidth=1.0)
    base = result.baseline.variant if result.baseline else ""
    axes.margins(x=0.2)
    _bars(axes, len(rows), f"invocations per minute over those of {base}, same type")
    return drawn(figure)


def gpu_utilisation(result: Result) -> Plot:
    """Draws a bar for the utilisation of a GPU in each cell's busiest minute."""
    rows = [row for row in result.rows if row.gpu_utilization_percent is not None]
    figure, axes = new_figure((WIDTH_IN, _height(rows)))
    shares = [row.gpu_utilization_percent or 0 for row in rows]
    axes.barh([_name(row) for row in rows], shares, color=_colours(rows), height=0.62)
    _bars(axes, len(rows), "GPU utilisation in the busiest minute, %")
    axes.set(xlim=(0, 100))
    return drawn(figure)


def _colours(rows: Sequence[Row]) -> list[str]:
    return [_colour(row) for row in rows]


def _name_points(figure: Figure, axes: Axes, points: Sequence[tuple[Row, float, float]]) -> None:
    """Writes each variant's name beside its point, at the first place that covers no point and no other name."""
    figure.draw_without_rendering()
    at_pt = [axes.transData.transform((x, y)) * 72 / figure.dpi for _, x, y in points]
    taken = [(x - 4, y - 4, x + 4, y + 4) for x, y in at_pt]
    edges = axes.get_window_extent().transformed(figure.dpi_scale_trans.inverted()).extents * 72
    for (row, x, y), (left, bottom) in zip(points, at_pt, strict=True):
        boxes = [_box(left, bottom, row.variant, side, offset) for side, offset in PLACES]
        free = (n for n, box in enumerate(boxes) if _inside(box, edges) and not any(_overlap(box, b) for b in taken))
        place = next(free, 0)
        side, offset = PLACES[place]
        taken.append(boxes[place])
        axes.annotate(row.variant, (x, y), xytext=offset, textcoords="offset points", ha=side, color=_colour(row))


Box = tuple[float, float, float, float]
"""Left, bottom, right, top, in points."""


def _box(x: float, y: float, text: str, side: Side, offset: tuple[int, int]) -> Box:
    width = LETTER_PT * len(text)
    left = x + offset[0] - {"left": 0.0, "center": width / 2, "right": width}[side]
    return left, y + offset[1] - 2, left + width, y + offset[1] + LINE_PT


def _overlap(one: Box, other: Box) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


def _inside(box: Box, edges: Sequence[float]) -> bool:
    return bool(box[0] > edges[0] and box[1] > edges[1] and box[2] < edges[2] and box[3] < edges[3])


def _name(row: Row) -> str:
    return f"{row.variant}\n{row.instance_type}"


def _x(row: Row, costs: bool) -> float | None:
    return row.cost_per_million_at_capacity_usd if costs else row.rate


def _colour(row: Row) -> str:
    """Green is the recommended cell, orange is on the front, blue meets the objective, grey does not."""
    if row.cheapest:
        return GREEN
    if row.on_pareto_front:
        return ORANGE
    return BLUE if row.candidate and row.candidate.meets_objective else GREY


def _height(rows: Sequence[Row]) -> float:
    return max(LEAST_IN, 1.1 + ROW_IN * len(rows))


def _bars(axes: Axes, rows: int, label: str) -> None:
    """Puts the first of `rows` on top."""
    axes.set_ylim(rows - 0.4, -0.6)
    axes.grid(axis="y", visible=False)
    axes.tick_params(axis="y", labelsize=9)
    axes.set(xlabel=label, xlim=(0, None))
    axes.xaxis.set_major_formatter("{x:,.6g}")
    axes.xaxis.set_major_locator(MaxNLocator(5))


def _objective(axes: Axes, result: Result, latencies_ms: Sequence[float], *, vertical: bool = False) -> None:
    """Draws the limit as a line. Where it is far above all figures the legend alone tells it, or these would be
    squeezed into a corner.
    """
    limit_ms, text = result.objective.model_latency_ms, asked(result.objective)
    if not latencies_ms or limit_ms > 3 * max(latencies_ms):
        axes.plot([], [], color=RED, linestyle="--", linewidth=1.2, label=f"{text}, beyond this scale")
        return
    draw = axes.axvline if vertical else axes.axhline
    draw(limit_ms, color=RED, linewidth=1.2, linestyle="--", label=text)
