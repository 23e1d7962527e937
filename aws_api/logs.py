"""The first and the last lines of a container's log in CloudWatch Logs."""

from typing import Any

from aws_api.errors import NotFound
from aws_api.session import AwsSession

MOST_PAGES = 10


def last_lines(aws: AwsSession, group: str, lines: int, *, prefix: str | None = None) -> list[str]:
    """Returns the end of the latest stream, or of the first one below `prefix` that has lines; none without a log."""
    chosen = {"logStreamNamePrefix": prefix} if prefix else {"orderBy": "LastEventTime", "descending": True, "limit": 1}
    try:
        for stream in aws.call("logs", "describe_log_streams", logGroupName=group, **chosen)["logStreams"]:
            request = {"logGroupName": group, "logStreamName": stream["logStreamName"], "startFromHead": False}
            events = aws.call("logs", "get_log_events", limit=lines, **request)["events"]
            if written := [line for event in events for line in str(event["message"]).rstrip().splitlines()]:
                return written[-lines:]
    except NotFound:
        pass
    return []


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
