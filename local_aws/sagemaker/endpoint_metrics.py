"""Publishes the metrics of endpoints' invocations, and those of Inference Recommender's load tests.

Invocations are counted per second and published by a thread. Latencies of AWS/SageMaker are in microseconds.
ConcurrentRequestsPerModel comes every 10 s. It is, by Little's law, the time that the invocations of these seconds
took, over 10 s and the instances. SageMaker does not document how it counts them. GPUUtilization is sampled once for
each second with invocations.
"""

import threading
import time
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from local_aws import nvml
from local_aws.cloudwatch import Distribution, Key, LocalCloudWatchBackend, metric_key

NAMESPACE = "AWS/SageMaker"
HARDWARE_NAMESPACE = "/aws/sagemaker/Endpoints"
JOBS_NAMESPACE = "/aws/sagemaker/InferenceRecommendationsJobs"
PUBLISH_EVERY_S = 0.5
WINDOW_S = 10


@dataclass(slots=True)
class _Second:
    model_us: "Counter[int]" = field(default_factory=Counter)
    overhead_us: "Counter[int]" = field(default_factory=Counter)
    invocations: int = 0
    client_errors: int = 0
    server_errors: int = 0
    model_errors: int = 0
    instances: int = 1
    gpus: int = 0


class InvocationMetrics(threading.Thread):
    """Collects invocations; `start` begins to publish them to a CloudWatch backend, `close` publishes the rest."""

    def __init__(self, backend: LocalCloudWatchBackend) -> None:
        super().__init__(name="endpoint-metrics", daemon=True)
        self._backend = backend
        self._seconds: defaultdict[tuple[str, str, str, int], _Second] = defaultdict(_Second)
        self._taken: defaultdict[tuple[str, str, int], float] = defaultdict(float)
        self._lock = threading.Lock()
        self._closing = threading.Event()

    def close(self) -> None:
        self._closing.set()
        self.join()

    def record(
        self,
        endpoint: str,
        variant: str,
        config: str,
        *,
        status: int,
        model_us: int,
        overhead_us: int,
        instances: int,
        gpus: int = 0,
    ) -> None:
        """Records one invocation with the container's status; like SageMaker, every status but 200 is a model error.

        `config` is the endpoint configuration of the fleet that answered, and `gpus` the number of GPUs of an instance.
        """
        key = (endpoint, variant, config, int(time.time()))
        with self._lock:
            second = self._seconds[key]
            second.invocations += 1
            second.model_us[model_us] += 1
            second.overhead_us[overhead_us] += 1
            second.client_errors += 400 <= status < 500
            second.server_errors += status >= 500
            second.model_errors += status != 200
            second.instances, second.gpus = max(instances, 1), gpus

    def run(self) -> None:
        while not self._closing.wait(PUBLISH_EVERY_S):
            self._publish_seconds_before(int(time.time()))
        self._publish_seconds_before(int(time.time()) + 1)

    def _publish_seconds_before(self, now: int) -> None:
        with self._lock:
            finished = [key for key in self._seconds if key[3] < now]
            taken = [(key, self._seconds.pop(key)) for key in finished]
        for (endpoint, variant, config, second), seen in taken:
            for name, datum in _data(second, seen):
                self._backend.put(_key(name, endpoint, variant), datum)
                self._backend.put(_key(name, endpoint, variant, config=config), datum)
            publish_gpus(self._backend, endpoint, variant, second, seen.gpus)
            took_us = sum(
                micros * count for each in (seen.model_us, seen.overhead_us) for micros, count in each.items()
            )
            self._taken[endpoint, variant, second // WINDOW_S * WINDOW_S] += took_us / 1e6 / seen.instances
        for endpoint, variant, window in [key for key in self._taken if key[2] + WINDOW_S <= now]:
            requests = self._taken.pop((endpoint, variant, window)) / WINDOW_S
            datum = Distribution(window, (requests,), (1.0,), "None")
            self._backend.put(_key("ConcurrentRequestsPerModel", endpoint, variant), datum)


def publish_gpus(backend: LocalCloudWatchBackend, endpoint: str, variant: str, at: float, gpus: int) -> None:
    """Puts the present GPUUtilization of an instance with `gpus` GPUs, if it is known."""
    if (percent := nvml.utilization_percent(gpus)) is not None:
        datum = Distribution(at, (percent,), (1.0,), "Percent")
        backend.put(_key("GPUUtilization", endpoint, variant, HARDWARE_NAMESPACE), datum)


def publish_window(
    backend: LocalCloudWatchBackend, job: str, endpoint: str, variant: str, gpus: int, window: Mapping[str, Any]
) -> None:
    """Puts a window's client metrics, by job and endpoint, and those of the instance, by endpoint and variant."""
    at = float(window["started_at"])
    publish_gpus(backend, endpoint, variant, at, gpus)
    dimensions = [{"Name": "JobName", "Value": job}, {"Name": "EndpointName", "Value": endpoint}]

    for name, value, unit in (
        ("ClientInvocations", window["invocations"], "Count"),
        ("ClientInvocationErrors", window["errors"], "Count"),
        ("NumberOfUsers", window["users"], "Count"),
        ("MachineStalledSeconds", window.get("stalled_s", 0.0), "Seconds"),
    ):
        datum = Distribution(at, (float(value),), (1.0,), unit)
        backend.put(metric_key(JOBS_NAMESPACE, name, dimensions), datum)
    if histogram := [(float(latency), float(count)) for latency, count in window["histogram"] if count]:
        latencies, counts = zip(*histogram, strict=True)
        datum = Distribution(at, latencies, counts, "Milliseconds")
        backend.put(metric_key(JOBS_NAMESPACE, "ClientLatency", dimensions), datum)
        # The client runs on the same machine, without a network between, so it sees the model's latency.
        micros = tuple(latency * 1000 for latency in latencies)
        backend.put(_key("ModelLatency", endpoint, variant), Distribution(at, micros, counts, "Microseconds"))


def _key(name: str, endpoint: str, variant: str, namespace: str = NAMESPACE, config: str | None = None) -> Key:
    dimensions = {"EndpointName": endpoint, "VariantName": variant, "EndpointConfigName": config}
    return metric_key(namespace, name, [{"Name": key, "Value": value} for key, value in dimensions.items() if value])


def _data(second: int, seen: _Second) -> list[tuple[str, Distribution]]:
    # SageMaker publishes error counts as zeros and ones over all invocations, so SampleCount is that of invocations.
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
