"""The last lines that a test's container wrote, from CloudWatch Logs.

SageMaker documents two places: the log of the job, with a stream for each of its endpoints, and the log of the endpoint
itself, with a stream for each instance. An endpoint of the service's own is gone when one looks, its log is not.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Protocol

from botocore.exceptions import ClientError

JOB_LOG = "/aws/sagemaker/InferenceRecommendationsJobs"
ENDPOINT_LOG = "/aws/sagemaker/Endpoints/{endpoint}"
LINES = 8
NOT_TO_BE_HAD = frozenset({"ResourceNotFoundException", "AccessDeniedException", "AccessDenied"})
"""No such log, or one that this user may not read: the reason of the failure has to do without it."""


class Logs(Protocol):
    """The part of boto3's CloudWatch Logs client that is used here."""

    def describe_log_streams(self, **request: Any) -> Mapping[str, Any]: ...

    def get_log_events(self, **request: Any) -> Mapping[str, Any]: ...


def fetch_log(client: Logs, job_name: str, endpoint_name: str) -> list[str]:
    """The last `LINES` lines of the first of these places that has any."""
    for group, prefix in (
        (ENDPOINT_LOG.format(endpoint=endpoint_name), None),
        (JOB_LOG, f"{job_name}/Endpoint/{endpoint_name}"),
    ):
        try:
            if lines := _last_lines(client, group, prefix):
                return lines
        except ClientError as error:
            if error.response.get("Error", {}).get("Code") not in NOT_TO_BE_HAD:
                raise
    return []


def _last_lines(client: Logs, group: str, prefix: str | None) -> list[str]:
    """Of the stream written to last; the API orders by name where a prefix is given."""
    chosen = {"logStreamNamePrefix": prefix} if prefix else {"orderBy": "LastEventTime", "descending": True, "limit": 1}
    for stream in client.describe_log_streams(logGroupName=group, **chosen)["logStreams"]:
        name = stream["logStreamName"]
        events = client.get_log_events(logGroupName=group, logStreamName=name, limit=LINES, startFromHead=False)
        if lines := list(_lines(events)):
            return lines[-LINES:]
    return []


def _lines(events: Mapping[str, Any]) -> Iterator[str]:
    for event in events["events"]:
        yield from str(event["message"]).rstrip().splitlines()
