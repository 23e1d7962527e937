"""Prints every minute how long a request waited and computed in Triton, as metrics for CloudWatch Logs.

`serve` starts it beside Triton, on a port of loopback where Triton gives out its counters. SageMaker gives a container
without a VPC no network, but keeps what it prints. The means are of the requests of the last period, in milliseconds:

    QueueTime     waiting for an instance of a model, in all models that a request passes
    ComputeTime   inputs placed, the model run and outputs taken, in all of them

An ensemble's own counters hold its models' computing, but not their waiting; so the waiting is summed over all models.
Together they are the time in Triton, but for what an ensemble spends between its models. A response from Triton's cache
counts as a request that hardly waits and computes. A period without requests prints nothing. Nothing here can harm
serving: a failure is told once, and the process ends when `serve` does.
"""

import http.client
import json
import os
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ..embedded_metrics import LogMetric, document

ADDRESS = "127.0.0.1"
ANSWER_TIMEOUT_S = 5
MICROSECONDS_PER_MILLISECOND = 1000
SAMPLE = re.compile(r'^nv_inference_(\w+)\{(?:[^}]*,)?model="([^"]*)"[^}]*\} (\S+)$', re.MULTILINE)
"""A counter, its model and its value, in Prometheus' text format as Triton writes it."""
COMPUTE = ("compute_input_duration_us", "compute_infer_duration_us", "compute_output_duration_us")


@dataclass(frozen=True)
class Counted:
    """Triton's counters since its start."""

    requests: float = 0.0
    queue_us: float = 0.0
    compute_us: float = 0.0

    @classmethod
    def read(cls, text: str, default_model: str) -> "Counted":
        """Reads the answer of /metrics. Raises ValueError where the model that answers /invocations has no counters."""
        samples = [(name, model, float(value)) for name, model, value in SAMPLE.findall(text)]
        own = {name: value for name, model, value in samples if model == default_model}
        if missing := {"request_success", *COMPUTE} - own.keys():
            raise ValueError(f"Triton counts no {', '.join(sorted(missing))} for {default_model!r}.")
        queue_us = sum(value for name, _, value in samples if name == "queue_duration_us")
        return cls(own["request_success"], queue_us, sum(own[name] for name in COMPUTE))

    def means_since(self, before: "Counted") -> "list[LogMetric]":
        """Returns the means of the requests between the two, and nothing where there were none."""
        requests = self.requests - before.requests
        if requests <= 0:
            return []
        per_request_ms = 1 / (requests * MICROSECONDS_PER_MILLISECOND)
        return [
            LogMetric("QueueTime", "Milliseconds", round((self.queue_us - before.queue_us) * per_request_ms, 3)),
            LogMetric("ComputeTime", "Milliseconds", round((self.compute_us - before.compute_us) * per_request_ms, 3)),
        ]


@dataclass(frozen=True)
class ServerTimes:
    dimensions: Mapping[str, str]
    default_model: str
    fetch: Callable[[], str]
    tell: Callable[[str], None]

    def tell_each_period(self, wait: Callable[[], bool]) -> None:
        """Prints after each `wait`, until one returns False. The first failure is told, and no other."""
        before, failed = Counted(), False
        while wait():
            try:
                counted = Counted.read(self.fetch(), self.default_model)
            except (OSError, http.client.HTTPException, ValueError) as error:
                if not failed:
                    self.tell(f"server_times: Triton's metrics cannot be read yet, and are asked for again: {error}")
                failed = True
                continue
            if means := counted.means_since(before):
                self.tell(json.dumps(document(self.dimensions, means, time.time())))
            before = counted


def fetch_metrics(port: int) -> str:
    """Returns what Triton counts. Raises OSError and HTTPException, also while it still loads its models."""
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

    ServerTimes(
        dimensions={"Workload": environment["METRICS_WORKLOAD"], "Stack": environment["METRICS_STACK"]},
        default_model=environment["SAGEMAKER_TRITON_DEFAULT_MODEL_NAME"],
        fetch=lambda: fetch_metrics(port),
        tell=lambda line: print(line, flush=True),
    ).tell_each_period(wait)


if __name__ == "__main__":
    main(os.environ)
