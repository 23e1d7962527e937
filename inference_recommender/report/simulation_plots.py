"""The plots of a simulation: each policy's course over the worst day, and cost against risk. Pure.

Every plot of the day has all policies in it, on the same axes, and the page shows one of them at a time: what belongs
to a policy is in groups with its number (`data-policy`), and those of all but one are hidden. So the page needs no
library to draw with, and shows the judged policy where no script runs. The recommended policy and the ideal fleet stay.
"""

import csv
import io
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes

from inference_recommender.report.document import Plot
from inference_recommender.report.plots import BLUE, GREEN, GREY, INK, ORANGE, RED, drawn, legend, new_figure
from inference_recommender.simulate.simulation_file import FIXED, RECOMMENDED, SimulatedPolicy, Simulation
from workloads import LatencyObjective

SIZE_IN = (5.4, 3.0)
RISK_IN = (5.4, 3.4)
LEAST_LATE = 1e-5
"""Shares below it are drawn at it: their axis is logarithmic."""
LINEAR_MINUTES = 1.0
"""Minutes over the objective below it are drawn to scale, and above it by their logarithm: 0 is on the axis, too."""
MARKERS = {"chosen": "D", "best so far": "D", "asked for": "D", RECOMMENDED: "s", FIXED: "^"}
TICKS_MINUTES, MOST_TICKS = (1, 2, 5, 10, 15, 30, 60, 120, 240), 7
Series = Sequence[float | None]


@dataclass(frozen=True, kw_only=True, slots=True)
class _Line:
    """A line of each policy: its title and its values by policy."""

    title: str
    of: Callable[[SimulatedPolicy], Series]
    colour: str
    todays: bool = True
    """Whether the recommended policy's line is drawn, too."""
    steps: bool = False


def day_plots(simulation: Simulation, objective: LatencyObjective) -> dict[str, Plot]:
    """Returns the plots of the worst day by their titles."""
    day, policies, unit = simulation.day, simulation.by_cost(), "USD"
    price, each_h = simulation.subject.price_per_hour_usd, day.minutes_per_entry / 60
    if price is None:
        price, unit = 1.0, "instance hours"

    def spent(instances: Series) -> Series:
        total, sums = 0.0, []
        for paid in instances:
            total += (paid or 0.0) * each_h * price
            sums.append(round(total, 3))
        return sums

    attempts = _Line(title="requests sent", of=lambda each: each.day.attempts_per_second, colour=BLUE, todays=False)
    serving = _Line(title="serving", of=lambda each: each.day.instances_serving, colour=BLUE, steps=True)
    desired = _Line(title="wanted", of=lambda each: each.day.instances_desired, colour=ORANGE, todays=False, steps=True)
    latency = _Line(title=f"{objective.percentile}, estimated", of=lambda each: each.day.latency_ms, colour=BLUE)
    late = _Line(
        title="late requests", of=lambda each: [max(one, LEAST_LATE) for one in each.day.late_shares], colour=BLUE
    )
    cost = _Line(title=unit, of=lambda each: spent(each.day.instances_paid), colour=BLUE)
    bound = day.lower_bound_instances
    draw = _Drawing(simulation=simulation, policies=policies)
    limit = f"objective, {objective.model_latency_ms:g} ms"
    allowed = 1 - objective.percentile_rank / 100
    return {
        "Load": draw.plot("requests per second", [attempts], {"asked for": (day.requests_per_second, GREY)}),
        "Fleet": draw.plot("instances", [desired, serving], {"ideal": (bound, GREEN)}),
        "Latency": draw.plot("latency, ms", [latency], {}, line=(objective.model_latency_ms, limit), log=True),
        "Late requests": draw.plot(
            "share of requests", [late], {}, line=(allowed, f"allowed, {100 * allowed:.3g} %"), log=True, spec="{x:.3%}"
        ),
        "Cost": draw.plot(f"{unit} since the day began", [cost], {"ideal": (spent(bound), GREEN)}),
    }


@dataclass(frozen=True, kw_only=True, slots=True)
class _Drawing:
    simulation: Simulation
    policies: Sequence[SimulatedPolicy]

    @property
    def times(self) -> list[datetime]:
        """When each entry begins."""
        day = self.simulation.day
        start = datetime.fromisoformat(day.start)
        each = timedelta(minutes=day.minutes_per_entry)
        return [start + number * each for number in range(len(day.requests_per_second))]

    def plot(
        self,
        axis: str,
        lines: Sequence[_Line],
        fixed: Mapping[str, tuple[Series, str]],
        line: tuple[float, str] | None = None,
        *,
        log: bool = False,
        spec: str = "{x:,.6g}",
    ) -> Plot:
        """Draws lines of every policy, and those that are the same for all."""
        figure, axes = new_figure(SIZE_IN)
        today, day = self.simulation.recommended, self.simulation.day
        times = [number * day.minutes_per_entry for number in range(len(day.requests_per_second))]
        for title, (values, colour) in fixed.items():
            axes.plot(times, _known(values), color=colour, linewidth=1.1, linestyle=":", label=title)
        for each in lines:
            style = "steps-post" if each.steps else "default"
            if today and each.todays and len(self.policies) > 1:
                label = f"{each.title}, {RECOMMENDED}"
                values = _known(each.of(today))
                axes.plot(times, values, color=GREY, linewidth=1.1, linestyle="--", label=label, drawstyle=style)
            for number, policy in enumerate(self.policies):
                label = each.title if policy is self.simulation.judged else "_"
                values = _known(each.of(policy))
                (course,) = axes.plot(times, values, color=each.colour, linewidth=1.5, label=label, drawstyle=style)
                _belongs(course, number)
        if line:
            axes.axhline(line[0], color=RED, linewidth=1.2, linestyle="--", label=line[1])
        _time_axis(axes, datetime.fromisoformat(day.start), day.minutes)
        axes.set_ylabel(axis)
        if log:
            axes.set_yscale("log")
        else:
            axes.set_ylim(0, None)
        axes.yaxis.set_major_formatter(spec)
        legend(figure, axes, columns=2)
        return self._shown(drawn(figure), lines, fixed)

    def _shown(self, plot: Plot, lines: Sequence[_Line], fixed: Mapping[str, tuple[Series, str]]) -> Plot:
        """Returns the plot with all but the judged policy hidden, and with the lines of all as its data."""
        shown = str(self.policies.index(self.simulation.judged))
        return Plot(svg=of_policies(plot.svg, shown), csv=self._csv(lines, fixed))

    def _csv(self, lines: Sequence[_Line], fixed: Mapping[str, tuple[Series, str]]) -> str:
        columns = {title: values for title, (values, _) in fixed.items()}
        for number, policy in enumerate(self.policies, start=1):
            columns |= {f"{number} {policy.name}: {each.title}": each.of(policy) for each in lines}
        text = io.StringIO()
        rows = csv.writer(text, lineterminator="\n")
        rows.writerow(["time", *columns])
        times = [each.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ") for each in self.times]
        rows.writerows(zip(times, *columns.values(), strict=True))
        return text.getvalue()


def cost_against_risk(simulation: Simulation) -> Plot:
    """Draws the minutes over the objective against the cost: all policies that were tried, the frontier, those that
    were compared, and the ideal fleet. The policy that the page shows has a ring.
    """
    figure, axes = new_figure(RISK_IN)
    price, unit = simulation.subject.price_per_hour_usd, "USD"
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
    for number, (cost, minutes, _) in enumerate(points):
        ring = axes.scatter([cost], [minutes], s=150, facecolors="none", edgecolors=INK, linewidths=1.4)
        _belongs(ring, number)
    axes.axvline(
        simulation.judged.lower_bound_instance_hours * price,
        color=GREEN,
        linewidth=1.2,
        linestyle=":",
        label="ideal",
    )
    allowed = simulation.allowed_minutes
    axes.axhline(allowed, color=RED, linewidth=1.2, linestyle="--", label=f"tolerated, {allowed:g} minutes")
    axes.set_yscale("symlog", linthresh=LINEAR_MINUTES)
    axes.set(xlabel=f"{unit} for the whole trace, mean", ylabel="minutes over, mean", xlim=(0, None))
    highest = max([allowed, *(minutes for _, minutes, _ in points), *(over for _, over in tried)])
    axes.set_ylim(-0.15, 2 * highest)
    axes.xaxis.set_major_formatter("{x:,.6g}")
    axes.yaxis.set_major_formatter("{x:,.6g}")
    legend(figure, axes, columns=2)
    plot = drawn(figure)
    shown = str(simulation.by_cost().index(simulation.judged))
    return Plot(svg=of_policies(plot.svg, shown), csv=plot.csv)


def of_policies(svg: str, shown: str) -> str:
    """Marks the groups that belong to a policy, and hides those of all but one. Coordinates get two digits."""

    def group(found: re.Match[str]) -> str:
        hidden = "" if found[1] == shown else " hidden"
        return f'<g data-policy="{found[1]}"{hidden}>'

    marked = re.sub(r'<g id="policy-(\d+)-\d+">', group, svg)
    return re.sub(r"(?<=[\d]\.\d\d)\d+", "", marked)


def _belongs(artist: Artist, number: int) -> None:
    """Names an artist, so that its group is found in the figure; no two may have a name."""
    artist.set_gid(f"policy-{number}-{id(artist)}")


def _known(values: Series) -> list[float]:
    return [float("nan") if value is None else value for value in values]


def _time_axis(axes: Axes, start: datetime, minutes: float) -> None:
    """Marks full hours, or what fits a short day: at most `MOST_TICKS` times of the clock."""
    each = next((step for step in TICKS_MINUTES if minutes / step <= MOST_TICKS), TICKS_MINUTES[-1])
    first = -(start.hour * 60 + start.minute + start.second / 60) % each
    ticks = np.arange(first, minutes + 1e-9, each).tolist()
    axes.set_xticks(ticks, [(start + timedelta(minutes=tick)).strftime("%H:%M") for tick in ticks])
    axes.set_xlabel("time, UTC")
    axes.margins(x=0)
