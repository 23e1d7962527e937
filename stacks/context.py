"""Options of a deployment (`cdk deploy -c KEY=VALUE`) and the source of a release (cdk.json)."""

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from workloads import UsageError
from workloads.hosting import ipv4_network

Stage = Literal["beta", "production"]
UseOfRecommendation = Literal["use", "ignore"]
AutoscalingIs = Literal["on", "off"]
Cleanup = Literal["off", "daily"]
ReleaseStart = Literal["push", "push-and-approval"]
Context = Callable[[str], Any]
"""Returns the value of a context key or None, as `app.node.try_get_context` does."""

EMAIL = re.compile(r"[^@\s]+@[^@\s]+\.[^@\s]+")
TOPIC = re.compile(r"arn:aws[a-z-]*:sns:[a-z0-9-]+:\d{12}:[\w-]{1,256}")
DEFAULT_CIDR = "10.0.0.0/16"
LARGEST_VPC, SMALLEST_VPC = 16, 20
"""Prefix lengths. AWS allows /16 to /28 (VPC user guide, VPC CIDR blocks); a /20 leaves each of 16 zones a /24."""
REPOSITORY = re.compile(r"[\w.-]+(/[\w.-]+)+")
ENVIRONMENT = re.compile(r"\d{12}/[a-z]{2}(-[a-z]+)+-\d")
CONNECTION = re.compile(
    r"arn:aws[a-z-]*:(codeconnections|codestar-connections):[a-z0-9-]+:\d{12}:connection/[0-9a-f-]{36}"
)

CDK_JSON = "cdk.json: context.{}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Options:
    stage: Stage = "beta"
    """A fleet in production spans zones, and its size was measured on SageMaker."""
    hosting_target: str | None = None
    """Replaces hosting.target for workloads that have this target."""
    recommendation: UseOfRecommendation = "use"
    """"ignore" deploys one instance without autoscaling, so that a new artifact can be measured."""
    autoscaling: AutoscalingIs = "on"
    """"off" keeps the fleet's size. SageMaker changes the instance type only of a fleet without autoscaling."""
    budget_usd: float | None = None
    """The stage's monthly budget; None has no budget."""
    alarm_email: str | None = None
    """Is subscribed to the topic of each stack that pages, and confirms once by a link."""
    alarm_topic: str | None = None
    """The ARN of the topic that replaces the stacks' own topics. Its policy lets CloudWatch publish."""
    network_cidr: str | None = None
    """The addresses of the network that workloads on EC2 share in this stage; None is `DEFAULT_CIDR`."""
    image_account: str | None = None
    """The account of the release that built our images, if the stack is deployed to another account or region."""
    local: bool = False
    """True for a local account, which pulls no images and has no accelerators."""

    @property
    def in_production(self) -> bool:
        return self.stage == "production"


PRODUCTION = Options(stage="production")


@dataclass(frozen=True, kw_only=True, slots=True)
class ReleaseSource:
    repository: str
    """OWNER/NAME."""
    connection_arn: str
    """The AWS CodeConnections connection, which a person creates and confirms once at the repository's host."""
    branch: str = "main"
    start: ReleaseStart = "push"
    """With "push-and-approval" the approval of a model package starts a release of its workload, too."""


def read_options(context: Context) -> Options:
    """Raises `UsageError` for a value that is not allowed, and for a rehearsal in production."""
    stage = _choice("stage", context("stage"), get_args(Stage))
    recommendation = _choice("recommendation", context("recommendation"), get_args(UseOfRecommendation))
    autoscaling = _choice("autoscaling", context("autoscaling"), get_args(AutoscalingIs))
    target = context("hosting-target")
    email, topic = read_alarm_receiver(context)
    for key, value in (("hosting-target", target), ("recommendation", recommendation)):
        if stage == "production" and value not in (None, "use"):
            raise UsageError(
                f"-c {key}={value}: is for rehearsing and measuring, and -c stage=production is neither. "
                "Leave one of the two out."
            )
    return Options(
        stage=stage,
        hosting_target=target,
        recommendation=recommendation,
        autoscaling=autoscaling,
        budget_usd=read_budget(context, stage),
        alarm_email=email,
        alarm_topic=topic,
        network_cidr=read_network_cidr(context, stage),
    )


def read_alarm_receiver(context: Context) -> tuple[str | None, str | None]:
    """Returns the address and the topic that receive alarms. Raises `UsageError` for both, or a malformed one."""
    email = _text(context, "-c {}", "alarm-email", EMAIL, "NAME@DOMAIN")
    topic = _text(context, "-c {}", "alarm-topic", TOPIC, "arn:aws:sns:REGION:ACCOUNT:NAME")
    if email is not None and topic is not None:
        raise UsageError("-c alarm-email, alarm-topic: got both. Leave one out: subscribe the address to your topic.")
    return email, topic


def read_budget(context: Context, stage: Stage) -> float | None:
    """Returns the monthly limit of the stage in USD, or None. Raises `UsageError` for an invalid amount."""
    key = f"{stage}-budget-usd"
    if (value := context(key)) is None:
        return None
    try:
        limit = float(value)
    except (TypeError, ValueError):
        limit = math.nan
    if not 0 < limit < math.inf:
        raise UsageError(f"-c {key}: got '{value}'. Allowed: USD a month, more than 0.")
    return limit


def read_network_cidr(context: Context, stage: Stage) -> str | None:
    """Returns the addresses of the stage's shared network, or None. Raises `UsageError` for invalid ones."""
    key = f"{stage}-network-cidr"
    if (value := context(key)) is None:
        return None
    try:
        network = ipv4_network(str(value))
    except ValueError as error:
        raise UsageError(f"-c {key}: {error}") from None
    if not LARGEST_VPC <= network.prefixlen <= SMALLEST_VPC:
        raise UsageError(
            f"-c {key}: got '{network}'. Allowed: prefix lengths from /{LARGEST_VPC} to /{SMALLEST_VPC}. "
            "Write for example 10.1.0.0/16."
        )
    return str(network)


def read_cleanup(context: Context) -> bool:
    """Returns whether the account has a daily cleanup. Raises `UsageError` for a value that is not allowed."""
    return bool(_choice("cleanup", context("cleanup"), get_args(Cleanup)) == "daily")


def read_environment(context: Context, stage: Stage) -> tuple[str, str] | None:
    """Returns account and region of a release's stage, or None. Raises `UsageError` for a malformed value."""
    example = "ACCOUNT/REGION, for example 111122223333/eu-west-1"
    if (value := _text(context, CDK_JSON, f"{stage}-environment", ENVIRONMENT, example)) is None:
        return None
    account, _, region = value.partition("/")
    return account, region


def read_release(context: Context) -> ReleaseSource | None:
    """Returns None where cdk.json names no release. Raises `UsageError` for half a source or a malformed one."""
    repository = _text(context, CDK_JSON, "release-repository", REPOSITORY, "OWNER/NAME")
    example = "arn:aws:codeconnections:REGION:ACCOUNT:connection/ID"
    connection = _text(context, CDK_JSON, "release-connection", CONNECTION, example)
    if repository is None and connection is None:
        return None
    if repository is None or connection is None:
        missing = "release-repository" if repository is None else "release-connection"
        raise UsageError(
            f"cdk.json: context.{missing}: is missing. A release pipeline needs release-repository (OWNER/NAME) and "
            "release-connection (the ARN of an AWS CodeConnections connection)."
        )
    return ReleaseSource(
        repository=repository,
        connection_arn=connection,
        branch=str(context("release-branch") or "main"),
        start=_choice("release-start", context("release-start"), get_args(ReleaseStart)),
    )


def _text(context: Context, place: str, key: str, form: re.Pattern[str], example: str) -> str | None:
    """Returns a value of the given form, or None. `place` is where users write the key. Raises `UsageError`."""
    value = context(key)
    if value is not None and not form.fullmatch(str(value)):
        raise UsageError(f"{place.format(key)}: got '{value}'. Write it as {example}.")
    return None if value is None else str(value)


def check_choice(key: str, value: Any, allowed: Sequence[Any]) -> None:
    """Raises `UsageError` that names the option, the value got and the values allowed."""
    if value not in allowed:
        raise UsageError(f"-c {key}: got '{value}'. Allowed: {', '.join(allowed)}.")


def _choice(key: str, value: Any, allowed: tuple[Any, ...]) -> Any:
    """Returns `value`, or the first of `allowed` where the context has none."""
    if value is None:
        return allowed[0]
    check_choice(key, value, allowed)
    return value
