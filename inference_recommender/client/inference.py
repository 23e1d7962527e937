"""A call of a model: encode, send, send again where that helps, decode; and record how long the caller waited."""

import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from inference_recommender.client.kserve import Array, Body, InferenceFailed, decode, encode


@dataclass(frozen=True, kw_only=True, slots=True)
class Retries:
    """Decides when a failed request is sent again: waits double from `first_wait_s` up to `longest_wait_s`, each
    shortened at random by up to a half.

    Give `attempts=1` to a stateful model (a sequence batcher), for which a request counts each time it is sent.
    """

    attempts: int = 3
    first_wait_s: float = 0.05
    longest_wait_s: float = 2.0
    give_up_after_s: float = 10.0
    """No attempt begins later than this after the first, in seconds."""

    def wait_s(self, failures: int, elapsed_s: float, chance: float) -> float | None:
        """Returns the seconds to wait before the next attempt, or None to give up. `chance` is random from 0 to 1."""
        wait = min(self.first_wait_s * 2 ** (failures - 1), self.longest_wait_s) * (1 - chance / 2)
        return None if failures >= self.attempts or elapsed_s + wait > self.give_up_after_s else wait


class Server(Protocol):
    """Answers KServe v2 requests: `HttpServer`, `SageMakerEndpoint`."""

    def send(self, request: Body) -> Body:
        """Makes one attempt. Raises `InferenceFailed`."""


class Latency(Protocol):
    """Records how long callers waited: `LatencyMetric`."""

    def record(self, latency_ms: float) -> None:
        """Never raises."""


class InferenceClient:
    def __init__(
        self,
        server: Server,
        *,
        binary: bool = True,
        retries: Retries | None = None,
        latency: Latency | None = None,
        clock_s: Callable[[], float] = time.perf_counter,
        sleep: Callable[[float], None] = time.sleep,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._server = server
        self._binary = binary
        self._retries = retries or Retries()
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
            return decode(self._send(request, start))
        finally:
            if self._latency is not None:
                self._latency.record((self._clock_s() - start) * 1000)

    def _send(self, request: Body, start: float) -> Body:
        failures = 0
        while True:
            try:
                return self._server.send(request)
            except InferenceFailed as failure:
                failures += 1
                wait = self._retries.wait_s(failures, self._clock_s() - start, self._chance())
                if wait is None or not failure.may_retry:
                    raise
            self._sleep(wait)
