"""The plots of a simulation: the worst day under the judged and the recommended policy, and cost against risk. Pure."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import numpy as np
from matplotlib.axes import Axes

from inference_recommender.report.document import Plot
from inference_recommender.report.plots import BLUE, GREEN, GREY, INK, ORANGE, RED, drawn, legend, new_figure
from inference_recommender.simulate.simulation_file import FIXED, RECOMMENDED, PolicyDay, Simulation
from workloads import LatencyObjective

SIZE_IN = (5.4, 3.0)
RISK_IN = (5.4, 3.4)
LEAST_LATE = 1e-5
"""Smaller shares are drawn at this one, because their axis is logarithmic."""
LINEAR_MINUTES = 1.0
"""Fewer minutes over the objective are drawn on a linear scale, more on a logarithmic one: 0 is on the axis, too."""
MARKERS = {RECOMMENDED: "s", FIXED: "^"}
TICKS_MINUTES, MOST_TICKS = (1, 2, 5, 10, 15, 30, 60, 120, 240), 7
Series = Sequence[float | None]


@dataclass(frozen=True, kw_only=True, slots=True)
class _PlotLine:
    """A line of each policy, or of all policies together."""

    title: str
    of: Callable[[PolicyDay], Series]
    colour: str = BLUE
    compared: bool = False
    """Whether the recommended policy's line is drawn, too."""
    steps: bool = False
    dotted: bool = False


def day_plots(simulation: Simulation, objective: LatencyObjective) -> dict[str, Plot]:
    """Returns the plots of the worst day by their titles."""
    day, price, unit = simulation.day, simulation.subject.price_per_hour_usd, "$"
    if price is None:
        price, unit = 1.0, "instance hours"
    hours, allowed = day.minutes_per_entry / 60, 1 - objective.percentile_rank / 100

    def spent(instances: Sequence[float]) -> Series:
        return [round(float(total), 3) for total in np.cumsum(np.array(instances) * hours * price)]

    def late(policy: PolicyDay) -> Series:
        return [max(share, LEAST_LATE) for share in policy.late_shares]

    def fixed(title: str, values: Series, colour: str) -> _PlotLine:
        return _PlotLine(title=title, of=lambda _: values, colour=colour, dotted=True)

    bound = day.lower_bound_instances
    limit_ms = objective.model_latency_ms
    return {
        "Load": _plot(
            simulation,
            "requests per second",
            _PlotLine(title="sent", of=lambda each: each.attempts_per_second),
            fixed("traffic", day.requests_per_second, GREY),
        ),
        "Fleet": _plot(
            simulation,
            "instances",
            _PlotLine(title="desired", of=lambda each: each.instances_desired, colour=ORANGE, steps=True),
            _PlotLine(title="serving", of=lambda each: each.instances_serving, compared=True, steps=True),
            fixed("ideal", bound, GREEN),
        ),
        "Latency": _plot(
            simulation,
            "latency, ms",
            _PlotLine(title=f"{objective.percentile}, estimated", of=lambda each: each.latency_ms, compared=True),
            limit=(limit_ms, f"objective, {limit_ms:g} ms"),
        ),
        "Late requests": _plot(
            simulation,
            "share of requests",
            _PlotLine(title="late requests", of=late, compared=True),
            limit=(allowed, f"allowed, {100 * allowed:.3g} %"),
            spec="{x:.3%}",
        ),
        "Cost": _plot(
            simulation,
            f"{unit} since the day began",
            _PlotLine(title=unit, of=lambda each: spent(each.instances_paid), compared=True),
            fixed("ideal", spent(bound), GREEN),
        ),
    }


def _plot(
    simulation: Simulation,
    axis: str,
    *lines: _PlotLine,
    limit: tuple[float, str] | None = None,
    spec: str = "{x:,.6g}",
) -> Plot:
    """Draws lines of the judged policy over the worst day. With a limit, the axis is logarithmic."""
    figure, axes = new_figure(SIZE_IN)
    day, judged, recommended = simulation.day, simulation.judged, simulation.recommended
    minutes = [number * day.minutes_per_entry for number in range(len(day.requests_per_second))]
    for line in lines:
        style = "steps-post" if line.steps else "default"
        if line.compared and recommended is not None and recommended is not judged:
            values, label = _known(line.of(recommended.day)), f"{line.title}, {RECOMMENDED}"
            axes.plot(minutes, values, color=GREY, linewidth=1.1, linestyle="--", label=label, drawstyle=style)
        dash, width = (":", 1.1) if line.dotted else ("-", 1.5)
        values = _known(line.of(judged.day))
        axes.plot(
            minutes, values, color=line.colour, linewidth=width, linestyle=dash, label=line.title, drawstyle=style
        )
    if limit:
        axes.axhline(limit[0], color=RED, linewidth=1.2, linestyle="--", label=limit[1])
        axes.set_yscale("log")
    else:
        axes.set_ylim(0, None)
    _time_axis(axes, datetime.fromisoformat(day.start), day.minutes)
    axes.set_ylabel(axis)
    axes.yaxis.set_major_formatter(spec)
    legend(figure, axes, columns=2)
    return drawn(figure)


def cost_against_risk(simulation: Simulation) -> Plot:
    """Draws the minutes over the objective against the cost: all tried policies, the frontier, the compared policies,
    and the ideal fleet. The judged policy has a ring.
    """
    figure, axes = new_figure(RISK_IN)
    price, unit, judged = simulation.subject.price_per_hour_usd, "$", simulation.judged
    if price is None:
        price, unit = 1.0, "instance hours"
    tried = simulation.search.points if simulation.search else ()
    if tried:
        hours, over = np.array(tried).T
        axes.scatter(hours * price, over, s=9, color=GREY, alpha=0.6, label="tried")
    points = [(each.instance_hours * price, each.minutes_over_objective, each) for each in simulation.by_cost()]
    front = [(cost, minutes) for cost, minutes, each in points if each.on_frontier]
    if front:
        axes.plot(
            *np.array(front).T, color=ORANGE, linewidth=1.2, marker="o", markersize=4, label="frontier, search's seeds"
        )
    for cost, minutes, each in points:
        if not each.on_frontier:
            axes.scatter([cost], [minutes], s=44, color=BLUE, marker=MARKERS.get(each.name, "D"), label=each.name)
        if each is judged:
            axes.scatter([cost], [minutes], s=150, facecolors="none", edgecolors=INK, linewidths=1.4)
    ideal = judged.lower_bound_instance_hours * price
    axes.axvline(ideal, color=GREEN, linewidth=1.2, linestyle=":", label="ideal")
    allowed = simulation.allowed_minutes
    axes.axhline(allowed, color=RED, linewidth=1.2, linestyle="--", label=f"tolerated, {allowed:g} minutes")
    axes.set_yscale("symlog", linthresh=LINEAR_MINUTES)
    axes.set(xlabel=f"{unit} for the whole trace, mean", ylabel="minutes over, mean", xlim=(0, None))
    axes.set_ylim(-0.15, 2 * max([allowed, *(minutes for _, minutes, _ in points), *(over for _, over in tried)]))
    axes.xaxis.set_major_formatter("{x:,.6g}")
    axes.yaxis.set_major_formatter("{x:,.6g}")
    legend(figure, axes, columns=2)
    return drawn(figure)


def _known(values: Series) -> list[float]:
    return [float("nan") if value is None else value for value in values]


def _time_axis(axes: Axes, start: datetime, minutes: float) -> None:
    """Marks full hours, or shorter steps of a short day: at most `MOST_TICKS` times of the clock."""
    each = next((step for step in TICKS_MINUTES if minutes / step <= MOST_TICKS), TICKS_MINUTES[-1])
    first = -(start.hour * 60 + start.minute + start.second / 60) % each
    ticks = np.arange(first, minutes + 1e-9, each).tolist()
    axes.set_xticks(ticks, [(start + timedelta(minutes=tick)).strftime("%H:%M") for tick in ticks])
    axes.set_xlabel("time, UTC")
    axes.margins(x=0)
