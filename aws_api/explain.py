"""Explains why an endpoint failed. stacks/explain.py has stacks, inference_recommender/cli/jobs.py has jobs.

`explain` is pure: it searches the log and the reasons of a failure for the known causes of failures.toml. The other
functions read logs and reasons from an account. Each call may raise `AwsUnavailable`.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import cache
from pathlib import Path
from typing import Any

from aws_api.errors import AwsRefused, NotFound
from aws_api.logs import DENIED, ContainerLog, first_log
from aws_api.sagemaker import ENDPOINT_LOG, HARDWARE_NAMESPACE, SageMakerAccount
from aws_api.session import metric_query
from workloads import UsageError
from workloads.document import Document

FAILURES = Path(__file__).with_name("failures.toml")
LAST_LINES = 20
"""Lines of the log that an unknown failure shows."""
LOG_LINES = 10_000
"""The most that one GetLogEvents returns (botocore, EventsLimit)."""
STREAMS = 5
"""Latest streams of a log that are read: during an update the old fleet writes, too."""
LONGEST_LINE = 400
HARMLESS = re.compile("pinned (system )?memory")
"""Triton's warning on each host without a GPU. It quotes CUDA's error."""
INDENT = "\n           "
METRICS = ("MemoryUtilization", "GPUMemoryUtilization", "DiskUtilization")
"""Percentages that SageMaker reports for the instances of an endpoint."""
IN_PROGRESS = frozenset({"Creating", "Updating", "SystemUpdating", "RollingBack", "Deleting"})


class KnownCause(Document):
    name: str
    pattern: str
    cause: str
    action: str
    source: str


class KnownCauses(Document):
    failures: tuple[KnownCause, ...]


class Explanation(Document):
    """The likely cause of one failure. `cause`, `line`, `action` and `source` are None if the cause is unknown."""

    subject: str
    status: str
    reasons: tuple[str, ...]
    cause: str | None
    line: str | None
    action: str | None
    source: str | None
    last_lines: tuple[str, ...]
    """The end of the log of an unknown failure."""
    read_on: str
    """A command that prints more."""
    unread: str | None
    """Why a log could not be read."""

    def text(self) -> str:
        rows = {
            "reason": "\n".join(self.reasons).replace("\n", INDENT) or "AWS gave no reason.",
            "cause": self.cause or "unknown",
            "line": self.line,
            "do": self.action,
            "source": self.source,
            "not read": self.unread,
            "read on": self.read_on,
        }
        lines = [f"{self.subject}: {self.status}", *(f"  {name:<9}{value}" for name, value in rows.items() if value)]
        if self.last_lines:
            lines += ["  The last lines of the log:", *(f"    {line}" for line in self.last_lines)]
        return "\n".join(lines)


class Explanations(Document):
    """The document that `explain --json` prints. No explanations: nothing failed."""

    name: str
    status: str
    explanations: tuple[Explanation, ...]

    def text(self) -> str:
        if not self.explanations:
            return f"{self.name} is {self.status}: nothing failed."
        return "\n\n".join(one.text() for one in self.explanations)


@dataclass(frozen=True, kw_only=True, slots=True)
class Failure:
    """A failed resource: the reasons that AWS gives for it, and the log of its container."""

    subject: str
    status: str
    reasons: tuple[str, ...]
    log: ContainerLog
    read_on: str


def explain(failure: Failure) -> Explanation:
    """Returns the first of the known causes that the log or the reasons show."""
    text = "\n".join([*(line for line in failure.log.lines if not HARMLESS.search(line)), *failure.reasons])
    matches = ((known, re.search(known.pattern, text, re.IGNORECASE)) for known in known_causes())
    known, line = next(((known, _line(text, match)) for known, match in matches if match), (None, None))
    return Explanation(
        subject=failure.subject,
        status=failure.status,
        reasons=failure.reasons,
        cause=known.cause if known else None,
        line=line,
        action=known.action if known else None,
        source=known.source if known else None,
        last_lines=() if known else failure.log.lines[-LAST_LINES:],
        read_on=failure.read_on,
        unread=failure.log.denied,
    )


@cache
def known_causes() -> tuple[KnownCause, ...]:
    return KnownCauses.from_toml(FAILURES).failures


def _line(text: str, match: re.Match[str]) -> str:
    """Returns the line of a match, cut to a readable length around it."""
    begin, end = text.rfind("\n", 0, match.start()) + 1, text.find("\n", match.end())
    begin = max(begin, match.start() - LONGEST_LINE // 2)
    return text[begin : end if end >= 0 else None][:LONGEST_LINE].strip()


def explain_endpoint(account: SageMakerAccount, name: str) -> Explanations:
    described = described_endpoint(account, name)
    failure = endpoint_failure(account, name, described)
    if not described and not failure.log.lines:
        raise UsageError(
            f"There is neither a stack nor an endpoint called '{name}' in {account.region}, nor a log of such an "
            "endpoint. Check the name and the region: `aws sagemaker list-endpoints`."
        )
    explanations = (explain(failure),) if has_failed(failure) else ()
    return Explanations(name=f"endpoint {name}", status=failure.status, explanations=explanations)


def described_endpoint(account: SageMakerAccount, endpoint: str) -> Mapping[str, Any]:
    try:
        return account.describe_endpoint(endpoint)
    except NotFound:
        return {}


def endpoint_failure(account: SageMakerAccount, name: str, described: Mapping[str, Any]) -> Failure:
    """Reads an endpoint's log, which outlives it. `described` is empty for a deleted endpoint."""
    log = first_log(account, [(ENDPOINT_LOG.format(endpoint=name), None)], LOG_LINES, STREAMS)
    reasons = [described["FailureReason"]] if "FailureReason" in described else []
    if described.get("EndpointStatus") == "Failed":
        reasons += _full_metrics(account, name, described)
    return Failure(
        subject=f"endpoint {name}",
        status=described.get("EndpointStatus", "deleted"),
        reasons=tuple(reasons),
        log=log,
        read_on=log_command(account, log, f"sagemaker describe-endpoint --endpoint-name {name}"),
    )


def has_failed(failure: Failure) -> bool:
    """Returns whether there is a failure to explain. A container that cannot start is restarted for half an hour while
    its endpoint is Creating, so a known cause in its log counts.
    """
    if failure.status == "Creating":
        return explain(failure).cause is not None
    return bool(failure.reasons) or failure.status not in {"InService", *IN_PROGRESS}


def _full_metrics(account: SageMakerAccount, name: str, described: Mapping[str, Any]) -> list[str]:
    """Returns a sentence for each resource of an instance that was used up."""
    try:
        config = account.call(
            "sagemaker", "describe_endpoint_config", EndpointConfigName=described["EndpointConfigName"]
        )
        of_variant = {"EndpointName": name, "VariantName": config["ProductionVariants"][0]["VariantName"]}
        queries = [metric_query(each.lower(), HARDWARE_NAMESPACE, each, of_variant, "Maximum") for each in METRICS]
        points = account.metrics(queries, described["CreationTime"], datetime.now(timezone.utc))
    except AwsRefused as error:
        if isinstance(error, NotFound) or error.code in DENIED:
            return []
        raise
    highest = {metric: max(points.get(metric.lower(), {}).values(), default=0.0) for metric in METRICS}
    return [f"{metric} reached {value:.0f} %." for metric, value in highest.items() if value >= 95]


def log_command(account: SageMakerAccount, log: ContainerLog, otherwise: str) -> str:
    command = f"logs tail {log.group} --since 1d" if log.group else otherwise
    return f"aws {command} --region {account.region}"
