"""The first and the last lines of a container's log in CloudWatch Logs."""

from typing import Any

from aws_api.errors import NotFound, translate_aws_errors
from aws_api.session import AwsSession

MOST_PAGES = 10


def last_lines(aws: AwsSession, group: str, lines: int, *, prefix: str | None = None) -> list[str]:
    """Returns the end of the first stream that has any lines; an empty list where there is no such log.

    Streams are tried from the one written last; with `prefix` only those whose name begins so, by name, since the API
    cannot do both. Raises `AwsUnavailable`.
    """
    chosen = {"logStreamNamePrefix": prefix} if prefix else {"orderBy": "LastEventTime", "descending": True, "limit": 1}
    client = aws.client("logs")
    try:
        with translate_aws_errors("GetLogEvents"):
            for stream in client.describe_log_streams(logGroupName=group, **chosen)["logStreams"]:
                events = client.get_log_events(
                    logGroupName=group, logStreamName=stream["logStreamName"], limit=lines, startFromHead=False
                )["events"]
                if said := [line for event in events for line in str(event["message"]).rstrip().splitlines()]:
                    return said[-lines:]
    except NotFound:
        pass
    return []


def first_events(aws: AwsSession, group: str) -> list[list[tuple[float, str]]]:
    """Returns the beginning of each stream of a group, oldest first: Unix seconds and a line; an empty list where there
    is no such log. At most `MOST_PAGES` pages of a stream are read, each of up to 1 MB. Raises `AwsUnavailable`.
    """
    client = aws.client("logs")
    try:
        with translate_aws_errors("GetLogEvents"):
            pages = client.get_paginator("describe_log_streams").paginate(logGroupName=group)
            streams = [stream for page in pages for stream in page["logStreams"]]
            streams.sort(key=lambda stream: stream.get("firstEventTimestamp", 0))
            return [_events(client, group, stream["logStreamName"]) for stream in streams]
    except NotFound:
        return []


def _events(client: Any, group: str, stream: str) -> list[tuple[float, str]]:
    """Follows the token of the next page until it stays the same; a page before that may be empty."""
    found: list[tuple[float, str]] = []
    asked: dict[str, Any] = {"logGroupName": group, "logStreamName": stream, "startFromHead": True}
    for _ in range(MOST_PAGES):
        page = client.get_log_events(**asked)
        found += [
            (event["timestamp"] / 1000, line)
            for event in page["events"]
            for line in str(event["message"]).rstrip().splitlines()
        ]
        if page["nextForwardToken"] == asked.get("nextToken"):
            break
        asked["nextToken"] = page["nextForwardToken"]
    return found
