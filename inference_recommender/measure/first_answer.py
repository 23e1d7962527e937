"""Asks a server that has just come into service until it answers within the objective, and reads the start's stages.

Requests go one at a time, from this machine, with the workload's payloads: latency is the client's, which on AWS
includes the network and SageMaker's overhead. Only here is a start asked and its log fetched.
"""

import itertools
import time
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, Protocol
from urllib.parse import urlsplit

import urllib3

from inference_recommender.capacity.server_times import warm_up_s
from inference_recommender.client import InferenceFailed, SageMakerEndpoint
from inference_recommender.kserve import Body
from inference_recommender.load_generator.unix_socket import connection_pool
from inference_recommender.measure.start_stages import LogLine, Stages, stages
from inference_recommender.triton_statistics import TritonStatistics

GIVE_UP_S = 120.0
"""A server that has not answered within the objective by then is not waited for any longer."""
ASK_TIMEOUT_S = 60.0
"""SageMaker gives an invocation so long."""
AFTER_FAILURE_S = 0.1
LOG_S, LOG_POLL_S = 60.0, 2.0
"""CloudWatch Logs has lines some seconds after they were written: they are waited for so long, and looked for so often.
"""

Ask = Callable[[bytes], bool]
"""Sends a request and returns whether it was answered, when the answer is there."""
Sleep = Callable[[float], None]
Clock = Callable[[], float]


class Account(Protocol):
    """The calls for an endpoint's start. Every method raises `AwsUnavailable`."""

    def client(self, service: str) -> Any: ...

    def endpoint_times(self, name: str) -> tuple[datetime, datetime]:
        """Returns when it was asked for, and when it was last changed."""

    def endpoint_log(self, name: str) -> list[list[LogLine]]:
        """Returns the beginning of each server's log; none where there is no log."""

    def invocations_url(self, endpoint: str) -> str | None:
        """Returns the address of the server itself, which an account on this machine tells."""


def start_of(
    account: Account,
    endpoint: str,
    bodies: Sequence[bytes],
    limit_ms: float,
    sleep: Sleep = time.sleep,
    clock: Clock = time.perf_counter,
) -> Stages:
    """Returns the stages of the start of an endpoint of one server, which is in service since a moment ago and has not
    been asked yet. Raises `AwsUnavailable`.
    """
    url = account.invocations_url(endpoint)
    counters = TritonStatistics(url).read()
    ask = ask_url(url) if url else ask_endpoint(endpoint, account.client("sagemaker-runtime"))
    answered_s = first_answer_s(ask, bodies, limit_ms, sleep, clock)
    requested_at, in_service_at = account.endpoint_times(endpoint)
    return stages(
        _whole_log(account, endpoint, sleep),
        requested_at=requested_at.timestamp(),
        in_service_at=in_service_at.timestamp(),
        warm_up_s=None if counters is None else warm_up_s(counters),
        answered_s=answered_s,
    )


def first_answer_s(
    ask: Ask, bodies: Sequence[bytes], limit_ms: float, sleep: Sleep = time.sleep, clock: Clock = time.perf_counter
) -> float | None:
    """Returns the seconds from the first request to the end of the first answer within the limit; None: there was
    none in `GIVE_UP_S`.
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
    raise ValueError("there is nothing to ask")


def ask_url(url: str) -> Ask:
    pool, path = connection_pool(url, retries=False, timeout=ASK_TIMEOUT_S), urlsplit(url).path
    headers = {"Content-Type": "application/json"}

    def ask(body: bytes) -> bool:
        try:
            return pool.request("POST", path, body=body, headers=headers).status == 200
        except urllib3.exceptions.HTTPError:
            return False

    return ask


def ask_endpoint(name: str, client: Any) -> Ask:
    server = SageMakerEndpoint(name, timeout_s=ASK_TIMEOUT_S, client=client)

    def ask(body: bytes) -> bool:
        try:
            server.send(Body(content=body), ASK_TIMEOUT_S)
        except InferenceFailed:
            return False
        return True

    return ask


def _whole_log(account: Account, endpoint: str, sleep: Sleep) -> Sequence[LogLine]:
    """Returns the log of the endpoint's server as soon as that says that its models are loaded."""
    waited_s = 0.0
    while True:
        log = next(iter(account.endpoint_log(endpoint)), [])
        if stages(log).load_s is not None or waited_s >= LOG_S:
            return log
        sleep(LOG_POLL_S)
        waited_s += LOG_POLL_S
