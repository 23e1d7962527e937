"""The last lines of a container's log in CloudWatch Logs."""

from aws_api.errors import NotFound, translate_aws_errors
from aws_api.session import AwsSession


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
