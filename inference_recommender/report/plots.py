"""The report's plots, each an SVG of its own. Pure: measurements in, text out; the same input gives the same bytes.

Colours are CSS variables that `base.html` sets for light and dark pages. What a line means stands in a legend outside
the axes, so that no label covers a point or another label.
"""

import csv
import io
import re
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from itertools import accumulate
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.collections import PathCollection
from matplotlib.container import BarContainer
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from inference_recommender.capacity.statistics import Floats
from inference_recommender.capacity.time_series import Series
from inference_recommender.measurement import Measurement
from inference_recommender.report.document import Plot
from inference_recommender.sizing.verdict import expected_latencies
from workloads import Candidate, LatencyObjective, Proof

COLOURS = {
    "blue": "#2f6fdb",
    "orange": "#e07b39",
    "red": "#c8372d",
    "green": "#1d7f4e",
    "grey": "#8b919c",
    "ink": "#3b4252",
    "axis": "#8a919c",
    "grid": "#e4e7ec",
    "tick": "#5b6472",
}
"""Every colour of a plot, by the CSS variable (--plot-…) that replaces it on the page."""
BLUE, ORANGE, RED, GREEN, GREY, INK, AXIS, GRID, TICK = COLOURS.values()

STYLE: dict[Any, Any] = {
    "svg.hashsalt": "report",
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 10,
    "text.color": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": AXIS,
    "axes.labelcolor": INK,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": GRID,
    "xtick.color": AXIS,
    "ytick.color": AXIS,
    "xtick.labelcolor": TICK,
    "ytick.labelcolor": TICK,
    "legend.frameon": False,
}
SIZE_IN, WIDE_IN = (5.4, 3.4), (10.6, 3.2)
WIDE_PAGE_IN = 10.0
"""Figures from this width on take the page's whole width."""
MOST_LIMITS = 3.0
"""Latencies above this multiple of the limit are cut off: an overloaded queue has no end."""
TICKS_MINUTES, MOST_TICKS = (1, 2, 5, 10, 15, 30, 60, 120), 13
MOST_PHASE_NAMES = 8
"""With more phases, only their numbers are shown."""


def latency_against_rate(
    series: Series, measured: Measurement, candidate: Candidate, objective: LatencyObjective, proof: Proof | None = None
) -> Plot:
    """Draws the objective's percentile over the rate of an instance: of closed-loop users, of open arrivals by the
    estimate, by probes and by a proof. Vertical lines are the closed-loop rate and the capacity with its interval.
    """
    figure, axes = new_figure()
    name, limit_ms = f"p{objective.percentile_rank:g}", objective.model_latency_ms
    seen = series.model_latency_ms.get(name) or series.latency_ms.get(name) or (None,) * len(series.seconds)
    pairs = zip(series.invocations_per_minute(), seen, strict=True)
    users = [(rate / measured.instance_count, latency) for rate, latency in pairs if rate and latency]
    _points(axes, users, ORANGE, "o", f"{objective.percentile} of closed-loop users")
    expected = [point for point in expected_latencies(measured, objective) if point[1] <= MOST_LIMITS * limit_ms]
    if expected:
        rates, latencies = zip(*expected, strict=True)
        axes.plot(rates, latencies, color=GREEN, linewidth=1.6, label="open arrivals, estimated")
        _band(axes, np.array(rates), latencies, candidate)
    probes = measured.open_loop.probes if measured.open_loop else ()
    known = [(probe.invocations_per_minute, probe.latency_ms) for probe in probes if probe.latency_ms is not None]
    _points(axes, known, BLUE, "D", "open arrivals, measured")
    proven = _proven(axes, proof) if proof else []
    axes.axhline(limit_ms, color=RED, linewidth=1.2, linestyle="--", label=asked(objective))
    if candidate.max_invocations_interval:
        axes.axvspan(*candidate.max_invocations_interval, color=GREY, alpha=0.2, linewidth=0, label="95 % interval")
    if rate := candidate.max_invocations_per_minute:
        axes.axvline(rate, color=INK, linewidth=1.4, label=f"sizes the fleet, {rate:,.0f}/min")
    if rate := candidate.closed_loop_invocations_per_minute:
        axes.axvline(rate, color=GREY, linewidth=1.4, linestyle=":", label=f"closed-loop rate {rate:,.0f}/min")
    _over_rates(axes, "latency, ms", [latency for _, latency in (*users, *known, *proven)], limit_ms)
    return drawn(figure, legend_columns=2)


def capacity_against_cv(points: Sequence[tuple[float, float]], objective: LatencyObjective) -> Plot:
    """Draws the estimated capacity of an instance over the coefficient of variation of the gaps between requests."""
    figure, axes = new_figure()
    cvs, rates = zip(*points, strict=True)
    axes.plot(cvs, rates, color=GREEN, linewidth=1.6, marker="o", markersize=4, label="gamma arrivals, estimated")
    axes.axvline(1.0, color=GREY, linewidth=1.2, linestyle=":", label="Poisson arrivals")
    if (cv := objective.arrivals.cv) is not None:
        axes.axvline(cv, color=INK, linewidth=1.4, label=f"the workload's, CV {cv:g}")
    axes.set(
        xlabel="coefficient of variation of the gaps", ylabel="capacity per minute", xlim=(0, None), ylim=(0, None)
    )
    axes.yaxis.set_major_formatter("{x:,.0f}")
    return drawn(figure, legend_columns=2)


def _band(axes: Axes, rates: Floats, latencies: Sequence[float], candidate: Candidate) -> None:
    """Draws where the estimated curve may lie: its rates are as unsure as the rate that was estimated by it."""
    rate, interval = candidate.max_invocations_per_minute, candidate.max_invocations_interval
    if candidate.capacity_basis == "estimate" and rate and interval:
        low, high = interval
        axes.fill_betweenx(latencies, rates * low / rate, rates * high / rate, color=GREEN, alpha=0.16, linewidth=0)


def _proven(axes: Axes, proof: Proof) -> list[tuple[float, float]]:
    """Draws each load of a proof with its interval, and returns the points."""
    known = [
        (each.invocations_per_minute / proof.instances, each.latency_ms, each.latency_interval_ms)
        for each in proof.scenarios
        if each.invocations_per_minute is not None and each.latency_ms is not None
    ]
    points = [(rate, latency) for rate, latency, _ in known]
    _points(axes, points, RED, "s", "proof, with its 95 % interval")
    for rate, latency, (low, high) in known:
        axes.plot((rate, rate), (low or 0.0, latency if high is None else high), color=RED, linewidth=1.4)
    return points


def _points(axes: Axes, points: Sequence[tuple[float, float]], colour: str, marker: str, label: str) -> None:
    if points:
        rates, latencies = zip(*points, strict=True)
        axes.scatter(rates, latencies, s=18, color=colour, marker=marker, alpha=0.75, label=label)


def of_proof(proof: Proof) -> Plot:
    """Draws each load of a proof with its interval, and the limit."""
    figure, axes = new_figure(WIDE_IN)
    proven, limit_ms = _proven(axes, proof), proof.limit_ms
    label = f"limit {proof.percentile} ≤ {limit_ms:g} ms"
    axes.axhline(limit_ms, color=RED, linewidth=1.2, linestyle="--", label=label)
    _over_rates(axes, f"{proof.percentile}, ms", [limit_ms, *(latency for _, latency in proven)], limit_ms)
    return drawn(figure, legend_columns=2)


def _over_rates(axes: Axes, label: str, latencies: Sequence[float], limit_ms: float) -> None:
    axes.set(xlabel="invocations per minute and instance", ylabel=label, xlim=(0, None))
    axes.set_ylim(0, min(max(latencies, default=1) * 1.15, MOST_LIMITS * limit_ms))
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.xaxis.set_major_locator(MaxNLocator(6))


def throughput_over_time(
    series: Series, traffic_pattern: Mapping[str, Any] | None, warm_up_s: float | None = None
) -> Plot:
    """Draws invocations per minute and users over the test, the start of each phase that it reached, and the warm-up.

    `traffic_pattern` is None where the service chose its own traffic.
    """
    figure, axes = new_figure(WIDE_IN)
    rates, users = (np.array(row, dtype=np.float64) for row in (series.invocations_per_minute(), series.users))
    axes.plot(series.seconds, rates, color=BLUE, marker=".", label="invocations per minute")
    with mpl.rc_context(STYLE):
        users_axes = axes.twinx()
    users_axes.grid(False)
    users_axes.spines[:].set_visible(False)
    users_axes.step(series.seconds, users, where="post", color=ORANGE, linewidth=1.2)
    users_axes.set(ylabel="users", ylim=(0, None))
    axes.plot([], [], color=ORANGE, linewidth=1.2, label="users")
    if warm_up_s:
        axes.axvspan(0, warm_up_s, color=GREY, alpha=0.2, linewidth=0, label="warm-up")
    reached = [start for start in _phase_starts_s(traffic_pattern) if start <= series.seconds[-1]]
    for number, start in enumerate(reached, start=1):
        axes.axvline(start, color=GREY, linewidth=1, linestyle=":")
        name = f"phase {number}" if len(reached) <= MOST_PHASE_NAMES else str(number)
        axes.annotate(f" {name}", (start, 1), xycoords=("data", "axes fraction"), va="bottom", color=TICK)
    axes.set(xlabel="seconds since the first request", ylabel="invocations per minute", ylim=(0, None))
    axes.yaxis.set_major_formatter("{x:,.0f}")
    return drawn(figure, legend_columns=3)


def _phase_starts_s(traffic_pattern: Mapping[str, Any] | None) -> Sequence[float]:
    """Returns the seconds from the test's beginning to the beginning of each phase or step of the API's pattern."""
    match traffic_pattern:
        case {"Phases": phases}:
            durations = [phase["DurationInSeconds"] for phase in phases]
        case {"Stairs": {"DurationInSeconds": duration, "NumberOfSteps": steps}}:
            durations = [duration / steps] * steps
        case _:
            return ()
    return list(accumulate(durations[:-1], initial=0.0))


def worst_day(start: str, serving: Sequence[int], desired: Sequence[int], ideal: Sequence[int]) -> Plot:
    """Draws the instances of a simulation by minute from `start` on, with full hours on the axis or parts of them."""
    figure, axes = new_figure(WIDE_IN)
    begins, minutes = datetime.fromisoformat(start), np.arange(len(serving))
    axes.step(minutes, desired, color=ORANGE, linewidth=1.5, where="post", label="desired")
    axes.step(minutes, serving, color=BLUE, linewidth=1.5, where="post", label="serving")
    axes.plot(minutes, ideal, color=GREEN, linewidth=1.1, linestyle=":", label="ideal")
    each = next((step for step in TICKS_MINUTES if len(minutes) / step <= MOST_TICKS), TICKS_MINUTES[-1])
    ticks = np.arange(-(begins.hour * 60 + begins.minute) % each, len(minutes), each).tolist()
    axes.set_xticks(ticks, [(begins + timedelta(minutes=tick)).strftime("%H:%M") for tick in ticks])
    axes.set(xlabel="time, UTC", ylabel="instances", ylim=(0, None))
    axes.margins(x=0)
    axes.yaxis.set_major_formatter("{x:,.6g}")
    return drawn(figure, legend_columns=3)


def asked(objective: LatencyObjective) -> str:
    return f"objective {objective.percentile} ≤ {objective.model_latency_ms:g} ms"


def new_figure(size_in: tuple[float, float] = SIZE_IN) -> tuple[Figure, Axes]:
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=size_in, layout="constrained")
        return figure, figure.subplots()


def drawn(figure: Figure, legend_columns: int = 0) -> Plot:
    """Returns the figure as the page has it, with its data. A legend is below the plot, where it covers nothing."""
    with mpl.rc_context(STYLE):
        if legend_columns:
            labels = figure.axes[0].get_legend_handles_labels()
            figure.legend(*labels, loc="outside lower center", ncols=legend_columns)
        buffer = io.StringIO()
        figure.savefig(buffer, format="svg", metadata={"Date": None}, transparent=True)
    text = buffer.getvalue()
    text = re.sub(r'width="[^"]*pt" height="[^"]*pt"', 'width="100%"', text[text.index("<svg") :], count=1)
    for name, colour in COLOURS.items():
        text = text.replace(colour, f"var(--plot-{name})")
    return Plot(svg=text, csv=_csv(figure), wide=figure.get_figwidth() >= WIDE_PAGE_IN)


def _csv(figure: Figure) -> str:
    """Writes the points of every line and scatter and the lengths of every bar; lines that span the axes have one
    coordinate of 0 to 1.
    """
    text = io.StringIO()
    lines = csv.writer(text, lineterminator="\n")
    for axes in figure.axes:
        lines.writerow(["series", axes.get_xlabel() or "x", axes.get_ylabel() or "y"])
        names = [label.get_text() for label in axes.get_yticklabels()]
        for bars in axes.containers:
            if isinstance(bars, BarContainer):
                widths = [bar.get_width() for bar in bars]
                lines.writerows([" ".join(name.split()), width, ""] for name, width in zip(names, widths, strict=False))
        for collection in axes.collections:
            if isinstance(collection, PathCollection):
                lines.writerows([_label(collection), *point] for point in np.asarray(collection.get_offsets()).tolist())
        for line in axes.get_lines():
            lines.writerows([_label(line), *point] for point in np.asarray(line.get_xydata()).tolist())
    return text.getvalue()


def _label(artist: Artist) -> str:
    label = str(artist.get_label())
    return "" if label.startswith("_") else label
