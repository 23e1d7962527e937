"""Keeps metric data as distributions, and computes CloudWatch's statistics of them. Pure: no clock, no moto.

moto keeps one object per value and knows no percentiles; a load test has tens of thousands of values. Here a datum is
values with counts, buckets are aligned on multiples of the period, and a percentile is computed by nearest rank.
"""

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

_PERCENTILE = re.compile(r"^p(\d{1,2}(?:\.\d{1,10})?|100)$")
STATISTICS = ("SampleCount", "Average", "Sum", "Minimum", "Maximum")


@dataclass(frozen=True, slots=True)
class Distribution:
    """Values seen at one moment (Unix time in seconds), with the count of each."""

    at: float
    values: tuple[float, ...]
    counts: tuple[float, ...]
    unit: str | None = None


def is_statistic(name: str) -> bool:
    return name in STATISTICS or _PERCENTILE.match(name) is not None


def buckets(
    data: Iterable[Distribution], start: float, end: float, period_s: int, unit: str | None = None
) -> dict[int, list[Distribution]]:
    """Groups the data of [start, end) by bucket, oldest first. A bucket's key is its first second."""
    by_second: defaultdict[int, list[Distribution]] = defaultdict(list)
    for datum in data:
        if start <= datum.at < end and unit in (None, datum.unit):
            by_second[int(datum.at // period_s) * period_s].append(datum)
    return dict(sorted(by_second.items()))


def statistic(name: str, data: Sequence[Distribution]) -> float:
    """Computes a statistic of a bucket. Raises ValueError for an unknown name."""
    if match := _PERCENTILE.match(name):
        return percentile(data, float(match[1]))
    match name:
        case "SampleCount":
            return _count(data)
        case "Sum":
            return _sum(data)
        case "Average":
            return _sum(data) / (_count(data) or math.nan)
        case "Minimum":
            return min(min(datum.values) for datum in data)
        case "Maximum":
            return max(max(datum.values) for datum in data)
    raise ValueError(f"'{name}' is no statistic that this account computes.")


def percentile(data: Iterable[Distribution], rank: float) -> float:
    """Returns the smallest value that at least `rank` percent of all values do not exceed."""
    weights: defaultdict[float, float] = defaultdict(float)
    for datum in data:
        for value, count in zip(datum.values, datum.counts, strict=True):
            weights[value] += count
    return _nearest_rank(weights, rank)


def _nearest_rank(weights: Mapping[float, float], rank: float) -> float:
    wanted, seen, value = rank / 100 * sum(weights.values()), 0.0, math.nan
    for value in sorted(weights):
        seen += weights[value]
        if seen >= wanted:
            break
    return value


def _count(data: Iterable[Distribution]) -> float:
    return sum(sum(datum.counts) for datum in data)


def _sum(data: Iterable[Distribution]) -> float:
    return sum(value * count for datum in data for value, count in zip(datum.values, datum.counts, strict=True))
