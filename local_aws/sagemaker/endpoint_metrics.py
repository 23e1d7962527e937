"""AWS/SageMaker metrics of an endpoint's invocations: counted per second, published by a thread of its own.

Recording is a dictionary update under a lock, so that it costs an invocation microseconds. Latencies are in
microseconds, as SageMaker's are.
"""

import threading
import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field

from local_aws.cloudwatch import Key, LocalCloudWatchBackend, metric_key
from local_aws.distributions import Distribution

NAMESPACE = "AWS/SageMaker"
PUBLISH_EVERY_S = 0.5


@dataclass(slots=True)
class _Second:
    model_us: "Counter[int]" = field(default_factory=Counter)
    overhead_us: "Counter[int]" = field(default_factory=Counter)
    invocations: int = 0
    client_errors: int = 0
    server_errors: int = 0
    model_errors: int = 0
    instances: int = 1


class EndpointMetrics:
    """Collects invocations; `start` begins to publish them to a CloudWatch backend, `close` publishes the rest."""

    def __init__(self, backend: LocalCloudWatchBackend) -> None:
        self._backend = backend
        self._seconds: defaultdict[tuple[str, str, int], _Second] = defaultdict(_Second)
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._publish, name="endpoint-metrics", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._closing.set()
        self._thread.join()

    def record(
        self, endpoint: str, variant: str, *, status: int, model_us: int, overhead_us: int, instances: int
    ) -> None:
        """One invocation and the status the container answered; SageMaker counts only 200s as not an error."""
        key = (endpoint, variant, int(time.time()))
        with self._lock:
            second = self._seconds[key]
            second.invocations += 1
            second.model_us[model_us] += 1
            second.overhead_us[overhead_us] += 1
            second.client_errors += 400 <= status < 500
            second.server_errors += status >= 500
            second.model_errors += status != 200
            second.instances = max(instances, 1)

    def _publish(self) -> None:
        while not self._closing.wait(PUBLISH_EVERY_S):
            self._publish_seconds_before(int(time.time()))
        self._publish_seconds_before(int(time.time()) + 1)

    def _publish_seconds_before(self, now: int) -> None:
        with self._lock:
            finished = [key for key in self._seconds if key[2] < now]
            taken = [(key, self._seconds.pop(key)) for key in finished]
        for (endpoint, variant, second), seen in taken:
            for name, datum in _data(second, seen):
                self._backend.put(_key(name, endpoint, variant), datum)


def model_latency(endpoint: str, variant: str) -> Key:
    return _key("ModelLatency", endpoint, variant)


def _key(name: str, endpoint: str, variant: str) -> Key:
    dimensions = [{"Name": "EndpointName", "Value": endpoint}, {"Name": "VariantName", "Value": variant}]
    return metric_key(NAMESPACE, name, dimensions)


def _data(second: int, seen: _Second) -> list[tuple[str, Distribution]]:
    # SageMaker publishes its counts as averages of zeros and ones over all invocations, so that SampleCount is theirs.
    def share(errors: int) -> Distribution:
        counts = {value: count for value, count in ((1.0, errors), (0.0, seen.invocations - errors)) if count}
        return Distribution(second, tuple(counts), tuple(counts.values()), "None")

    return [
        ("ModelLatency", _latencies(second, seen.model_us)),
        ("OverheadLatency", _latencies(second, seen.overhead_us)),
        ("Invocations", Distribution(second, (1.0,), (seen.invocations,), "None")),
        ("InvocationsPerInstance", Distribution(second, (1 / seen.instances,), (seen.invocations,), "None")),
        ("Invocation4XXErrors", share(seen.client_errors)),
        ("Invocation5XXErrors", share(seen.server_errors)),
        ("InvocationModelErrors", share(seen.model_errors)),
    ]


def _latencies(second: int, latencies: "Counter[int]") -> Distribution:
    values, counts = zip(*sorted(latencies.items()), strict=True)
    return Distribution(second, tuple(map(float, values)), tuple(map(float, counts)), "Microseconds")
