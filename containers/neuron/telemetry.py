"""Counts a task's requests and latencies, and prints them every minute as metrics for CloudWatch Logs.

Stacks on ECS request the metrics; SageMaker has its own. Workers report to the launcher, which prints the requests of
all workers as one number: the service scales by requests per task.

A latency is the time in the worker from the whole request to its answer. A worker reports at most 100 of them: the
middle of each of 100 equal shares, so a percentile up to the 99th is within 0.5 % of its rank.
"""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any

from ..embedded_metrics import MOST_VALUES, LogMetric, dimensions, document


def period_s(environment: Mapping[str, str]) -> float:
    return float(environment.get("METRICS_PERIOD_S", "60"))


class RequestRecord:
    """One worker's requests since its last report."""

    def __init__(self) -> None:
        self._latencies_ms: list[float] = []
        self._errors = 0

    def add(self, latency_ms: float) -> None:
        self._latencies_ms.append(latency_ms)

    def add_error(self) -> None:
        """Counts a 5xx response. Errors of the client are not counted."""
        self._errors += 1

    def take(self) -> "dict[str, Any]":
        """Returns the report for the launcher, and starts the next one."""
        sampled = [round(each, 3) for each in sample(self._latencies_ms, MOST_VALUES)]
        requests, errors = len(self._latencies_ms) + self._errors, self._errors
        self._latencies_ms, self._errors = [], 0
        return {"requests": requests, "errors": errors, "latencies_ms": sampled}


class TaskReports:
    """The reports of all workers since the last lines were printed."""

    def __init__(self, environment: Mapping[str, str], write: Callable[[str], None]) -> None:
        self._dimensions, self._period_s = dimensions(environment), period_s(environment)
        self._write = write
        self._reports: list[Mapping[str, Any]] = []

    def add(self, report: Mapping[str, Any]) -> None:
        if self._dimensions:
            self._reports.append(report)

    async def print_each_period(self) -> None:
        """Prints until cancelled, half a period after the workers report. Returns if no metrics are requested."""
        if self._dimensions:
            async for _ in ticks(self._period_s, first_after_s=1.5 * self._period_s):
                self.print(time.time())

    def print(self, at_s: float) -> None:
        reports, self._reports = self._reports, []
        counts = (("Invocations", "requests"), ("ServerErrors", "errors"))
        metrics = [LogMetric(name, "Count", sum(report[key] for report in reports)) for name, key in counts]
        latencies = filter(None, (report["latencies_ms"] for report in reports))
        metrics += [LogMetric("ResponseTime", "Milliseconds", sampled) for sampled in latencies]
        for metric in metrics:
            self._write(json.dumps(document(self._dimensions, [metric], at_s)))


async def ticks(period_s: float, first_after_s: float) -> AsyncIterator[None]:
    """Yields at fixed times of the loop's clock, so that two series of ticks keep their distance."""
    loop = asyncio.get_running_loop()
    due = loop.time() + first_after_s
    while True:
        await asyncio.sleep(due - loop.time())
        yield
        due += period_s


def sample(values: Sequence[float], count: int) -> "list[float]":
    """Returns the sorted values, or the middles of `count` equal shares."""
    ordered = sorted(values)
    if len(ordered) <= count:
        return ordered
    return [ordered[int((share + 0.5) * len(ordered) / count)] for share in range(count)]
