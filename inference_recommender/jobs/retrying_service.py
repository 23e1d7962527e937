"""A service that is asked again while it is throttled or cannot be reached, with a growing pause and jitter.

It says so once for each time of trouble, and gives up after `GIVE_UP_S`. Credentials that have expired are not waited
for: nobody renews them but a person.
"""

import random
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from aws_api.errors import AwsBusy, AwsRefused, AwsUnavailable, AwsUnreachable
from inference_recommender.errors import JobNameTaken
from inference_recommender.jobs.service import Service
from inference_recommender.measurement import DeployedEndpoint, Series
from inference_recommender.progress import Progress

T = TypeVar("T")
Sleep = Callable[[float], None]

FIRST_PAUSE_S = 2.0
LONGEST_PAUSE_S = 60.0
GIVE_UP_S = 900.0
"""Of pauses on end, in one time of trouble."""


def pause_s(attempt: int, jitter: float) -> float:
    """Doubles with each attempt from the first (0) on, and is then cut by up to a half; `jitter` is 0 to 1."""
    return float(min(FIRST_PAUSE_S * 2**attempt, LONGEST_PAUSE_S) * (1 - jitter / 2))


class Patient:
    """`Service` in all but its haste. Raises what the service raises once patience has run out."""

    def __init__(
        self,
        service: Service,
        progress: Progress,
        sleep: Sleep = time.sleep,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._service = service
        self._progress = progress
        self._sleep = sleep
        self._jitter = jitter

    @property
    def region(self) -> str:
        return self._service.region

    def upload(self, url: str, body: bytes) -> None:
        self._ask(lambda: self._service.upload(url, body))

    def create_job(self, request: Mapping[str, Any]) -> str:
        return self._ask(lambda: self._service.create_job(request))

    def describe_job(self, name: str) -> dict[str, Any]:
        return self._ask(lambda: self._service.describe_job(name))

    def job_steps(self, name: str) -> list[dict[str, Any]]:
        return self._ask(lambda: self._service.job_steps(name))

    def stop_job(self, name: str) -> None:
        self._ask(lambda: self._service.stop_job(name))

    def job_tags(self, job_arn: str) -> dict[str, str]:
        return self._ask(lambda: self._service.job_tags(job_arn))

    def measured_on(self, job_arn: str) -> str | None:
        return self._ask(lambda: self._service.measured_on(job_arn))

    def container_log(self, job_name: str, endpoint_name: str) -> list[str]:
        return self._ask(lambda: self._service.container_log(job_name, endpoint_name))

    def series(
        self, describe: Mapping[str, Any], steps: Sequence[Mapping[str, Any]], deployed: DeployedEndpoint | None
    ) -> dict[str, Series]:
        return self._ask(lambda: self._service.series(describe, steps, deployed))

    def latest_series(self, describe: Mapping[str, Any], steps: Sequence[Mapping[str, Any]]) -> list[Series]:
        return self._ask(lambda: self._service.latest_series(describe, steps))

    def _ask(self, question: Callable[[], T]) -> T:
        attempt, waited = 0, 0.0
        while True:
            try:
                found = question()
            except (AwsBusy, AwsUnreachable) as error:
                pause = pause_s(attempt, self._jitter())
                if waited + pause > GIVE_UP_S:
                    raise
                if attempt == 0:
                    self._progress.say(_trouble(error))
                self._sleep(pause)
                attempt, waited = attempt + 1, waited + pause
            except (AwsRefused, JobNameTaken):
                self._say_answered(attempt)
                raise
            else:
                self._say_answered(attempt)
                return found

    def _say_answered(self, attempt: int) -> None:
        if attempt:
            self._progress.say("AWS answers again.")


def _trouble(error: AwsUnavailable) -> str:
    return (
        f"{str(error).rstrip('.')}. Asking again for up to {GIVE_UP_S / 60:.0f} minutes; a job under way is not "
        "affected."
    )
