"""A call of a model: encode, send, send again where that helps, decode; and record how long the caller waited.

One deadline bounds all attempts of a call and the waits between them. Waits are drawn at random up to a bound that
doubles ("full jitter", https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/), after what the
server asked for by Retry-After. A budget stops retries where too many attempts fail, as gRPC's clients do ("Throttling
Retry Attempts and Hedged RPCs" in https://github.com/grpc/proposal/blob/master/A6-client-retries.md).
"""

import random
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from inference_recommender.client.failures import InferenceFailed
from inference_recommender.client.kserve import Body, decode, encode
from inference_recommender.kserve import Array

DEADLINE_S = 10.0
BUDGET = 1_000
FAILURE_COSTS = 10


@dataclass(frozen=True, kw_only=True, slots=True)
class Retries:
    """Decides how often a failed request is sent, and how long to wait: at random up to `first_wait_s`, which doubles
    up to `longest_wait_s`.

    Give `attempts=1` to a stateful model (a sequence batcher), for which a request counts each time it is sent.
    """

    attempts: int = 3
    first_wait_s: float = 0.05
    longest_wait_s: float = 2.0

    def wait_s(self, failures: int, chance: float) -> float | None:
        """Returns the seconds to wait before the next attempt, or None to give up. `chance` is random from 0 to 1."""
        if failures >= self.attempts:
            return None
        return min(self.first_wait_s * 2.0 ** min(failures - 1, 99), self.longest_wait_s) * chance


class Server(Protocol):
    """Answers KServe v2 requests: `HttpServer`, `SageMakerEndpoint`."""

    def send(self, request: Body, within_s: float) -> Body:
        """Makes one attempt, in `within_s` seconds at most. Raises `InferenceFailed`."""


class Latency(Protocol):
    """Records how long callers waited: `LatencyMetric`."""

    def record(self, latency_ms: float) -> None:
        """Never raises."""


class Budget:
    """Holds tokens for the retries of all threads together. A failed attempt costs ten, an answer gives one back, and a
    request is repeated only while more than half are there. So a server that fails everything is asked less than 50
    times more than it would be without retries, and one that fails one attempt in twelve never runs them down.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._tokens = BUDGET

    def answered(self) -> None:
        if self._tokens < BUDGET:
            with self._lock:
                self._tokens = min(BUDGET, self._tokens + 1)

    def failed(self) -> bool:
        """Returns whether the request may be repeated."""
        with self._lock:
            self._tokens = max(0, self._tokens - FAILURE_COSTS)
            return self._tokens > BUDGET // 2


class InferenceClient:
    def __init__(
        self,
        server: Server,
        *,
        binary: bool = True,
        deadline_s: float = DEADLINE_S,
        retries: Retries | None = None,
        latency: Latency | None = None,
        clock_s: Callable[[], float] = time.perf_counter,
        sleep: Callable[[float], None] = time.sleep,
        chance: Callable[[], float] = random.random,
    ) -> None:
        """`deadline_s` bounds a call of `infer` with all its attempts and waits; the server's `timeout_s` bounds each
        attempt, too.
        """
        self._server = server
        self._binary = binary
        self._deadline_s = deadline_s
        self._retries = retries or Retries()
        self._budget = Budget()
        self._latency = latency
        self._clock_s, self._sleep, self._chance = clock_s, sleep, chance

    def infer(self, inputs: Mapping[str, object], outputs: Sequence[str] = ()) -> dict[str, Array]:
        """Returns the model's outputs by name: those named, or all. An input is anything from which numpy makes an
        array; text goes in as str or bytes and comes out as bytes.

        Raises `CannotEncode`, or the `InferenceFailed` of the last attempt.
        """
        start = self._clock_s()
        request = encode(inputs, outputs, binary=self._binary)
        try:
            return decode(self._send(request, start + self._deadline_s), outputs)
        finally:
            if self._latency is not None:
                self._latency.record((self._clock_s() - start) * 1000)

    def _send(self, request: Body, deadline: float) -> Body:
        failures = 0
        while True:
            try:
                answer = self._server.send(request, deadline - self._clock_s())
            except InferenceFailed as failure:
                failures += 1
                wait = self._wait_s(failure, failures)
                if wait is None or wait >= deadline - self._clock_s():
                    raise
            else:
                self._budget.answered()
                return answer
            self._sleep(wait)

    def _wait_s(self, failure: InferenceFailed, failures: int) -> float | None:
        """Returns the seconds to wait before the next attempt, or None where there is to be none."""
        if not failure.may_retry or not self._budget.failed():
            return None
        wait = self._retries.wait_s(failures, self._chance())
        return None if wait is None else wait + (failure.retry_after_s or 0.0)
