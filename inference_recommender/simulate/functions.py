"""Policies that are functions: step scaling, predictive scaling, the growth of earlier days, and a user's own. Pure."""

import math
import runpy
import traceback
from functools import cache
from pathlib import Path

import numpy as np

from inference_recommender.capacity.statistics import Floats
from inference_recommender.simulate.policy import Observed, PolicyFunction
from inference_recommender.simulate.tracking import DAY_MINUTES, IN_MINUTES, MINUTE_S, SCALE_IN_BELOW, instances_for
from workloads import UsageError

HOUR = 60
STEPS = ((1.5, 0.6), (1.25, 0.3), (1.0, 0.1))
"""Shares of the target value above which step scaling adds these shares of the instances."""
SCALE_IN_STEP = 0.1
FORECAST_DAYS = 14
"""Predictive scaling learns from as many days."""
GROWTH_DAYS, GROWTH_WINDOW = 7, 12
"""The growth of as many days counts, and of as many minutes before and after this one."""
TREND_MINUTES, TREND_SHARE = 5, 0.75
"""The load is expected to go on as in the last minutes, for that share of the time until instances serve."""
LEAST_MARGIN, ADDED_MARGIN = 0.06, 0.14
"""Logarithms of the room above the expected load: below the first one the fleet grows, up to the second one."""


def step_scaling(seen: Observed) -> int:
    """Adds a share of the instances by how far one datapoint is above the target, as Application Auto Scaling does.

    It removes a tenth after fifteen minutes below 90 % of the target. Rounding and the least change of one instance:
    https://docs.aws.amazon.com/autoscaling/application/userguide/step-scaling-policy-overview.html
    """
    loads = seen.invocations[-IN_MINUTES:] / (max(seen.serving, 1) * seen.target)
    for above, share in STEPS:
        if loads[-1] > above:
            return seen.desired + max(int(seen.desired * share), 1)
    if len(loads) == IN_MINUTES and loads.max() < SCALE_IN_BELOW:
        return seen.desired - max(int(seen.desired * SCALE_IN_STEP), 1)
    return seen.desired


def predictive_scaling(seen: Observed) -> int:
    """Has instances for the highest load that the hour reached on the mean of earlier days, before the hour begins.

    Beyond the forecast it follows the newest datapoint. AWS offers predictive scaling for EC2 and ECS and does not
    document its forecast: https://docs.aws.amazon.com/autoscaling/application/userguide/aasp-create-predictive-scaling-policy.html
    """
    starts, delay = math.ceil(seen.start_s / MINUTE_S), math.ceil(seen.delay_s / MINUTE_S)
    hour = len(seen.invocations) + delay + starts - (seen.time.minute + starts) % HOUR
    peaks = [
        float(seen.invocations[at : at + HOUR].max())
        for at in (hour - day * DAY_MINUTES for day in range(1, FORECAST_DAYS + 1))
        if at >= 0
    ]
    load = max(float(np.mean(peaks)) if peaks else 0.0, float(seen.invocations[-1]))
    return instances_for(1, load, seen.target)


def growth_forecast(seen: Observed) -> int:
    """Has instances for the load that is expected until the next change can serve.

    The load grows as much as it did around this time on any earlier day, or as in the last minutes if that is more. If
    the fleet cannot hold the load of the minute in which an instance requested now serves, it grows until it can hold
    the load until the request after this one serves. It shrinks to that size, too.
    """
    loads = np.maximum(seen.invocations[-(GROWTH_DAYS + 1) * DAY_MINUTES :], 1.0)
    if len(loads) <= TREND_MINUTES + 1:
        return seen.desired
    loads = (loads[1:] + loads[:-1]) / 2
    start = math.ceil(seen.start_s / MINUTE_S)
    first = start + math.ceil(seen.delay_s / MINUTE_S) + 1
    trend = math.log(loads[-1] / loads[-1 - TREND_MINUTES]) / TREND_MINUTES * TREND_SHARE
    least, most = (
        instances_for(
            1,
            loads[-1] * math.exp(max(_growth_of_earlier_days(loads, first, last), trend * (last - 1)) + margin),
            seen.capacity,
        )
        for last, margin in ((first + 2, LEAST_MARGIN), (first + start + 3, ADDED_MARGIN))
    )
    return seen.desired if least <= seen.desired <= most else max(least, most)


def _growth_of_earlier_days(loads: Floats, first: int, last: int) -> float:
    """Returns the logarithm of the highest growth from a minute to one of the minutes `first` to `last` after it."""
    now = len(loads) - 1
    around = np.arange(-GROWTH_WINDOW, GROWTH_WINDOW + 1, 4)
    at = (now - DAY_MINUTES * np.arange(1, GROWTH_DAYS + 1)[:, None] + around).ravel()
    at = at[(at >= 0) & (at + last <= now)]
    if not len(at):
        return 0.0
    peaks = loads[at[:, None] + np.arange(first, last + 1)].max(axis=1)
    return math.log((peaks / loads[at]).max())


BUILT_IN = {"step": step_scaling, "predictive": predictive_scaling, "growth": growth_forecast}


@cache
def policy_function(name: str) -> PolicyFunction:
    """Returns a built-in function, or NAME of FILE.py. Raises `UsageError`."""
    if name in BUILT_IN:
        return BUILT_IN[name]
    path, _, attribute = name.rpartition(":")
    if not path.endswith(".py"):
        raise UsageError(f"--policy: got '{name}'. Give {', '.join(BUILT_IN)} or FILE.py:FUNCTION.")
    if not Path(path).is_file():
        raise UsageError(f"--policy: {path} does not exist.")
    try:
        function: PolicyFunction = runpy.run_path(path)[attribute]
    except Exception as error:
        raise UsageError(f"--policy: {name} cannot be loaded: {type(error).__name__}: {error}.") from error
    return function


def ask(name: str, function: PolicyFunction, seen: Observed) -> int:
    """Returns the instances that the function wants. Raises `UsageError` if it fails or returns something else."""
    try:
        desired = function(seen)
    except Exception as error:
        line = traceback.extract_tb(error.__traceback__)[-1].lineno
        raise UsageError(
            f"--policy: {name} failed for {seen.time:%Y-%m-%d %H:%M} UTC: line {line}: {type(error).__name__}: {error}."
        ) from error
    if not isinstance(desired, int) or desired < 0:
        raise UsageError(
            f"--policy: {name} returned {desired!r} for {seen.time:%Y-%m-%d %H:%M} UTC. Return a whole number of "
            "instances, 0 or more."
        )
    return desired
