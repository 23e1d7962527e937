"""Latencies counted by the minute, and the requests of PutMetricData that they become. Pure.

Counts of values, not statistics, so that CloudWatch can tell percentiles. A value is kept to three significant digits:
it is 0.5 % off at most, and there are few different ones, of which a datum may hold 150.
"""

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, TypeVar

from workloads import client_metric

MINUTE_S = 60
VALUES_PER_DATUM = 150
DATA_PER_REQUEST = 20
"""Far below the service's 1,000, which with all their values would pass its limit of 1 MB a request."""
LEAST_MS = 0.001

T = TypeVar("T")

Counts = Counter[tuple[int, float]]
"""How often each latency in ms was seen in each minute, which is named by its first second since 1970."""


def seen(latency_ms: float, at_s: float) -> tuple[int, float]:
    """The minute and the value under which a latency is counted."""
    value = max(latency_ms, LEAST_MS)
    return int(at_s // MINUTE_S) * MINUTE_S, round(value, 2 - math.floor(math.log10(value)))


def requests(workload: str, counts: Mapping[tuple[int, float], int]) -> Iterator[dict[str, Any]]:
    """Of PutMetricData, oldest minutes first."""
    for data in _parts(list(_data(workload, counts)), DATA_PER_REQUEST):
        yield {"Namespace": client_metric.NAMESPACE, "MetricData": data}


def _data(workload: str, counts: Mapping[tuple[int, float], int]) -> Iterator[dict[str, Any]]:
    for minute in sorted({minute for minute, _ in counts}):
        values = sorted((value, count) for (of, value), count in counts.items() if of == minute)
        for part in _parts(values, VALUES_PER_DATUM):
            yield {
                "MetricName": client_metric.METRIC_NAME,
                "Dimensions": [{"Name": client_metric.DIMENSION, "Value": workload}],
                "Timestamp": datetime.fromtimestamp(minute, UTC),
                "Values": [value for value, _ in part],
                "Counts": [float(count) for _, count in part],
                "Unit": client_metric.UNIT,
            }


def _parts(values: list[T], size: int) -> Iterator[list[T]]:
    return (values[first : first + size] for first in range(0, len(values), size))
