"""Counts a task's requests and their latencies, and prints them every minute as metrics for CloudWatch Logs.

A stack on ECS asks for the metrics with METRICS_STACK and METRICS_WORKLOAD; SageMaker has its own. Each worker reports
to the launcher over its pipe. The launcher prints the requests of all workers as one number, so that the metric's
average is requests per task, by which the service is scaled.

A latency runs from the arrival of the whole request to its answer, in the worker; only answered requests have one. Per
minute a worker reports at most 100 latencies: the sorted latencies are cut into 100 equal shares and the middle of each
is taken, so that any percentile up to the 99th is within half a per cent of its rank. A minute without requests
reports 0 requests and no latency.
"""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..embedded_metrics import MOST_VALUES, Metric, document
from ..errors import ContainerError


@dataclass(frozen=True)
class Telemetry:
    """Dimensions of every metric, empty where no metrics are asked for, and seconds between reports."""

    dimensions: Mapping[str, str]
    period_s: float

    @classmethod
    def read(cls, environment: Mapping[str, str]) -> "Telemetry":
        """Reads the environment. Raises `ContainerError`."""
        named = {"Workload": environment.get("METRICS_WORKLOAD"), "Stack": environment.get("METRICS_STACK")}
        given = {name: value for name, value in named.items() if value}
        return cls(given if len(given) == len(named) else {}, _period(environment.get("METRICS_PERIOD_S", "60")))


class Record:
    """One worker's requests since its last report."""

    def __init__(self) -> None:
        self._latencies_ms: list[float] = []
        self._errors = 0

    def add(self, latency_ms: float) -> None:
        self._latencies_ms.append(latency_ms)

    def add_error(self) -> None:
        """Counts a response of 5xx. A mistake of the caller is not counted."""
        self._errors += 1

    def take(self) -> "dict[str, Any]":
        """Returns the report for the pipe, and starts the next one."""
        taken, self._latencies_ms = self._latencies_ms, []
        errors, self._errors = self._errors, 0
        sampled = [round(each, 3) for each in sample(taken, MOST_VALUES)]
        return {"requests": len(taken) + errors, "errors": errors, "latencies_ms": sampled}


class Reports:
    """The reports of all workers since the last lines were printed."""

    def __init__(self, telemetry: Telemetry, tell: Callable[[str], None]) -> None:
        self._telemetry = telemetry
        self._tell = tell
        self._requests = 0
        self._errors = 0
        self._latencies_ms: list[list[float]] = []

    def hear(self, said: Mapping[str, Any]) -> None:
        if not self._telemetry.dimensions:
            return
        self._requests += said["requests"]
        self._errors += said["errors"]
        if said["latencies_ms"]:
            self._latencies_ms.append(said["latencies_ms"])

    async def tell_each_period(self) -> None:
        """Prints until cancelled, half a period after the workers report. Returns at once without dimensions."""
        if self._telemetry.dimensions:
            async for _ in ticks(self._telemetry.period_s, first_after_s=1.5 * self._telemetry.period_s):
                self.tell(time.time())

    def tell(self, at_s: float) -> None:
        metrics = [Metric("Invocations", "Count", self._requests), Metric("ServerErrors", "Count", self._errors)]
        metrics += [Metric("ResponseTime", "Milliseconds", sampled) for sampled in self._latencies_ms]
        for metric in metrics:
            self._tell(json.dumps(document(self._telemetry.dimensions, [metric], at_s)))
        self._requests, self._errors, self._latencies_ms = 0, 0, []


async def ticks(period_s: float, first_after_s: float) -> AsyncIterator[None]:
    """Yields at fixed times of the loop's clock, so that two series of ticks never drift into each other."""
    loop = asyncio.get_running_loop()
    due = loop.time() + first_after_s
    while True:
        await asyncio.sleep(due - loop.time())
        yield
        due += period_s


def sample(values: Sequence[float], count: int) -> "list[float]":
    """Returns the sorted values: all of them, or the middles of `count` equal shares."""
    ordered = sorted(values)
    if len(ordered) <= count:
        return ordered
    return [ordered[int((share + 0.5) * len(ordered) / count)] for share in range(count)]


def _period(text: str) -> float:
    try:
        period = float(text)
    except ValueError:
        period = 0.0
    if not period > 0:
        raise ContainerError(f"METRICS_PERIOD_S: got '{text}'. Allowed: seconds, more than 0.")
    return period
