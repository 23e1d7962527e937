"""How long callers waited, published to CloudWatch in the background and on close.

Recording takes a lock and a count; sending is a thread's work, once a minute. What cannot be sent is logged, kept and
sent with the next, for as long as an hour; no caller ever sees an error of it. Needs cloudwatch:PutMetricData, which a
policy can limit to the namespace.
"""

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

import boto3
from botocore.config import Config

from inference_recommender.client.metric_data import MINUTE_S, Counts, requests, seen

KEPT_S = 3600
SHORT = Config(connect_timeout=2, read_timeout=5, retries={"total_max_attempts": 2})
"""So that closing does not wait long for a CloudWatch that is not there."""
_log = logging.getLogger(__name__)


class LatencyMetric:
    """Of one workload. A `client` of cloudwatch may be brought; `flush_every_s` is how often it is sent to."""

    def __init__(
        self,
        workload: str,
        *,
        client: Any = None,
        flush_every_s: float = MINUTE_S,
        clock_s: Callable[[], float] = time.time,
    ) -> None:
        self._workload = workload
        self._client = client
        self._clock_s = clock_s
        self._counts: Counts = Counter()
        self._counting, self._sending = threading.Lock(), threading.Lock()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(flush_every_s,), name="latency-metric", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def record(self, latency_ms: float) -> None:
        key = seen(latency_ms, self._clock_s())
        with self._counting:
            self._counts[key] += 1

    def flush(self) -> None:
        """Send what was recorded since the last time. Never raises."""
        with self._sending:
            with self._counting:
                taken, self._counts = self._counts, Counter()
            try:
                self._send(taken)
            except Exception as error:  # whatever it is, no request may fail for it
                _log.warning("The client latency of %s could not be published: %s", self._workload, error)
                self._keep(taken)

    def close(self) -> None:
        """Send the rest. Recording after it is not published."""
        self._closed.set()
        self._thread.join()
        self.flush()

    def _run(self, flush_every_s: float) -> None:
        while not self._closed.wait(flush_every_s):
            self.flush()

    def _send(self, counts: Counts) -> None:
        """What was sent is taken out of `counts`, so that what is left can be sent again and counts once."""
        if not counts:
            return
        if self._client is None:
            self._client = boto3.Session().client("cloudwatch", config=SHORT)
        for request in requests(self._workload, dict(counts)):
            self._client.put_metric_data(**request)
            for datum in request["MetricData"]:
                for value in datum["Values"]:
                    del counts[int(datum["Timestamp"].timestamp()), value]

    def _keep(self, unsent: Counts) -> None:
        oldest = self._clock_s() - KEPT_S
        with self._counting:
            self._counts.update({key: count for key, count in unsent.items() if key[0] >= oldest})
