"""The stages of a server's start, read from its endpoint's log and times. Pure.

An endpoint's log is in CloudWatch Logs, with a stream for each server. Triton's lines begin with a letter, the month
and day, and the time of day in UTC. These lines end a stage:

    "loading: NAME:VERSION"                    the server's start: it begins with the first model
    "... is running warmup sample '...' ..."   the load, if Triton's log is verbose, as in SageMaker's container
    "successfully loaded 'NAME'"               the warm-up, or the load without it; the last line counts
    "Started ...Service at ..."                later lines are ignored

A local account logs before them when it fetched the archive, unpacked it and started the server. SageMaker reports
neither, so the time from the request to the container's first line is one figure, `provisioning_s`. If a log is not
verbose, the server's own counters give the warm-up (`warm_up_s`); otherwise it counts as load.
"""

import itertools
import re
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from statistics import median
from typing import Any
from urllib.parse import urlsplit

import urllib3

from aws_api.sagemaker import SageMakerAccount
from inference_recommender.capacity.server_times import warm_up_s
from inference_recommender.client import InferenceFailed, SageMakerEndpoint
from inference_recommender.client.servers import request_headers
from inference_recommender.kserve import Body
from inference_recommender.load_generator.unix_socket import connection_pool
from inference_recommender.measure.system import SystemUnderTest
from inference_recommender.triton_statistics import TritonStatistics
from workloads import ColdStart
from workloads.recommendation import Stages

GIVE_UP_S = 120.0
"""Longest wait for an answer within the objective, in seconds."""
REQUEST_TIMEOUT_S = 60.0
AFTER_FAILURE_S = 0.1
LOG_S, LOG_POLL_S = 60.0, 2.0
"""Longest wait for lines in CloudWatch Logs, which appear some seconds after they were written, and the interval."""

Ask = Callable[[Body], bool]
"""Sends a request and returns whether it succeeded."""
Sleep = Callable[[float], None]
Clock = Callable[[], float]

_TIME = re.compile(r"[IWEF](?P<month>\d\d)(?P<day>\d\d) (?P<h>\d\d):(?P<m>\d\d):(?P<s>\d\d\.\d+) ")
_OWN = ' local_aws] "'
_FETCHING, _UNPACKING, _STARTING = (f"{_OWN}{word}" for word in ("fetching ", "unpacking ", "starting "))
_LOADING = re.compile(r'\] "?loading: ')
_WARMING = "is running warmup sample"
_LOADED = re.compile(r"\] \"?successfully loaded '")
_SERVES = re.compile(r'\] "?Started \S+(?: \S+)? at ')


@dataclass(frozen=True, kw_only=True, slots=True)
class LogLine:
    written_at: float
    """Unix seconds at which CloudWatch Logs received the line, or later."""
    text: str

    @property
    def at(self) -> float:
        """The line's own time, which has no year, or else `written_at`."""
        if (found := _TIME.match(self.text)) is None:
            return self.written_at
        year = datetime.fromtimestamp(self.written_at, UTC).year
        moments = [_moment(each, found) for each in (year - 1, year, year + 1)]
        return min(moments, key=lambda moment: abs(moment - self.written_at))


def _moment(year: int, found: re.Match[str]) -> float:
    first_of_month = datetime(year, int(found["month"]), 1, tzinfo=UTC).timestamp()
    hours = (int(found["day"]) - 1) * 24 + int(found["h"])
    return first_of_month + hours * 3600 + int(found["m"]) * 60 + float(found["s"])


def stages(
    log: Sequence[LogLine],
    *,
    requested_at: float | None = None,
    in_service_at: float | None = None,
    warm_up_s: float | None = None,
    answered_s: float | None = None,
) -> Stages:
    """Returns the stages of a start from its server's log and from four figures that are not in it.

    `requested_at` and `in_service_at` are Unix seconds, `warm_up_s` is the server's own count, and `answered_s` the
    seconds from `in_service_at` to a client's first answer within the objective.
    """
    serves = next((number for number, line in enumerate(log) if _SERVES.search(line.text)), len(log))
    log = log[: serves + 1]
    fetching, unpacking, starting = (_time(log, word) for word in (_FETCHING, _UNPACKING, _STARTING))
    first = next((line.at for line in log if _OWN not in line.text), None)
    loading = next((line.at for line in log if _LOADING.search(line.text)), None)
    warming = _time(log, _WARMING)
    loaded = max((line.at for line in log if _LOADED.search(line.text)), default=None)
    if warming is not None and loaded is not None:
        warm_up_s = loaded - warming
    elif warm_up_s is not None and (load_s := _between(loading, loaded)) is not None:
        warm_up_s = min(warm_up_s, load_s)
    begin = first if fetching is None else fetching
    answered_at = None if in_service_at is None or answered_s is None else in_service_at + answered_s
    return Stages(
        provisioning_s=_between(requested_at, first) if fetching is None else None,
        fetch_s=_between(fetching, unpacking),
        unpack_s=_between(unpacking, starting),
        start_s=_between(first if starting is None else starting, loading),
        load_s=_between(loading, None if loaded is None else loaded - (warm_up_s or 0.0)),
        warm_up_s=warm_up_s,
        first_answer_s=_between(loaded, answered_at),
        total_s=_between(begin, answered_at),
    )


def cold_start(
    starts: Sequence[Stages], system: SystemUnderTest, archive_sha256: str | None, measured_at: datetime
) -> ColdStart:
    """Returns the median and the range of each stage over the starts that report it."""
    rows = [dict(each) for each in starts]
    known = {name: [row[name] for row in rows if row[name] is not None] for name in Stages.model_fields}
    return ColdStart(
        **{name: median(values) if values else None for name, values in known.items()},
        starts=len(starts),
        ranges_s={name: (min(values), max(values)) for name, values in known.items() if len(values) > 1},
        measured_on="local" if system.stands_in else "sagemaker",
        machine=system.machine,
        instance_type=system.instance_type,
        archive_sha256=archive_sha256,
        measured_at=measured_at.isoformat(timespec="seconds"),
    )


def _time(log: Iterable[LogLine], words: str) -> float | None:
    return next((line.at for line in log if words in line.text), None)


def _between(begin: float | None, end: float | None) -> float | None:
    """Returns the seconds between two moments, 0 if the clocks of two machines disagree."""
    return None if begin is None or end is None else max(end - begin, 0.0)


def start_of(
    account: SageMakerAccount,
    system: SystemUnderTest,
    bodies: Sequence[Body],
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
    ask: Ask, bodies: Sequence[Body], limit_ms: float, sleep: Sleep = time.sleep, clock: Clock = time.perf_counter
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

    def ask(body: Body) -> bool:
        try:
            return pool.request("POST", path, body=body.content, headers=request_headers(body)).status == 200
        except urllib3.exceptions.HTTPError:
            return False

    return ask


def ask_endpoint(name: str, client: Any) -> Ask:
    server = SageMakerEndpoint(name, timeout_s=REQUEST_TIMEOUT_S, client=client)

    def ask(body: Body) -> bool:
        try:
            server.send(body, REQUEST_TIMEOUT_S)
        except InferenceFailed:
            return False
        return True

    return ask


def log_lines(events: Sequence[tuple[float, str]]) -> list[LogLine]:
    return [LogLine(written_at=at, text=text) for at, text in events]


def _whole_log(account: SageMakerAccount, endpoint: str, sleep: Sleep) -> Sequence[LogLine]:
    """Returns the log of the endpoint's server once it reports that its models are loaded."""
    for waited in itertools.count():
        log = log_lines(next(iter(account.endpoint_log(endpoint)), []))
        if stages(log).load_s is not None or waited * LOG_POLL_S >= LOG_S:
            break
        sleep(LOG_POLL_S)
    return log
