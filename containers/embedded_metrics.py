"""Formats metrics as a line of a log, from which CloudWatch Logs reads them without a call or a permission.

Source: CloudWatch embedded metric format specification. A value is a number, or up to 100 of them. Pure: the caller
prints the document on a line of its own.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

NAMESPACE = "TransformersInProduction"
MOST_VALUES = 100


@dataclass(frozen=True)
class LogMetric:
    name: str
    unit: str  # a unit of CloudWatch: Count, Count/Second, Milliseconds, …
    value: float | Sequence[float]


def dimensions(environment: Mapping[str, str]) -> dict[str, str]:
    """Returns the dimensions of every metric; empty if METRICS_WORKLOAD and METRICS_STACK do not request metrics."""
    workload, stack = environment.get("METRICS_WORKLOAD"), environment.get("METRICS_STACK")
    return {"Workload": workload, "Stack": stack} if workload and stack else {}


def document(dimensions: Mapping[str, str], metrics: Sequence[LogMetric], at_s: float) -> dict[str, Any]:
    """Returns the document of one line. `at_s` is Unix time in seconds."""
    directive = {
        "Namespace": NAMESPACE,
        "Dimensions": [list(dimensions)],
        "Metrics": [{"Name": metric.name, "Unit": metric.unit} for metric in metrics],
    }
    values = {metric.name: metric.value for metric in metrics}
    return {"_aws": {"Timestamp": round(at_s * 1000), "CloudWatchMetrics": [directive]}, **dimensions, **values}
