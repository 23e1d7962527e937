"""Waiting for a job: poll, pulse, and on Ctrl-C stop the job so that nobody pays for it."""

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from aws_api.errors import AwsRefused
from inference_recommender.jobs.service import Service
from inference_recommender.measurement import Series
from inference_recommender.progress import Progress, Pulse

TERMINAL = frozenset({"COMPLETED", "FAILED", "STOPPED", "DELETED"})
STOPPING_LIMIT_S = 120.0
Sleep = Callable[[float], None]


def poll_interval_s(expected_s: float) -> float:
    """A sixtieth of what is expected, between 2 s and 30 s."""
    return min(max(expected_s / 60, 2.0), 30.0)


def wait_for_job(
    service: Service,
    name: str,
    expected_s: float,
    progress: Progress,
    sleep: Sleep = time.sleep,
    place: tuple[int, int] = (1, 1),
) -> dict[str, Any]:
    """The job's description once it has ended, however it ended. `place` is its number, and of how many."""
    while True:
        described = service.describe_job(name)
        progress.pulse(replace(_pulse(service, described, expected_s), number=place[0], jobs=place[1]))
        if described["Status"] in TERMINAL:
            return described
        sleep(poll_interval_s(expected_s))


def stop_and_wait(service: Service, name: str, sleep: Sleep = time.sleep) -> dict[str, Any]:
    """Ask the job to stop and wait until it has, for `STOPPING_LIMIT_S` at most; its description."""
    described = service.describe_job(name)
    if described["Status"] not in TERMINAL:
        try:
            service.stop_job(name)
        except AwsRefused:
            # It may have ended just now, and then there is nothing to stop.
            described = service.describe_job(name)
            if described["Status"] not in TERMINAL:
                raise
    waited = 0.0
    while described["Status"] not in TERMINAL and waited < STOPPING_LIMIT_S:
        sleep(1.0)
        waited += 1.0
        described = service.describe_job(name)
    return described


def _pulse(service: Service, described: Mapping[str, Any], expected_s: float) -> Pulse:
    elapsed = ((described.get("CompletionTime") or datetime.now(UTC)) - described["CreationTime"]).total_seconds()
    pulse = Pulse(job_name=described["JobName"], status=described["Status"], elapsed_s=elapsed, expected_s=expected_s)
    if described["Status"] != "IN_PROGRESS":
        return pulse
    steps = service.job_steps(described["JobName"])
    running = [series for series in service.latest_series(described, steps) if series.seconds]
    return _with_latest(pulse, running[-1]) if running else pulse


def _with_latest(pulse: Pulse, series: Series) -> Pulse:
    # The very last point may still be filling up.
    at = -2 if len(series.seconds) > 1 else -1
    return replace(
        pulse,
        users=series.users[at],
        invocations_per_minute=series.invocations_per_minute()[at],
        p99_ms=series.latency_ms["p99"][at],
    )
