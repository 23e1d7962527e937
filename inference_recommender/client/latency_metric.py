"""Publishes the callers' latency to CloudWatch in the background and on close.

Recording takes a lock and adds to a count. A thread sends once a minute. Data that cannot be sent is logged and sent
again for up to an hour. The role needs cloudwatch:PutMetricData. Latencies are published as values and counts, so that
CloudWatch can compute percentiles. Values have three significant digits: the error is at most 0.5 %.
"""

import logging
import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from itertools import groupby
from typing import Any, Self

from workloads.client_metric import CLIENT_LATENCY, METRIC_NAMESPACE, metric_dimensions

MINUTE_S, KEPT_S = 60, 3600
SHORT: dict[str, Any] = {"connect_timeout": 2, "read_timeout": 5, "retries": {"total_max_attempts": 2}}
"""Short timeouts, so that closing does not wait long for an unreachable CloudWatch."""
VALUES_PER_DATUM = 150
DATA_PER_REQUEST = 20
"""The service allows 1,000, but with all their values they would exceed its limit of 1 MB per request."""
LEAST_MS = 0.001

LatencyCounts = Counter[tuple[int, float]]
"""Counts by minute (its first second since 1970) and latency in ms."""

_log = logging.getLogger(__name__)


class LatencyMetric:
    """Publishes the latency of one workload's callers every `flush_every_s`. `stack` is the CloudFormation stack that
    serves them. Its alarms watch this metric. `client` is a boto3 client for CloudWatch.
    """

    def __init__(
        self,
        workload: str,
        stack: str,
        *,
        client: Any = None,
        flush_every_s: float = MINUTE_S,
        clock_s: Callable[[], float] = time.time,
    ) -> None:
        if not workload or not stack:
            raise ValueError(
                f"LatencyMetric: got workload '{workload}' and stack '{stack}'. Both are required. The stack is the "
                "one that serves the callers, such as Production-SpellcheckStack. Its alarms watch the metric."
            )
        self._workload, self._stack = workload, stack
        self._client, self._clock_s = client, clock_s
        self._counts: LatencyCounts = Counter()
        self._counting, self._sending = threading.Lock(), threading.Lock()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(flush_every_s,), name="latency-metric", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def record(self, latency_ms: float) -> None:
        key = bucket(latency_ms, self._clock_s())
        with self._counting:
            self._counts[key] += 1

    def flush(self) -> None:
        """Sends the records since the last flush. Never raises."""
        with self._sending:
            with self._counting:
                counts, self._counts = self._counts, Counter()
            try:
                self._send(counts)
            except Exception as error:  # no error may fail a request
                _log.warning("The client latency of %s could not be published: %s", self._workload, error)
                oldest = self._clock_s() - KEPT_S
                with self._counting:
                    self._counts.update({key: count for key, count in counts.items() if key[0] >= oldest})

    def close(self) -> None:
        """Sends the rest. Later records are not published."""
        self._closed.set()
        self._thread.join()
        self.flush()

    def _run(self, flush_every_s: float) -> None:
        while not self._closed.wait(flush_every_s):
            self.flush()

    def _send(self, counts: LatencyCounts) -> None:
        """Sends `counts` and removes each part once sent, so that no count is sent twice."""
        if not counts:
            return
        if self._client is None:
            import boto3
            from botocore.config import Config

            self._client = boto3.Session().client("cloudwatch", config=Config(**SHORT))
        for request in requests(metric_dimensions(self._workload, self._stack), dict(counts)):
            self._client.put_metric_data(**request)
            for datum in request["MetricData"]:
                for value in datum["Values"]:
                    del counts[int(datum["Timestamp"].timestamp()), value]


def bucket(latency_ms: float, at_s: float) -> tuple[int, float]:
    """Returns the minute and the value under which a latency is counted."""
    value = max(latency_ms, LEAST_MS)
    return int(at_s // MINUTE_S) * MINUTE_S, round(value, 2 - math.floor(math.log10(value)))


def requests(dimensions: Mapping[str, str], counts: Mapping[tuple[int, float], int]) -> Iterator[dict[str, Any]]:
    """Yields the requests of PutMetricData, oldest minutes first."""
    data = [
        {
            "MetricName": CLIENT_LATENCY,
            "Dimensions": [{"Name": name, "Value": value} for name, value in dimensions.items()],
            "Timestamp": datetime.fromtimestamp(minute, UTC),
            "Values": [value for _, value in part],
            "Counts": [float(counts[key]) for key in part],
            "Unit": "Milliseconds",
        }
        for minute, keys in groupby(sorted(counts), key=lambda key: key[0])
        for part in _parts(list(keys), VALUES_PER_DATUM)
    ]
    for part in _parts(data, DATA_PER_REQUEST):
        yield {"Namespace": METRIC_NAMESPACE, "MetricData": part}


def _parts(values: list[Any], size: int) -> Iterator[list[Any]]:
    return (values[first : first + size] for first in range(0, len(values), size))
