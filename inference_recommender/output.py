"""Terminal output of all commands: help, width, missing figures, progress of jobs, the table of a recommendation,
and sentences about a candidate, which its report shows too. A sentence appears only if its figures are known.
"""

import argparse
import math
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self, TypeAlias

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

from inference_recommender.progress import ProgressUpdate
from workloads import Candidate, LatencyObjective, PayloadLengths, Recommendation, Sizing
from workloads.program import printable
from workloads.recommendation import ScalingAdvice

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"

LOG_WIDTH = 120
"""Columns of a table where stdout is not a terminal."""
MISSING = "-"
"""Shown for an unknown figure; the lines below a table have the reason."""


def add_command(
    commands: Commands, name: str, summary: str, example: str, description: str | None = None
) -> argparse.ArgumentParser:
    """Adds a command whose help ends with an example, a command line without `python -m inference_recommender`."""
    return commands.add_parser(
        name,
        help=summary,
        description=description or f"{summary[0].upper()}{summary[1:]}.",
        epilog=f"example:\n  python -m inference_recommender {example}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )


def stdout_console(log_width: int = LOG_WIDTH) -> Console:
    """Returns a console as wide as the terminal, or `log_width` columns wide in a log."""
    return Console() if sys.stdout.isatty() else _LogConsole(width=log_width)


class _LogConsole(Console):
    """Prints tables without the blanks that pad their lines."""

    def print(self, *objects: Any, **options: Any) -> None:
        with self.capture() as captured:
            super().print(*objects, **options)
        self.file.write(re.sub(r" +$", "", captured.get(), flags=re.MULTILINE))


def tell(console: Console, text: str, style: str | None = None) -> None:
    """Prints a sentence whole, whatever the width, without markup or control characters."""
    console.print(printable(text), style=style, highlight=False, soft_wrap=True, markup=False)


def warn(stderr: Console, text: str) -> None:
    tell(stderr, f"Warning: {text}", "yellow")


def interval_text(low: float | None, high: float | None, spec: str, unit: str = "") -> str:
    """Returns an interval such as "22 ms to unknown"; an end is unknown if it is None or infinite."""
    ends = ("unknown" if end is None or math.isinf(end) else f"{end:{spec}}{unit}" for end in (low, high))
    return " to ".join(ends)


def number(value: float | None, spec: str) -> str:
    """Formats a figure of a table's cell."""
    return MISSING if value is None else format(value, spec)


class JobProgress:
    """Shows a bar for each job's traffic on a terminal; elsewhere a line whenever a status changes."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._bar = Progress(
            TextColumn("[bold]{task.description}"),
            BarColumn(bar_width=12),
            TimeElapsedColumn(),
            TextColumn("{task.fields[latest]}"),
            console=console,
            disable=not console.is_terminal,
        )
        self._tasks: dict[str, TaskID] = {}
        self._shown: tuple[str, str] | None = None

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def say(self, text: str) -> None:
        tell(self._bar.console, text, "yellow")  # rich prints it above the bar

    def update(self, update: ProgressUpdate) -> None:
        place = "" if update.jobs == 1 else f"{update.number} of {update.jobs} "
        self._tell(update, f" ({place.strip()})" if place else "")
        self._bar.update(
            self._task(update),
            description=f"{place}{update.status}",
            completed=min(update.elapsed_s, update.expected_s),
            latest=_latest(update),
        )

    def _tell(self, update: ProgressUpdate, place: str) -> None:
        """Prints the job's name, which is long: on a terminal once, on a line above the bar."""
        shown = (update.job_name, update.status)
        if self._console.is_terminal and update.job_name not in self._tasks:
            tell(self._console, f"{update.job_name}{place}")
        elif not self._console.is_terminal and shown != self._shown:
            tell(self._console, f"{update.job_name}{place}: {update.status}")
        self._shown = shown

    def _task(self, update: ProgressUpdate) -> TaskID:
        if update.job_name not in self._tasks:
            self._tasks[update.job_name] = self._bar.add_task("", total=update.expected_s, latest="")
        return self._tasks[update.job_name]


def _latest(update: ProgressUpdate) -> str:
    if update.users is None or update.invocations_per_minute is None:
        return ""
    latency = "" if update.latency_ms is None else f", {update.percentile} {update.latency_ms:.1f} ms"
    return f"{update.users:.0f} users, {update.invocations_per_minute:,.0f}/min{latency}"


def show(recommendation: Recommendation, console: Console) -> None:
    """Prints the candidates as a table, then the decision in words."""
    table = Table(title=f"{recommendation.workload}: {_asked(recommendation)}", title_justify="left", box=SIMPLE_HEAD)
    table.add_column("candidate")
    for head in (
        "capacity\n/min",
        "method",
        "closed-loop\n/min",
        f"{recommendation.objective.percentile}\nms",
        "instances",
        "min-max",
        "scaling\ntarget",
        "$/h",
        "$/1M",
    ):
        table.add_column(head, justify="right")
    for candidate in recommendation.candidates:
        table.add_row(*_cells(candidate), style="" if candidate.meets_objective else "dim")
    console.print(table)
    for candidate in recommendation.candidates:
        no_price = candidate.cost_reason if candidate.cost_per_hour_usd is None else None
        words = filter(None, (candidate.reason, *notes(candidate), no_price))
        tell(console, f"{_name(candidate)}: {' '.join(words)}")
    if recommendation.recommended:
        tell(console, loss_explained(recommendation.recommended, recommendation.objective))
    if explained := rows_explained(recommendation.objective, recommendation.recommended):
        tell(console, explained)
    if recommendation.lengths and recommendation.recommended:
        tell(console, lengths_explained(recommendation.lengths))
    tell(console, _decision(recommendation))


def _cells(candidate: Candidate) -> tuple[str, ...]:
    scaling = candidate.autoscaling
    return (
        _name(candidate),
        number(candidate.max_invocations_per_minute, ",.0f"),
        candidate.capacity_basis,
        number(candidate.closed_loop_invocations_per_minute, ",.0f"),
        number(candidate.objective_latency_ms, ".4g"),
        number(candidate.instance_count, "d"),
        f"{scaling.min_capacity}-{scaling.max_capacity}" if scaling else MISSING,
        number(scaling.target_invocations_per_instance if scaling else None, ",.0f"),
        number(candidate.cost_per_hour_usd, ",.3f"),
        number(candidate.cost_per_million_invocations_usd, ",.3f"),
    )


def _name(candidate: Candidate) -> str:
    return " ".join([candidate.instance_type, *(f"{key}={value}" for key, value in candidate.environment.items())])


def _asked(recommendation: Recommendation) -> str:
    objective = recommendation.objective
    return f"{objective.percentile} ≤ {objective.model_latency_ms:g} ms at {objective.peak}"


def rows_explained(objective: LatencyObjective, candidate: Candidate | None) -> str:
    """Returns the peak and the cost in rows, as a sentence; "" if a request has one row."""
    rows = objective.rows_per_invocation
    if rows == 1:
        return ""
    peak = f"Each invocation has {rows} rows: the peak is {objective.peak_invocations_per_minute * rows:,} rows/min"
    cost = candidate.cost_per_million_invocations_usd if candidate else None
    return f"{peak}." if cost is None else f"{peak}, and a million rows cost {cost / rows:,.3f} USD."


def loss_explained(candidate: Candidate, objective: LatencyObjective) -> str:
    """Returns whether the fleet sustains the peak after the loss of an instance, as a sentence."""
    left, capacity = (candidate.instance_count or 1) - 1, candidate.max_invocations_per_minute or 0.0
    if left and objective.peak_invocations_per_minute <= left * capacity:
        return "The loss of one instance at the peak is covered."
    each = f": {objective.peak_invocations_per_minute / left:,.0f}/min for each of the others" if left else ""
    return f"The loss of one instance at the peak is not covered{each}. sizing.spare_instances = 1 covers it."


def lengths_explained(lengths: PayloadLengths) -> str:
    """Returns the payload lengths for which a recommendation is valid, as a sentence."""
    counts = lengths.input_tokens
    answers = ""
    if lengths.output_tokens is not None:
        out = lengths.output_tokens
        answers = f" Answer length: {out.p50} tokens at P50, {out.p99} at P99, {out.maximum} at most."
    return (
        f"Payload length: {counts.p50} tokens at P50, {counts.p99} at P99, {counts.maximum} at most (workload limit "
        f"{lengths.max_input_tokens}).{answers}"
    )


def _decision(recommendation: Recommendation) -> str:
    chosen, origin = recommendation.recommended, recommendation.provenance
    if chosen is None:
        return f"{none_chosen(recommendation.candidates)[:-1]}: no recommendation was written."
    recommended = f"Recommended: {chosen.instance_count} × {chosen.instance_type}."
    if origin.measured_on != "local":
        return recommended
    return f"{recommended} Measured on this machine ({origin.machine}), not on SageMaker."


def none_chosen(candidates: Sequence[Candidate]) -> str:
    """Returns that no candidate meets the objective, or that none was verified, as a sentence."""
    shown = " meets" if all(candidate.verified for candidate in candidates) else " is shown to meet"
    return f"No candidate{shown} the objective."


@dataclass(frozen=True, kw_only=True, slots=True)
class ClientLatency:
    """Client latency at one percentile, from the actual and from the intended send."""

    percentile: str
    from_send_ms: float
    from_intended_ms: float

    @property
    def difference_ms(self) -> float:
        """Milliseconds that a request waited because the generator or its connections were busy."""
        return self.from_intended_ms - self.from_send_ms


def notes(candidate: Candidate) -> tuple[str, ...]:
    """Returns interval, instances, warm-up, AWS's policy and client latency, a sentence for each known one."""
    return tuple(_notes(candidate))


def _notes(candidate: Candidate) -> Iterator[str]:
    if candidate.max_invocations_interval:
        low, high = candidate.max_invocations_interval
        yield f"95 % interval: {low:,.0f} to {high:,.0f}."
    parts = candidate.instance_count_parts
    if added := {name: count for name, count in parts.items() if count and name != "peak"}:
        shown = ", ".join(f"{name} {count}" for name, count in added.items())
        yield f"Instances: {parts['peak']} for the peak, plus {shown}."
    if candidate.warm_up_s:
        yield f"Warm-up: {candidate.warm_up_s:g} s, not counted."
    if candidate.scaling_advice:
        yield advised(candidate.scaling_advice)
    if latencies := client_latencies(candidate):
        worst = latencies[-1]
        yield (
            f"Client latency {worst.percentile}: {worst.from_send_ms:.4g} ms from send, "
            f"{worst.from_intended_ms:.4g} ms from intended send."
        )


def advised(advice: ScalingAdvice) -> str:
    """Returns AWS's own scaling policy, which has no latency objective, as a sentence."""
    if advice.reason is not None:
        return f"AWS returned no scaling policy: {advice.reason.removesuffix('.')}."
    metric = f" ({advice.metric})" if advice.metric else ""
    target = "" if advice.target_value is None else f", target {advice.target_value:,g}{metric}"
    least, most = (MISSING if value is None else f"{value:,}" for value in (advice.min_capacity, advice.max_capacity))
    return f"AWS's own scaling policy, without a latency objective: {least} to {most} instances{target}."


def client_latencies(candidate: Candidate) -> tuple[ClientLatency, ...]:
    """Returns every percentile that was measured both ways, lowest first."""
    sent, intended = candidate.client_latency_ms, candidate.client_latency_from_intended_ms
    both = sorted(sent.keys() & intended.keys(), key=lambda name: float(name[1:]))
    return tuple(
        ClientLatency(percentile=name, from_send_ms=sent[name], from_intended_ms=intended[name]) for name in both
    )


def count_explained(candidate: Candidate, peak_invocations_per_minute: int, sizing: Sizing) -> str:
    """Returns the instances for the peak, for each kind of headroom in `sizing`, and in total, as sentences."""
    count, parts, rate = candidate.instance_count or 0, candidate.instance_count_parts, _rate(candidate)
    need = parts.get("peak", count)
    each = " each" if need > 1 else ""
    peak = f"The peak of {peak_invocations_per_minute:,} invocations/min needs {_instances(need)} at {rate}{each}"
    if not parts:  # a recommendation of an older version
        return f"{peak}, headroom included."
    added = ", ".join(f"{words} {parts.get(key) or 'none'}" for key, words in _headroom(sizing))
    if not added:
        return f"{peak}. No headroom is configured."
    return f"{peak}. {added[0].upper()}{added[1:]}: {_instances(count)} in all."


def _headroom(sizing: Sizing) -> Iterator[tuple[str, str]]:
    """Yields each key of [sizing] that adds headroom, and its words, in the order in which `fleet` applies them."""
    if sizing.burst_factor > 1:
        yield "burst_factor", f"bursts of {sizing.burst_factor:g} times the peak add"
    if sizing.headroom > 0:
        yield "headroom", f"{sizing.headroom * 100:g} % headroom adds"
    if sizing.spare_instances:
        spare = sizing.spare_instances
        yield "spare_instances", f"{spare} spare {'instance adds' if spare == 1 else 'instances add'}"
    if sizing.availability_zones:
        yield "availability_zones", f"the loss of one of {sizing.availability_zones} availability zones adds"
    if sizing.min_instances > 1:
        yield "min_instances", f"the minimum of {sizing.min_instances} instances adds"


def scaling_explained(candidate: Candidate, sizing: Sizing) -> str:
    if candidate.autoscaling is None:
        return ""
    target = candidate.autoscaling.target_invocations_per_instance
    return (
        f"Autoscaling adds an instance when the average exceeds {target:,.0f} invocations/min per instance, "
        f"{sizing.safety_factor * 100:g} % of its capacity."
    )


def cpu_utilization(percent: float | None, vcpus: int | None) -> str | None:
    """Returns "92", or "142 of 200 % (2 vCPUs)": SageMaker counts 100 % for each vCPU."""
    if percent is None:
        return None
    if percent <= 100 or vcpus is None:
        return f"{percent:,.0f}"
    return f"{percent:,.0f} of {vcpus * 100} % ({vcpus} vCPUs)"


def cores(machine: str) -> int | None:
    """Returns the cores in a machine's description, such as "AMD EPYC with 2 cores"."""
    match = re.search(r"with (\d+) cores?$", machine)
    return int(match[1]) if match else None


def _rate(candidate: Candidate) -> str:
    return f"{candidate.max_invocations_per_minute or 0:,.0f}"


def _instances(count: int) -> str:
    return f"{count:,} instance{'s' if count != 1 else ''}"
