"""Waiting for jobs: poll, say how they are, and outlast a throttled or broken connection."""

import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timezone
from functools import partial
from typing import Any, TypeVar

from model_build.progress import Progress
from model_build.remote.account import Account
from model_build.remote.errors import AwsRefused, AwsUnavailable, AwsUnreachable, JobFailed, JobStopped, LostSight
from model_build.remote.request import RemoteBuild

POLL_S = 15.0
PATIENCE_S = 1800.0
LOG_LINES = 20
TRANSIENT = frozenset(
    {
        "InternalFailure",
        "InternalServerError",
        "RequestLimitExceeded",
        "ServiceUnavailable",
        "Throttling",
        "ThrottlingException",
        "TooManyRequestsException",
    }
)

Sleep = Callable[[float], None]
T = TypeVar("T")


def wait_for_jobs(
    account: Account, builds: Sequence[RemoteBuild], progress: Progress, sleep: Sleep = time.sleep
) -> None:
    """Until every job has completed. Raises at the first that has not: `JobFailed`, `JobStopped`; `LostSight` when
    AWS cannot be asked for `PATIENCE_S`, or refuses to answer."""
    while True:
        try:
            described = [patiently(partial(account.describe_job, build.job_name), progress, sleep) for build in builds]
        except AwsUnavailable as error:
            names, outputs = [b.job_name for b in builds], [b.output_url for b in builds]
            raise LostSight(names, outputs, str(error)) from error
        progress("; ".join(_told(build, found) for build, found in zip(builds, described, strict=True)))
        for build, found in zip(builds, described, strict=True):
            _refuse(account, build, found)
        if all(found["ProcessingJobStatus"] == "Completed" for found in described):
            return
        sleep(POLL_S)


def patiently(call: Callable[[], T], progress: Progress, sleep: Sleep) -> T:
    """`call`'s answer; what may pass is tried again, each time after twice as long, for `PATIENCE_S` in all."""
    waited, pause = 0.0, 2.0
    while True:
        try:
            return call()
        except AwsUnavailable as error:
            passing = isinstance(error, AwsUnreachable) or (isinstance(error, AwsRefused) and error.code in TRANSIENT)
            if not passing or waited >= PATIENCE_S:
                raise
            progress(f"{error} Trying again in {pause:.0f} s.")
        sleep(pause)
        waited, pause = waited + pause, min(2 * pause, 60.0)


def _told(build: RemoteBuild, described: Mapping[str, Any]) -> str:
    began = described["CreationTime"]
    elapsed = int(((described.get("ProcessingEndTime") or datetime.now(timezone.utc)) - began).total_seconds())
    status = described["ProcessingJobStatus"]
    return f"{build.job_name} on {build.instance_type}: {status}, {elapsed // 60} min {elapsed % 60:02d} s"


def _refuse(account: Account, build: RemoteBuild, described: Mapping[str, Any]) -> None:
    name, status = build.job_name, described["ProcessingJobStatus"]
    if status == "Stopped":
        raise JobStopped(name, build.max_runtime_s)
    if status == "Failed":
        raise JobFailed(name, described.get("FailureReason"), described.get("ExitMessage"), _log(account, name))


def _log(account: Account, name: str) -> Sequence[str]:
    try:
        return account.log_tail(name, LOG_LINES)
    except AwsUnavailable as error:
        return [f"(it cannot be read: {error})"]
