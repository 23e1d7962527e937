"""The report's table of payload lengths."""

from inference_recommender.report.document import Table, table
from workloads import PayloadLengths, TokenCounts

PERCENTILES = (
    ("of", "tokens of", ""),
    ("mean", "mean", ",.1f"),
    ("p50", "P50", "d"),
    ("p90", "P90", "d"),
    ("p99", "P99", "d"),
    ("maximum", "longest", "d"),
)


def lengths_table(lengths: PayloadLengths | None) -> Table | None:
    """Returns the percentiles of the payloads' tokens; None if they are unknown."""
    if lengths is None:
        return None
    counts = [("requests", lengths.input_tokens), ("answers", lengths.output_tokens)]
    rows = [(name, *_percentiles(each)) for name, each in counts if each is not None]
    note = (
        f"The recommendation is valid for payloads of these lengths ({lengths.payloads:,} payloads, model limit "
        f"{lengths.max_input_tokens} tokens)."
    )
    return table("lengths", "Lengths of the payloads", PERCENTILES, rows, note)


def _percentiles(counts: TokenCounts) -> tuple[float | int, ...]:
    return counts.mean, counts.p50, counts.p90, counts.p99, counts.maximum
