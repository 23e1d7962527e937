"""Metrics as a line of a log: CloudWatch Logs reads them out of any log group; no call, no permission is needed.

Source: CloudWatch embedded metric format specification. A value is a number, or up to 100 of them: more are refused
there, so they are here. Pure; the caller prints the document on a line of its own.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

NAMESPACE = "TransformersInProduction"
MOST_VALUES = 100


@dataclass(frozen=True)
class Metric:
    name: str
    unit: str  # one of CloudWatch's: Count, Count/Second, Milliseconds, …
    value: float | Sequence[float]


def document(dimensions: Mapping[str, str], metrics: Sequence[Metric], at_s: float) -> dict[str, Any]:
    """`at_s` is seconds of the Unix epoch."""
    for metric in metrics:
        if isinstance(metric.value, Sequence) and len(metric.value) > MOST_VALUES:
            raise ValueError(f"{metric.name}: {len(metric.value)} values; at most {MOST_VALUES} fit in a line.")
    directive = {
        "Namespace": NAMESPACE,
        "Dimensions": [list(dimensions)],
        "Metrics": [{"Name": metric.name, "Unit": metric.unit} for metric in metrics],
    }
    values = {metric.name: metric.value for metric in metrics}
    return {"_aws": {"Timestamp": round(at_s * 1000), "CloudWatchMetrics": [directive]}, **dimensions, **values}
