"""A session with one AWS account and region: lazily created clients, and the retries of calls.

botocore's standard mode tries a throttled or dropped call `ATTEMPTS` times, for some seconds. A session with `notify`
retries for `GIVE_UP_S` and notifies the user once: the standard mode's quota is spent after four minutes.
"""

import random
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from botocore.config import Config
from botocore.exceptions import ClientError, ConnectionError, HTTPClientError

from aws_api.errors import (
    NO_REGION,
    AwsBusy,
    AwsUnavailable,
    LocalAccountEnded,
    is_this_machine,
    refusal,
    translate_aws_errors,
    unreachable,
)

if TYPE_CHECKING:
    import boto3

ATTEMPTS = 6
"""Attempts of botocore's standard mode, the first one included."""
FIRST_PAUSE_S = 2.0
LONGEST_PAUSE_S = 60.0
GIVE_UP_S = 900.0
"""Longest total wait of one call's outage, in seconds."""

Notify = Callable[[str], None]
"""Tells the user a sentence about an outage."""


class AwsSession:
    """Makes clients on first use, so that building a request needs neither credentials nor a region.

    `session` defaults to boto3's of the environment, `region` to the session's. Without `notify` a call fails after
    `ATTEMPTS`.
    """

    def __init__(
        self, session: "boto3.Session | None" = None, notify: Notify | None = None, *, region: str | None = None
    ) -> None:
        self._session = session
        self._region = region
        self._clients: dict[str, Any] = {}
        self.notify = notify

    @property
    def region(self) -> str:
        """Raises `AwsUnavailable` where none is set."""
        region = self._region or self._boto3.region_name
        if not region:
            raise AwsUnavailable(NO_REGION)
        return region

    def is_on_this_machine(self) -> bool:
        """Returns whether calls go to a loopback address, as `python -m local_aws` prints in AWS_ENDPOINT_URL."""
        try:
            return is_this_machine(urlsplit(self.client("sagemaker").meta.endpoint_url).hostname or "")
        except AwsUnavailable:
            return False

    def account(self) -> str:
        """Returns the account's number."""
        return str(self.call("sts", "get_caller_identity")["Account"])

    def default_bucket(self) -> str:
        """Returns the name of SageMaker's default bucket of the account and region, whether it exists or not."""
        return f"sagemaker-{self.region}-{self.account()}"

    def client(self, service: str) -> Any:
        if service not in self._clients:
            with translate_aws_errors(f"a client of {service}"):
                make: Any = self._boto3.client  # its stubs list every service by name
                config = Config(retries={"mode": "standard", "total_max_attempts": ATTEMPTS})
                client = self._clients[service] = make(service, region_name=self.region, config=config)
            # After botocore's own handler of this event, whose answer counts first.
            event = f"needs-retry.{client.meta.service_model.service_id.hyphenize()}"
            client.meta.events.register(event, OutageRetries(self))
        return self._clients[service]

    def call(self, service: str, operation: str, **arguments: Any) -> dict[str, Any]:
        """Calls an operation, named as boto3 names it, and returns the response without its metadata."""
        client = self.client(service)
        with translate_aws_errors(client.meta.method_to_api_mapping[operation]):
            response = getattr(client, operation)(**arguments)
        return {key: value for key, value in response.items() if key != "ResponseMetadata"}

    def pages(self, service: str, operation: str, key: str, **arguments: Any) -> list[Any]:
        """Returns the list `key` of all pages of a response."""
        client = self.client(service)
        with translate_aws_errors(client.meta.method_to_api_mapping[operation]):
            return [
                item for page in client.get_paginator(operation).paginate(**arguments) for item in page.get(key, [])
            ]

    def stop_retrying(self) -> None:
        """Makes calls fail at once in an outage, also with existing clients: after Ctrl-C the user expects a prompt."""
        self.notify = None

    @property
    def _boto3(self) -> "boto3.Session":
        if self._session is None:
            import boto3  # takes 0.2 s, and what only builds requests does without

            self._session = boto3.Session()
        return self._session


def metric_query(
    key: str, namespace: str, name: str, dimensions: Mapping[str, str], stat: str, period_s: int = 60
) -> dict[str, Any]:
    """Returns a MetricDataQuery; `key` is its id."""
    named = [{"Name": dimension, "Value": value} for dimension, value in dimensions.items()]
    metric = {"Namespace": namespace, "MetricName": name, "Dimensions": named}
    return {"Id": key, "MetricStat": {"Metric": metric, "Period": period_s, "Stat": stat}}


def pause_s(attempt: int, jitter: float) -> float:
    """Returns seconds that double with each attempt from 0 on, cut by up to a half; `jitter` is between 0 and 1."""
    return float(min(FIRST_PAUSE_S * 2**attempt, LONGEST_PAUSE_S) * (1 - jitter / 2))


class OutageRetries:
    """Handles botocore's `needs-retry` event: keeps a throttled or unreachable call alive when botocore gives up.

    botocore sleeps for the seconds that a handler returns and tries again. If all return None, the call ends.
    """

    _WAITED_S = "outage_waited_s"
    """A key in the context of a request, which botocore keeps through all its attempts."""

    def __init__(self, session: AwsSession, jitter: Callable[[], float] = random.random) -> None:
        self._session = session
        self._jitter = jitter

    def __call__(
        self,
        *,
        response: tuple[Any, Any] | None,
        caught_exception: Exception | None,
        operation: Any,
        attempts: int,
        request_dict: Mapping[str, Any],
        **_: Any,
    ) -> float | None:
        error = _passing(operation.name, response, caught_exception)
        if isinstance(error, LocalAccountEnded):
            raise error  # botocore would repeat the call
        notify = self._session.notify
        if notify is None:
            return None
        context = request_dict["context"]
        waited = context.get(self._WAITED_S, 0.0)
        if error is None:
            if waited:
                notify("AWS answers again.")
            return None
        if attempts < ATTEMPTS:
            return None
        pause = pause_s(attempts - ATTEMPTS, self._jitter())
        if waited + pause > GIVE_UP_S:
            return None
        if not waited:
            notify(_outage(error))
        context[self._WAITED_S] = waited + pause
        return pause


def _passing(operation: str, response: tuple[Any, Any] | None, caught: Exception | None) -> AwsUnavailable | None:
    """Returns the attempt's error where the same call may succeed later."""
    if response is None:
        return unreachable(caught) if isinstance(caught, (ConnectionError, HTTPClientError)) else None
    http, parsed = response
    if http.status_code < 300:
        return None
    error = refusal(operation, ClientError(parsed, operation))
    return error if isinstance(error, AwsBusy) else None


def _outage(error: AwsUnavailable) -> str:
    return (
        f"{str(error).rstrip('.')}. Asking again for up to {GIVE_UP_S / 60:.0f} minutes; a running job is not affected."
    )
