"""Which rows are answered together. Pure."""

from collections.abc import Sequence


def by_length(lengths: Sequence[int], batch_rows: int) -> list[list[int]]:
    """Places of rows, shortest first, in batches of at most `batch_rows`: a batch is padded to its longest row."""
    order = sorted(range(len(lengths)), key=lengths.__getitem__)
    return [order[start : start + batch_rows] for start in range(0, len(order), batch_rows)]
