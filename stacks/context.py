"""What the person who deploys decides, as `cdk deploy -c KEY=VALUE`: the stage, a rehearsal's target, a fresh start.

Everything about a workload itself is in its workload.toml; here is only what differs from one deployment of it to
the next.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, get_args

from stacks.errors import RehearsalInProduction, UnknownOption

Stage = Literal["beta", "production"]
UseOfRecommendation = Literal["use", "ignore"]
AutoscalingIs = Literal["on", "off"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Options:
    stage: Stage = "beta"
    """In production a fleet spans zones, and its size was measured on SageMaker."""
    hosting_target: str | None = None
    """Instead of hosting.target, where a workload has such a target: to rehearse where there is no accelerator."""
    recommendation: UseOfRecommendation = "use"
    """"ignore" deploys one instance without autoscaling: a new artifact, to measure it."""
    autoscaling: AutoscalingIs = "on"
    """"off" leaves the fleet as it is. SageMaker refuses another instance type as long as a fleet is autoscaled, and
    CloudFormation lets go of autoscaling last: deploy with "off" first, then the other type."""

    @property
    def in_production(self) -> bool:
        return self.stage == "production"


PRODUCTION = Options(stage="production")


def read_options(context: Callable[[str], Any]) -> Options:
    """`context` is `app.node.try_get_context`. Raises `UnknownOption` or `RehearsalInProduction`."""
    stage = _one_of("stage", context("stage"), get_args(Stage))
    recommendation = _one_of("recommendation", context("recommendation"), get_args(UseOfRecommendation))
    autoscaling = _one_of("autoscaling", context("autoscaling"), get_args(AutoscalingIs))
    target = context("hosting-target")
    for key, value in (("hosting-target", target), ("recommendation", recommendation)):
        if stage == "production" and value not in (None, "use"):
            raise RehearsalInProduction(key, value)
    return Options(
        stage=stage,
        hosting_target=target,
        recommendation=recommendation,
        autoscaling=autoscaling,
    )


def _one_of(key: str, value: Any, allowed: tuple[Any, ...]) -> Any:
    """The first is the default."""
    if value is None:
        return allowed[0]
    if value not in allowed:
        raise UnknownOption(key, value, allowed)
    return value
