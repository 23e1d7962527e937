"""A call of a model: encodes, sends, retries, decodes, and records the caller's latency.

Waits between attempts are random up to a bound that doubles ("full jitter",
https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/), after the server's Retry-After. A budget
stops retries when too many attempts fail (https://github.com/grpc/proposal/blob/master/A6-client-retries.md).
"""

import random
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from inference_recommender.client.servers import InferenceFailed, NotAnAnswer, TimedOut
from inference_recommender.kserve import Array, Body, NotAResponse, decode, encode

DEADLINE_S = 10.0
BUDGET, FAILURE_COSTS = 1_000, 10


@dataclass(frozen=True, kw_only=True, slots=True)
class Retries:
    """Number of attempts and the waits between them: random up to `first_wait_s`, which doubles up to
    `longest_wait_s`. Use `attempts=1` for a stateful model (a sequence batcher).

    `timeouts` also repeats requests without an answer in time. The model may compute them twice. That is safe, because
    inference changes no state, but it adds load to a server that is slow and not broken.
    """

    attempts: int = 3
    first_wait_s: float = 0.05
    longest_wait_s: float = 2.0
    timeouts: bool = False

    def wait_s(self, failures: int, chance: float) -> float | None:
        """Returns the seconds before the next attempt, or None for no further attempt. `chance` is from 0 to 1."""
        if failures >= self.attempts:
            return None
        return min(self.first_wait_s * 2.0 ** min(failures - 1, 99), self.longest_wait_s) * chance


class Server(Protocol):
    """Answers KServe v2 requests: `HttpServer`, `SageMakerEndpoint`."""

    def send(self, request: Body, within_s: float) -> Body:
        """Makes one attempt, which should take at most `within_s` seconds. Raises `InferenceFailed`."""


class Latency(Protocol):
    """Records the callers' latency: `LatencyMetric`."""

    def record(self, latency_ms: float) -> None:
        """Never raises."""


class Budget:
    """Tokens for the retries of all threads. A failed attempt costs ten tokens and an answer returns one. Requests are
    retried while more than half of the tokens are left.
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
    """Calls a model: `infer` takes and returns tensors. Threads may share one client. No attempt of a call starts
    later than `deadline_s` after the call. The server's `timeout_s` bounds each attempt.
    """

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
        self._server, self._binary, self._deadline_s = server, binary, deadline_s
        self._retries, self._budget = retries or Retries(), Budget()
        self._latency = latency
        self._clock_s, self._sleep, self._chance = clock_s, sleep, chance

    def infer(
        self,
        inputs: Mapping[str, object],
        outputs: Sequence[str] = (),
        parameters: Mapping[str, str | int | float | bool] | None = None,
    ) -> dict[str, Array]:
        """Returns the named outputs of the model, or all. An input is a value that numpy converts to an array. Text
        goes in as str or bytes and comes out as bytes. The parameter `model` names one of an archive's models.

        Raises `CannotEncode`, or the `InferenceFailed` of the last attempt.
        """
        start = self._clock_s()
        request = encode(inputs, outputs, binary=self._binary, parameters=parameters)
        try:
            return decode(self._send(request, start + self._deadline_s), outputs)
        except NotAResponse as error:
            raise NotAnAnswer(str(error)) from error
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
                may_retry = failure.may_retry or (self._retries.timeouts and isinstance(failure, TimedOut))
                may_retry = may_retry and self._budget.failed()
                wait = self._retries.wait_s(failures, self._chance()) if may_retry else None
                if wait is None or wait + (failure.retry_after_s or 0.0) >= deadline - self._clock_s():
                    raise
                self._sleep(wait + (failure.retry_after_s or 0.0))
            else:
                self._budget.answered()
                return answer
