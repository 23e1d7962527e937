"""What the server tells CloudWatch each minute, in lines of its log: requests of the whole task, how long they took.

A stack on ECS asks for it with METRICS_STACK and METRICS_WORKLOAD; SageMaker counts by itself. A worker reports to the
launcher over the pipe that it speaks on anyway, and the launcher prints: the requests of all its workers in one number,
so that the metric's average is requests per task, which the service is scaled by.

Latencies are those of answered requests, from the whole request's arrival to its answer, in the worker. Of a minute's
latencies a worker reports at most 100, the middles of 100 equal shares of them in order: any percentile up to the 99th
is within half a per cent of its rank. A minute without requests reports 0 requests and no latency.
"""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..embedded_metrics import MOST_VALUES, Metric, document
from .errors import BadSetting


@dataclass(frozen=True)
class Telemetry:
    """`dimensions` of every metric; empty where nobody asked for metrics."""

    dimensions: Mapping[str, str]
    period_s: float

    @classmethod
    def read(cls, environment: Mapping[str, str]) -> "Telemetry":
        """Raises `BadSetting`."""
        named = {"Workload": environment.get("METRICS_WORKLOAD"), "Stack": environment.get("METRICS_STACK")}
        given = {name: value for name, value in named.items() if value}
        return cls(given if len(given) == len(named) else {}, _period(environment.get("METRICS_PERIOD_S", "60")))


class Record:
    """Of one worker, since its last report."""

    def __init__(self) -> None:
        self._latencies_ms: list[float] = []
        self._errors = 0

    def add(self, latency_ms: float) -> None:
        self._latencies_ms.append(latency_ms)

    def add_error(self) -> None:
        """A 5xx; what the caller got wrong is none."""
        self._errors += 1

    def take(self) -> "dict[str, Any]":
        """As it goes over the pipe."""
        taken, self._latencies_ms = self._latencies_ms, []
        errors, self._errors = self._errors, 0
        sampled = [round(each, 3) for each in sample(taken, MOST_VALUES)]
        return {"requests": len(taken) + errors, "errors": errors, "latencies_ms": sampled}


class Reports:
    """Of all workers, since the last lines."""

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
        """Until cancelled, half a period after the workers; returns at once where nobody asked."""
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
    """By the clock and not one after the other: two of them never drift into each other."""
    loop = asyncio.get_running_loop()
    due = loop.time() + first_after_s
    while True:
        await asyncio.sleep(due - loop.time())
        yield
        due += period_s


def sample(values: Sequence[float], count: int) -> "list[float]":
    """In order; all of them, or the middles of `count` equal shares."""
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
        raise BadSetting("METRICS_PERIOD_S", text, "seconds, more than 0")
    return period
