"""The first and the last lines of a container's log in CloudWatch Logs."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from aws_api.errors import AwsRefused, NotFound
from aws_api.session import AwsSession

MOST_PAGES = 10
DENIED = frozenset({"AccessDeniedException", "AccessDenied"})


@dataclass(frozen=True, kw_only=True, slots=True)
class ContainerLog:
    """The end of a log. `denied` is the service's message if it may not be read."""

    group: str | None = None
    lines: tuple[str, ...] = ()
    denied: str | None = None


def first_log(aws: AwsSession, places: Iterable[tuple[str, str | None]], lines: int, streams: int = 1) -> ContainerLog:
    """Returns the end of the first log that has lines; a place is a group and the prefix of a stream's name."""
    denied = None
    for group, prefix in places:
        try:
            if found := last_lines(aws, group, lines, prefix=prefix, streams=streams):
                return ContainerLog(group=group, lines=tuple(found))
        except AwsRefused as error:
            if error.code not in DENIED:
                raise
            denied = str(error)
    return ContainerLog(denied=denied)


def last_lines(aws: AwsSession, group: str, lines: int, *, prefix: str | None = None, streams: int = 1) -> list[str]:
    """Returns the ends of the latest streams, oldest first, or of those below `prefix`; none without a log. Streams
    without lines do not count with a prefix.
    """
    latest = {"orderBy": "LastEventTime", "descending": True, "limit": streams}
    ends: list[list[str]] = []
    try:
        chosen = {"logStreamNamePrefix": prefix} if prefix else latest
        for stream in aws.call("logs", "describe_log_streams", logGroupName=group, **chosen)["logStreams"]:
            request = {"logGroupName": group, "logStreamName": stream["logStreamName"], "startFromHead": False}
            events = aws.call("logs", "get_log_events", limit=lines, **request)["events"]
            if written := [line for event in events for line in str(event["message"]).rstrip().splitlines()]:
                ends.append(written[-lines:])
            if len(ends) == streams:
                break
    except NotFound:
        pass
    return [line for end in reversed(ends) for line in end]


def first_events(aws: AwsSession, group: str) -> list[list[tuple[float, str]]]:
    """Returns the first `MOST_PAGES` pages of each stream, oldest stream first: Unix seconds and a line. None without a
    log.
    """
    try:
        streams = aws.pages("logs", "describe_log_streams", "logStreams", logGroupName=group)
    except NotFound:
        return []
    streams.sort(key=lambda stream: stream.get("firstEventTimestamp", 0))
    return [_events(aws, group, stream["logStreamName"]) for stream in streams]


def _events(aws: AwsSession, group: str, stream: str) -> list[tuple[float, str]]:
    """Follows the token of the next page until it stays the same; a page before that may be empty."""
    events: list[dict[str, Any]] = []
    request: dict[str, Any] = {"logGroupName": group, "logStreamName": stream, "startFromHead": True}
    for _ in range(MOST_PAGES):
        page = aws.call("logs", "get_log_events", **request)
        events += page["events"]
        if page["nextForwardToken"] == request.get("nextToken"):
            break
        request["nextToken"] = page["nextForwardToken"]
    return [(event["timestamp"] / 1000, line) for event in events for line in event["message"].rstrip().splitlines()]
