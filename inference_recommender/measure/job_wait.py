"""The port through which a run asks AWS, and the wait for a job and its stop.

`Service` is the port: `jobs.aws.Aws` is its adapter, tests bring their own. Pauses are injected as `Sleep`.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Protocol

from aws_api.errors import AwsRefused, AwsUnavailable
from aws_api.session import Notify
from inference_recommender.capacity.time_series import Series
from inference_recommender.measurement import DeployedEndpoint
from inference_recommender.progress import Progress, ProgressUpdate

Sleep = Callable[[float], None]

TERMINAL = frozenset({"COMPLETED", "FAILED", "STOPPED", "DELETED"})
STOPPING_LIMIT_S = 120.0
"""How long a job that was told to stop is waited for, in seconds."""


class JobNameTaken(AwsUnavailable):
    """Another job has this name; a resumed run takes it for its own if the job carries the run's token."""

    def __init__(self, name: str) -> None:
        super().__init__(f"There is already a job called '{name}'. Choose another with --job-name.")


class Service(Protocol):
    """Inference Recommender and what belongs to a job, in the API's shapes. Every method raises `AwsUnavailable` where
    the service cannot be reached or refuses.
    """

    notify: Notify | None
    """Hears of an outage, which every call then outlasts for up to 15 minutes: a job goes on and costs money while its
    run cannot see it. With None a call fails after some seconds."""

    @property
    def region(self) -> str: ...

    def hurry(self) -> None:
        """Sets `notify` to None, for calls under way too."""

    def upload(self, url: str, body: bytes) -> None:
        """Puts `body` at an s3:// URL."""

    def create_job(self, request: Mapping[str, Any]) -> str:
        """Returns the new job's ARN. Raises `JobNameTaken`."""

    def describe_job(self, name: str) -> dict[str, Any]: ...

    def job_steps(self, name: str) -> list[dict[str, Any]]: ...

    def stop_job(self, name: str) -> None: ...

    def job_tags(self, job_arn: str) -> dict[str, str]: ...

    def measured_on(self, job_arn: str) -> str | None:
        """Returns the machine on which an account that is not AWS measured; None on AWS itself."""

    def container_log(self, job_name: str, endpoint_name: str) -> list[str]:
        """Returns the last lines of a test's container; none where there is no log or it may not be read."""

    def series(
        self,
        describe: Mapping[str, Any],
        steps: Sequence[Mapping[str, Any]],
        deployed: DeployedEndpoint | None,
        percentile: str,
    ) -> dict[str, Series]:
        """Returns the time series of every test by endpoint name, with the model latency at `percentile` ("p99");
        `deployed` is an existing endpoint under test.
        """

    def latest_series(self, describe: Mapping[str, Any], steps: Sequence[Mapping[str, Any]]) -> list[Series]:
        """Returns the last moments of every test under way."""


def poll_interval_s(expected_s: float) -> float:
    """Returns a sixtieth of the expected duration, between 2 s and 30 s."""
    return min(max(expected_s / 60, 2.0), 30.0)


def wait_for_job(
    service: Service,
    name: str,
    expected_s: float,
    progress: Progress,
    sleep: Sleep,
    place: tuple[int, int] = (1, 1),
    percentile: str = "p99",
) -> dict[str, Any]:
    """Returns the job's description once it has ended, whatever its status. `place` is the job's number in its run, and
    how many jobs the run has; `percentile` is that of the latency to show.
    """
    while True:
        described = service.describe_job(name)
        progress.update(replace(_update(service, described, expected_s, percentile), number=place[0], jobs=place[1]))
        if described["Status"] in TERMINAL:
            return described
        sleep(poll_interval_s(expected_s))


def stop_and_wait(service: Service, name: str, sleep: Sleep = time.sleep) -> dict[str, Any]:
    """Stops the job, waits for its end for `STOPPING_LIMIT_S` at most, and returns its description. Nothing is asked
    twice: a user who pressed Ctrl-C waits for the prompt.
    """
    described = service.describe_job(name)
    if described["Status"] not in TERMINAL:
        try:
            service.stop_job(name)
        except AwsRefused:
            # The job may have ended between the two calls, and then there is nothing to stop.
            described = service.describe_job(name)
            if described["Status"] not in TERMINAL:
                raise
    waited_s = 0.0
    while described["Status"] not in TERMINAL and waited_s < STOPPING_LIMIT_S:
        sleep(1.0)
        waited_s += 1.0
        described = service.describe_job(name)
    return described


def _update(service: Service, described: Mapping[str, Any], expected_s: float, percentile: str) -> ProgressUpdate:
    elapsed = ((described.get("CompletionTime") or datetime.now(UTC)) - described["CreationTime"]).total_seconds()
    update = ProgressUpdate(
        job_name=described["JobName"], status=described["Status"], elapsed_s=elapsed, expected_s=expected_s
    )
    if described["Status"] != "IN_PROGRESS":
        return update
    steps = service.job_steps(described["JobName"])
    running = [series for series in service.latest_series(described, steps) if series.seconds]
    return _with_latest(update, running[-1], percentile) if running else update


def _with_latest(update: ProgressUpdate, series: Series, percentile: str) -> ProgressUpdate:
    # The very last point may still be filling up.
    at = -2 if len(series.seconds) > 1 else -1
    shown = percentile if percentile in series.latency_ms else "p99"
    return replace(
        update,
        percentile=shown,
        users=series.users[at],
        invocations_per_minute=series.invocations_per_minute()[at],
        latency_ms=series.latency_ms[shown][at],
    )
