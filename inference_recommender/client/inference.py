"""One call of a model: encode, send, send again where that helps, decode; and how long the caller waited."""

import random
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from inference_recommender.client.errors import InferenceFailed
from inference_recommender.client.kserve import Array, Body, decode, encode
from inference_recommender.client.retries import Retries


class Server(Protocol):
    """A place that answers KServe v2 requests: `HttpServer`, `SageMakerEndpoint`."""

    def send(self, request: Body) -> Body:
        """One attempt. Raises `InferenceFailed`."""


class Latency(Protocol):
    """Where the time that callers waited goes: `LatencyMetric`."""

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
        """The model's outputs by name: those named, or all. An input is whatever numpy makes an array of; text goes in
        as str or bytes and comes out as bytes.

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
