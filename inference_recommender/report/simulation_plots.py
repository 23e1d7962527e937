"""The plot of a simulation: the fleet of the judged policy over the worst day. Pure."""

from datetime import datetime, timedelta

import numpy as np

from inference_recommender.report.document import Plot
from inference_recommender.report.plots import BLUE, GREEN, ORANGE, WIDE_IN, drawn, legend, new_figure
from inference_recommender.report.simulation_report import WorstDay

TICKS_MINUTES, MOST_TICKS = (1, 2, 5, 10, 15, 30, 60, 120), 13


def worst_day_plot(day: WorstDay) -> Plot:
    """Draws desired, serving and ideal instances by minute, with full hours on the axis or parts of them."""
    figure, axes = new_figure(WIDE_IN)
    start = datetime.fromisoformat(day.start)
    minutes = np.arange(len(day.serving))
    axes.step(minutes, day.desired, color=ORANGE, linewidth=1.5, where="post", label="desired")
    axes.step(minutes, day.serving, color=BLUE, linewidth=1.5, where="post", label="serving")
    axes.plot(minutes, day.ideal, color=GREEN, linewidth=1.1, linestyle=":", label="ideal")
    each = next((step for step in TICKS_MINUTES if len(minutes) / step <= MOST_TICKS), TICKS_MINUTES[-1])
    ticks = np.arange(-(start.hour * 60 + start.minute) % each, len(minutes), each).tolist()
    axes.set_xticks(ticks, [(start + timedelta(minutes=tick)).strftime("%H:%M") for tick in ticks])
    axes.set(xlabel="time, UTC", ylabel="instances", ylim=(0, None))
    axes.margins(x=0)
    axes.yaxis.set_major_formatter("{x:,.6g}")
    legend(figure, axes, columns=3)
    return drawn(figure)
