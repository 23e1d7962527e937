"""Times the start of an endpoint that has just come into service, until its first answer within the objective.

Requests with the workload's payloads go one at a time, from this machine. Latency is the client's, which on AWS
includes the network and SageMaker's overhead.
"""

import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol
from urllib.parse import urlsplit

import urllib3

from inference_recommender.capacity.server_times import warm_up_s
from inference_recommender.client import InferenceFailed, SageMakerEndpoint
from inference_recommender.kserve import Body
from inference_recommender.load_generator.unix_socket import connection_pool
from inference_recommender.measure.start_stages import LogLine, Stages, stages
from inference_recommender.measure.system import SystemUnderTest
from inference_recommender.triton_statistics import TritonStatistics

GIVE_UP_S = 120.0
"""Longest wait for an answer within the objective, in seconds."""
REQUEST_TIMEOUT_S = 60.0
AFTER_FAILURE_S = 0.1
LOG_S, LOG_POLL_S = 60.0, 2.0
"""Longest wait for lines in CloudWatch Logs, which appear some seconds after they were written, and the interval."""

Ask = Callable[[bytes], bool]
"""Sends a request and returns whether it succeeded."""
Sleep = Callable[[float], None]
Clock = Callable[[], float]


class StartAccount(Protocol):
    """The calls for an endpoint's start. Every method raises `AwsUnavailable`."""

    def client(self, service: str) -> Any: ...

    def describe_endpoint(self, name: str) -> Mapping[str, Any]: ...

    def endpoint_log(self, name: str) -> list[list[tuple[float, str]]]:
        """Returns the beginning of each server's log as Unix seconds and lines; none if there is no log."""


def start_of(
    account: StartAccount,
    system: SystemUnderTest,
    bodies: Sequence[bytes],
    limit_ms: float,
    sleep: Sleep = time.sleep,
    clock: Clock = time.perf_counter,
) -> Stages:
    """Returns the stages of the start of an endpoint of one server, which came into service a moment ago and has had no
    request. Raises `AwsUnavailable`.
    """
    counters = TritonStatistics(system.url).read()
    ask = ask_url(system.url) if system.url else ask_endpoint(system.name, account.client("sagemaker-runtime"))
    answered_s = first_answer_s(ask, bodies, limit_ms, sleep, clock)
    described = account.describe_endpoint(system.name)
    return stages(
        _whole_log(account, system.name, sleep),
        requested_at=described["CreationTime"].timestamp(),
        in_service_at=described["LastModifiedTime"].timestamp(),
        warm_up_s=None if counters is None else warm_up_s(counters),
        answered_s=answered_s,
    )


def first_answer_s(
    ask: Ask, bodies: Sequence[bytes], limit_ms: float, sleep: Sleep = time.sleep, clock: Clock = time.perf_counter
) -> float | None:
    """Returns the seconds from the first request to the end of the first answer within the limit. Returns None if there
    is none within `GIVE_UP_S`.
    """
    began = clock()
    for body in itertools.cycle(bodies):
        sent = clock()
        if sent - began > GIVE_UP_S:
            return None
        succeeded, answered = ask(body), clock()
        if succeeded and (answered - sent) * 1000 <= limit_ms:
            return answered - began
        if not succeeded:
            sleep(AFTER_FAILURE_S)
    raise ValueError("no request bodies")


def ask_url(url: str) -> Ask:
    pool, path = connection_pool(url, retries=False, timeout=REQUEST_TIMEOUT_S), urlsplit(url).path
    headers = {"Content-Type": "application/json"}

    def ask(body: bytes) -> bool:
        try:
            return pool.request("POST", path, body=body, headers=headers).status == 200
        except urllib3.exceptions.HTTPError:
            return False

    return ask


def ask_endpoint(name: str, client: Any) -> Ask:
    server = SageMakerEndpoint(name, timeout_s=REQUEST_TIMEOUT_S, client=client)

    def ask(body: bytes) -> bool:
        try:
            server.send(Body(content=body), REQUEST_TIMEOUT_S)
        except InferenceFailed:
            return False
        return True

    return ask


def log_lines(events: Sequence[tuple[float, str]]) -> list[LogLine]:
    return [LogLine(written_at=at, text=text) for at, text in events]


def _whole_log(account: StartAccount, endpoint: str, sleep: Sleep) -> Sequence[LogLine]:
    """Returns the log of the endpoint's server once it reports that its models are loaded."""
    waited_s = 0.0
    while True:
        log = log_lines(next(iter(account.endpoint_log(endpoint)), []))
        if stages(log).load_s is not None or waited_s >= LOG_S:
            return log
        sleep(LOG_POLL_S)
        waited_s += LOG_POLL_S
