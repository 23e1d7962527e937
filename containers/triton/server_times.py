"""Prints every minute how long requests waited and computed in Triton, as metrics for CloudWatch Logs.

`serve` starts it next to Triton, on a port of loopback with Triton's counters. The values are means over the requests
of the last period, in milliseconds:

    QueueTime     waiting for instances of all models that a request passes
    ComputeTime   placing inputs, running the models and taking outputs

An ensemble's own counters have its models' computing, but not their waiting, so the waiting is summed over all models.
A period without requests prints nothing. A failure is logged once. The process ends with `serve`.
"""

import http.client
import json
import os
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ..embedded_metrics import LogMetric, dimensions, document

ADDRESS = "127.0.0.1"
ANSWER_TIMEOUT_S = 5
SAMPLE = re.compile(r'^nv_inference_(\w+)\{(?:[^}]*,)?model="([^"]*)"[^}]*\} (\S+)$', re.MULTILINE)
"""A counter, its model and its value, in Prometheus' text format as Triton writes it."""
COMPUTE = ("compute_input_duration_us", "compute_infer_duration_us", "compute_output_duration_us")


@dataclass(frozen=True)
class TritonCounters:
    """Triton's counters since its start."""

    requests: float = 0.0
    queue_us: float = 0.0
    compute_us: float = 0.0

    @classmethod
    def read(cls, text: str, default_model: str) -> "TritonCounters":
        """Reads the text of /metrics. Raises ValueError if the model of /invocations has no counters."""
        samples = [(name, model, float(value)) for name, model, value in SAMPLE.findall(text)]
        own = {name: value for name, model, value in samples if model == default_model}
        if missing := {"request_success", *COMPUTE} - own.keys():
            raise ValueError(f"Triton has no counters {', '.join(sorted(missing))} for {default_model!r}.")
        queue_us = sum(value for name, _, value in samples if name == "queue_duration_us")
        return cls(own["request_success"], queue_us, sum(own[name] for name in COMPUTE))

    def means_since(self, before: "TritonCounters") -> "list[LogMetric]":
        """Returns the means over the requests since `before`; empty if there were none."""
        requests = self.requests - before.requests
        if requests <= 0:
            return []
        sums = {"QueueTime": self.queue_us - before.queue_us, "ComputeTime": self.compute_us - before.compute_us}
        return [LogMetric(name, "Milliseconds", round(us / 1000 / requests, 3)) for name, us in sums.items()]


def print_each_period(
    named: Mapping[str, str],
    default_model: str,
    fetch: Callable[[], str],
    wait: Callable[[], bool],
    write: Callable[[str], None],
) -> None:
    """Prints after each `wait`, until one returns False. Logs only the first failure."""
    before, failed = TritonCounters(), False
    while wait():
        try:
            counters = TritonCounters.read(fetch(), default_model)
        except (OSError, http.client.HTTPException, ValueError) as error:
            if not failed:
                write(f"server_times: cannot read Triton's metrics yet, and tries again: {error}")
            failed = True
            continue
        if means := counters.means_since(before):
            write(json.dumps(document(named, means, time.time())))
        before = counters


def fetch_metrics(port: int) -> str:
    """Returns the text of /metrics. Raises OSError and HTTPException, also while Triton loads its models."""
    connection = http.client.HTTPConnection(ADDRESS, port, timeout=ANSWER_TIMEOUT_S)
    try:
        connection.request("GET", "/metrics")
        return connection.getresponse().read().decode()
    finally:
        connection.close()


def main(environment: Mapping[str, str]) -> None:
    server, period_s = os.getppid(), float(environment.get("METRICS_PERIOD_S", "60"))
    port = int(environment["SAGEMAKER_TRITON_METRICS_PORT"])

    def wait() -> bool:
        time.sleep(period_s)
        return os.getppid() == server

    print_each_period(
        dimensions(environment),
        environment["SAGEMAKER_TRITON_DEFAULT_MODEL_NAME"],
        fetch=lambda: fetch_metrics(port),
        wait=wait,
        write=lambda line: print(line, flush=True),
    )


if __name__ == "__main__":
    main(os.environ)
