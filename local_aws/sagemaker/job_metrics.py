"""What a load test saw, window by window, as the CloudWatch metrics that Inference Recommender publishes. Pure but
for the put: a window of the generator in, metric data out.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from local_aws.cloudwatch import Key, LocalCloudWatchBackend, metric_key
from local_aws.distributions import Distribution
from local_aws.sagemaker.endpoint_metrics import model_latency

NAMESPACE = "/aws/sagemaker/InferenceRecommendationsJobs"


def publish(backend: LocalCloudWatchBackend, job: str, endpoint: str, variant: str, window: Mapping[str, Any]) -> None:
    for key, datum in window_metrics(job, endpoint, variant, window):
        backend.put(key, datum)


def window_metrics(
    job: str, endpoint: str, variant: str, window: Mapping[str, Any]
) -> Iterator[tuple[Key, Distribution]]:
    """Client metrics by job and endpoint, and ModelLatency in µs by endpoint and variant."""
    at = float(window["started_at"])
    dimensions = [{"Name": "JobName", "Value": job}, {"Name": "EndpointName", "Value": endpoint}]

    def client(name: str, value: float, unit: str) -> tuple[Key, Distribution]:
        return metric_key(NAMESPACE, name, dimensions), Distribution(at, (float(value),), (1.0,), unit)

    yield client("ClientInvocations", window["invocations"], "Count")
    yield client("ClientInvocationErrors", window["errors"], "Count")
    yield client("NumberOfUsers", window["users"], "Count")
    if histogram := [(float(latency), float(count)) for latency, count in window["histogram"] if count]:
        latencies, counts = zip(*histogram, strict=True)
        yield (
            metric_key(NAMESPACE, "ClientLatency", dimensions),
            Distribution(at, latencies, counts, "Milliseconds"),
        )
        # The client is on the same machine, with no network between: what it sees is the model's latency.
        micros = tuple(latency * 1000 for latency in latencies)
        yield model_latency(endpoint, variant), Distribution(at, micros, counts, "Microseconds")
