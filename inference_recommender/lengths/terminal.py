"""Prints a surface, the model that was fitted to it, and what becomes of the capacity where the lengths shift."""

from collections.abc import Sequence

from rich.box import SIMPLE_HEAD
from rich.table import Table

from inference_recommender.lengths.result import LengthSurface, sentences
from inference_recommender.lengths.surface import Point
from inference_recommender.output import number, stdout_console, tell
from workloads import LengthShift

ESTIMATED = (
    "Capacities are estimated from closed-loop users: the median of three turns, in brackets the least and the most. "
    "Search one with `capacity --payloads FILE`."
)


def show(found: LengthSurface, percentile: str) -> None:
    console = stdout_console()
    console.print(_heat("Alone, median ms by tokens in and out", found.points))
    title = f"Beside {found.load_invocations_per_minute:,.0f} payloads/min"
    console.print(_by_input(title, found.points_under_load))
    for sentence in sentences(found):
        tell(console, sentence)
    console.print()
    console.print(_shifts(found.lengths.shifts, percentile))
    tell(console, ESTIMATED)


def _heat(title: str, points: Sequence[Point]) -> Table:
    """Returns rows by input tokens and columns by output tokens, or where there is no such grid the rows alone."""
    outputs = sorted({each.output_tokens for each in points})
    known = {(each.input_tokens, each.output_tokens): each.p50_ms for each in points}
    inputs = sorted({each.input_tokens for each in points})
    if len(outputs) == 1 or len(known) < len(inputs) * len(outputs):
        return _by_input(title, points)
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD)
    table.add_column("in")
    for output in outputs:
        table.add_column(f"{output:g} out", justify="right")
    for tokens in inputs:
        table.add_row(str(tokens), *(number(known[tokens, output], ".3g") for output in outputs))
    return table


def _by_input(title: str, points: Sequence[Point]) -> Table:
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD)
    for head in ("in", "out, mean", "requests", "P50 ms", "P99 ms"):
        table.add_column(head, justify="right")
    for each in points:
        figures = (f"{each.output_tokens:.1f}", str(each.requests), f"{each.p50_ms:.3g}", f"{each.p99_ms:.3g}")
        table.add_row(str(each.input_tokens), *figures)
    return table


def _shifts(shifts: Sequence[LengthShift], percentile: str) -> Table:
    table = Table(title="Where the lengths shift", title_justify="left", box=SIMPLE_HEAD)
    table.add_column("payloads")
    for head in (
        "in",
        "out",
        "alone\nms",
        f"alone\n{percentile} ms",
        "throughput\ntimes",
        "capacity\ntimes",
        "bears\ninv/min",
        "count",
    ):
        table.add_column(head, justify="right")
    for each in shifts:
        table.add_row(
            each.name,
            f"{each.mean_input_tokens:.1f}",
            number(each.mean_output_tokens, ".1f"),
            f"{each.service_ms:.3g}",
            f"{each.unloaded_latency_ms:.3g}{' missed' if each.misses_unloaded else ''}",
            f"{each.scale_of_throughput:.2f}",
            f"{each.scale_within_limit:.2f} ({each.scale_by_turn[0]:.2f}–{each.scale_by_turn[1]:.2f})",
            number(each.max_invocations_per_minute, ",.0f"),
            number(each.instance_count, "d"),
        )
    return table
