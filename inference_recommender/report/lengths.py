"""The report's tables of lengths: which payloads a recommendation is for, and what other payloads would make of it."""

from inference_recommender.report.document import Table, Value, table
from workloads import LengthShift, PayloadLengths, TokenCounts

PERCENTILES = (
    ("of", "tokens of", ""),
    ("mean", "mean", ",.1f"),
    ("p50", "P50", "d"),
    ("p90", "P90", "d"),
    ("p99", "P99", "d"),
    ("maximum", "longest", "d"),
)
SHIFTS = (
    ("payloads", "payloads", ""),
    ("mean_input_tokens", "input tokens, mean", ",.1f"),
    ("mean_output_tokens", "output tokens, mean", ",.1f"),
    ("service_ms", "alone, mean ms", ",.4g"),
    ("unloaded_latency_ms", "alone, at the percentile, ms", ",.4g"),
    ("misses_unloaded", "misses the objective without load", ""),
    ("scale_of_throughput", "throughput, times", ".2f"),
    ("scale_within_limit", "capacity, times", ".2f"),
    ("least_by_turn", "least by turn", ".2f"),
    ("most_by_turn", "most by turn", ".2f"),
    ("max_invocations_per_minute", "bears invocations/min", ",.0f"),
    ("instance_count", "instances", ",d"),
)


def lengths_table(lengths: PayloadLengths | None) -> Table | None:
    """Returns the percentiles of the payloads' tokens; None where nothing counted them."""
    if lengths is None:
        return None
    counts = [("requests", lengths.input_tokens), ("answers", lengths.output_tokens)]
    rows = [(name, *_percentiles(each)) for name, each in counts if each is not None]
    note = (
        f"The recommendation is for payloads of these lengths, {lengths.payloads:,} of them; the model takes "
        f"{lengths.max_input_tokens} tokens."
    )
    if not lengths.shifts:
        note += " What longer ones would cost, the command `lengths` measures."
    return table("lengths", "Lengths of the payloads", PERCENTILES, rows, note)


def shifts_table(lengths: PayloadLengths | None) -> Table | None:
    """Returns what becomes of capacity and fleet where the payloads' lengths shift; None where nothing measured it."""
    if lengths is None or not lengths.shifts:
        return None
    rows = [_shift(each) for each in lengths.shifts]
    note = (
        f"Measured at {lengths.measured_at} on {lengths.machine}, in turns, by closed-loop users; the capacity of open "
        "arrivals is estimated from them, and held to no search (docs/lengths.md)."
    )
    return table("length-shifts", "Where the lengths shift", SHIFTS, rows, note)


def _shift(shift: LengthShift) -> tuple[Value, ...]:
    figures = {**shift.model_dump(), **dict(zip(("least_by_turn", "most_by_turn"), shift.scale_by_turn, strict=True))}
    return shift.name, *(figures[key] for key, _, _ in SHIFTS[1:])


def _percentiles(counts: TokenCounts) -> tuple[float | int, ...]:
    return counts.mean, counts.p50, counts.p90, counts.p99, counts.maximum
