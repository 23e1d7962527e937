"""The report's plots, each an SVG of its own. Pure: measurements in, text out; the same input gives the same bytes."""

import io
import re
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter

from inference_recommender.load_generator.plan import TrafficPattern
from inference_recommender.load_generator.traffic_schedule import schedule
from inference_recommender.measurement import Measurement, Series
from workloads import LatencyObjective

STYLE: dict[Any, Any] = {
    "svg.hashsalt": "report",
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#8a919c",
    "axes.labelcolor": "#3b4252",
    "axes.grid": True,
    "grid.color": "#e4e7ec",
    "xtick.color": "#5b6472",
    "ytick.color": "#5b6472",
    "legend.frameon": False,
}
BLUE, ORANGE, RED, GREY = "#2f6fdb", "#e07b39", "#c8372d", "#8a919c"
SIZE_IN, WIDE_IN = (6.4, 3.6), (13.0, 3.4)


def latency_against_load(series: Series, measured: Measurement, objective: LatencyObjective) -> str:
    """Each point of the course: its load against its p50 and p99, with the objective, and the capacity found with its
    confidence interval shaded.
    """
    figure, axes = new_figure()
    load = series.invocations_per_minute()
    for name, colour in (("p50", BLUE), ("p99", ORANGE)):
        pairs = [(x, y) for x, y in zip(load, series.latency_ms.get(name, ()), strict=False) if x and y]
        axes.scatter([x for x, _ in pairs], [y for _, y in pairs], s=18, color=colour, alpha=0.75, label=name)
    _objective_line(axes, objective)
    if measured.max_invocations_interval:
        axes.axvspan(*measured.max_invocations_interval, color=GREY, alpha=0.2, linewidth=0)
    if measured.max_invocations_per_minute:
        axes.axvline(measured.max_invocations_per_minute, color=GREY, linewidth=1)
        axes.annotate(
            f" {measured.max_invocations_per_minute:,.0f}/min",
            (measured.max_invocations_per_minute, 0.5),
            xycoords=("data", "axes fraction"),
            ha="right",
            rotation=90,
            color=GREY,
        )
    axes.set(xlabel="invocations per minute", ylabel="client latency, ms", xlim=(0, None), ylim=(0, None))
    axes.margins(y=0.15)
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.legend(loc="center left")
    return svg(figure)


def throughput_over_time(
    series: Series, traffic_pattern: Mapping[str, Any] | None, warm_up_s: float | None = None
) -> str:
    """Invocations per minute and users over the test, with the beginning of each phase that it reached marked and the
    warm-up shaded.

    `traffic_pattern` is None where the service chose its own traffic.
    """
    figure, axes = new_figure(WIDE_IN)
    (rate,) = axes.plot(series.seconds, _numbers(series.invocations_per_minute()), color=BLUE, marker=".")
    if warm_up_s:
        axes.axvspan(0, warm_up_s, color=GREY, alpha=0.2, linewidth=0)
        axes.annotate(" warm-up", (0, 0.02), xycoords=("data", "axes fraction"), color=GREY)
    users_axes = axes.twinx()
    users_axes.grid(False)
    users_axes.spines[["top", "right"]].set_visible(False)
    (users,) = users_axes.step(series.seconds, _numbers(series.users), where="post", color=ORANGE, linewidth=1.2)
    users_axes.set(ylabel="users", ylim=(0, None))
    reached = [start for start in _phase_starts_s(traffic_pattern) if start <= series.seconds[-1]]
    for number, start in enumerate(reached, start=1):
        axes.axvline(start, color=GREY, linewidth=1, linestyle=":")
        axes.annotate(f" phase {number}", (start, 1), xycoords=("data", "axes fraction"), va="bottom", color=GREY)
    axes.set(xlabel="seconds since the first request", ylabel="invocations per minute", ylim=(0, None))
    axes.yaxis.set_major_formatter("{x:,.0f}")
    axes.legend([rate, users], ["invocations per minute", "users"], loc="lower right")
    return svg(figure)


def _phase_starts_s(traffic_pattern: Mapping[str, Any] | None) -> Sequence[float]:
    if traffic_pattern is None:
        return ()
    return schedule(TrafficPattern.model_validate(traffic_pattern, strict=False), float("inf")).boundaries_s[:-1]


def latency_distribution(quantiles_ms: Mapping[str, float], objective: LatencyObjective) -> str:
    """The share of invocations answered within a model latency, over the whole test."""
    figure, axes = new_figure()
    shares = [float(name[1:]) for name in quantiles_ms]
    axes.plot(list(quantiles_ms.values()), shares, color=BLUE, marker="o", markersize=4, linewidth=1.8)
    axes.axvline(objective.model_latency_ms, color=RED, linewidth=1.2, linestyle="--")
    axes.annotate(
        f"objective {objective.model_latency_ms:g} ms ",
        (objective.model_latency_ms, 0.03),
        xycoords=("data", "axes fraction"),
        ha="right",
        color=RED,
    )
    axes.set(xlabel="model latency, ms", ylabel="invocations answered within, %", xscale="log", ylim=(0, 102))
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter("{x:g}")
    axes.xaxis.set_minor_formatter(NullFormatter())
    return svg(figure)


def _objective_line(axes: Axes, objective: LatencyObjective) -> None:
    axes.axhline(objective.model_latency_ms, color=RED, linewidth=1.2, linestyle="--")
    axes.annotate(
        f"objective {objective.percentile} ≤ {objective.model_latency_ms:g} ms ",
        (1, objective.model_latency_ms),
        xycoords=("axes fraction", "data"),
        ha="right",
        va="bottom",
        color=RED,
    )


def new_figure(size_in: tuple[float, float] = SIZE_IN) -> tuple[Figure, Axes]:
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=size_in, layout="constrained")
        return figure, figure.subplots()


def _numbers(values: Sequence[float | None]) -> list[float]:
    return [float("nan") if value is None else value for value in values]


def svg(figure: Figure) -> str:
    """The figure as an <svg> element, without prologue, date or fixed size."""
    with mpl.rc_context(STYLE):
        buffer = io.StringIO()
        figure.savefig(buffer, format="svg", metadata={"Date": None}, transparent=True)
    text = buffer.getvalue()
    return re.sub(r'width="[^"]*pt" height="[^"]*pt"', 'width="100%"', text[text.index("<svg") :], count=1)
