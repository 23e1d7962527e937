"""The plots of a simulation: the worst day under the judged and the recommended policy, and cost against risk. Pure."""

from collections.abc import Sequence
from datetime import datetime, timedelta

import numpy as np
from matplotlib.axes import Axes

from inference_recommender.report.document import Plot
from inference_recommender.report.plots import BLUE, GREEN, GREY, INK, ORANGE, RED, drawn, legend, new_figure
from inference_recommender.simulate.simulation_file import FIXED, RECOMMENDED, Simulation

SIZE_IN = (5.4, 3.0)
RISK_IN = (5.4, 3.4)
LEAST_LATE = 1e-5
"""Smaller shares are drawn at this one, because their axis is logarithmic."""
LINEAR_MINUTES = 1.0
"""Fewer minutes over the objective are drawn on a linear scale, more on a logarithmic one: 0 is on the axis, too."""
MARKERS = {RECOMMENDED: "s", FIXED: "^"}
TICKS_MINUTES, MOST_TICKS = (1, 2, 5, 10, 15, 30, 60, 120, 240), 7


def simulation_plots(simulation: Simulation) -> dict[str, Plot]:
    """Returns the plots by title: the fleet and the late requests of the worst day, and cost against risk."""
    return {
        "Fleet": _fleet(simulation),
        "Late requests": _late_requests(simulation),
        "Cost against risk": _cost_against_risk(simulation),
    }


def _fleet(simulation: Simulation) -> Plot:
    figure, axes = new_figure(SIZE_IN)
    judged, recommended = simulation.judged, simulation.recommended
    if recommended is not judged:
        _line(axes, simulation, recommended.instances_serving, GREY, f"serving, {RECOMMENDED}", "--", steps=True)
    _line(axes, simulation, judged.instances_desired, ORANGE, "desired", steps=True)
    _line(axes, simulation, judged.instances_serving, BLUE, "serving", steps=True)
    _line(axes, simulation, simulation.day.lower_bound_instances, GREEN, "ideal", ":")
    axes.set(ylabel="instances", ylim=(0, None))
    axes.yaxis.set_major_formatter("{x:,.6g}")
    _time_axis(axes, simulation)
    legend(figure, axes, columns=2)
    return drawn(figure)


def _late_requests(simulation: Simulation) -> Plot:
    figure, axes = new_figure(SIZE_IN)
    judged, recommended, allowed = simulation.judged, simulation.recommended, simulation.curve.allowed
    if recommended is not judged:
        shares = np.maximum(recommended.late_shares, LEAST_LATE).tolist()
        _line(axes, simulation, shares, GREY, f"late requests, {RECOMMENDED}", "--")
    _line(axes, simulation, np.maximum(judged.late_shares, LEAST_LATE).tolist(), BLUE, "late requests")
    axes.axhline(allowed, color=RED, linewidth=1.2, linestyle="--", label=f"allowed, {100 * allowed:.3g} %")
    axes.set(ylabel="share of requests", yscale="log")
    axes.yaxis.set_major_formatter("{x:.3%}")
    _time_axis(axes, simulation)
    legend(figure, axes, columns=2)
    return drawn(figure)


def _line(
    axes: Axes,
    simulation: Simulation,
    values: Sequence[float],
    colour: str,
    label: str,
    dash: str = "-",
    *,
    steps: bool = False,
) -> None:
    minutes = np.arange(len(values)) * simulation.day.minutes_per_entry
    style, width = "steps-post" if steps else "default", 1.5 if dash == "-" else 1.1
    axes.plot(minutes, values, color=colour, label=label, linestyle=dash, linewidth=width, drawstyle=style)


def _time_axis(axes: Axes, simulation: Simulation) -> None:
    """Marks full hours, or shorter steps of a short day: at most `MOST_TICKS` times of the clock."""
    start, minutes = datetime.fromisoformat(simulation.day.start), simulation.day.minutes
    each = next((step for step in TICKS_MINUTES if minutes / step <= MOST_TICKS), TICKS_MINUTES[-1])
    first = -(start.hour * 60 + start.minute + start.second / 60) % each
    ticks = np.arange(first, minutes + 1e-9, each).tolist()
    axes.set_xticks(ticks, [(start + timedelta(minutes=tick)).strftime("%H:%M") for tick in ticks])
    axes.set_xlabel("time, UTC")
    axes.margins(x=0)


def _cost_against_risk(simulation: Simulation) -> Plot:
    """Draws the minutes over the objective against the cost: all tried policies, the frontier, the compared policies,
    and the ideal fleet. The judged policy has a ring.
    """
    figure, axes = new_figure(RISK_IN)
    price, unit, judged = simulation.price_per_hour_usd, "$", simulation.judged
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
