"""Evaluates the alarms of target tracking on the account's own metrics, when a period is over.

While an alarm is in ALARM, its action is invoked once a minute:
https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/AlarmThatSendsEmail.html
"""

import logging
from dataclasses import dataclass

from moto.cloudwatch.models import Alarm

from local_aws.cloudwatch import LocalCloudWatchBackend, metric_key
from local_aws.distributions import statistic
from local_aws.scaling.alarms import Condition, State
from local_aws.scaling.target_tracking import Metric

PUBLISHED_AFTER_S = 2.0
"""So long after a period's end its last invocations are surely published: that is done twice a second."""
ACTION_EVERY_S = 60
log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Seen:
    evaluated_s: float = 0.0
    """The end of the last period that the alarm was evaluated for."""
    invoked_s: float = 0.0
    """The same of the last time that its action was invoked."""
    value: float | None = None
    """The latest datapoint."""


class AlarmWatch:
    """Evaluates alarms, and remembers what it saw of each."""

    def __init__(self, cloudwatch: LocalCloudWatchBackend) -> None:
        self._cloudwatch = cloudwatch
        self._seen: dict[str, _Seen] = {}

    def invokes(self, alarm: Alarm, metric: Metric, condition: Condition, now: float) -> bool:
        """Evaluates the alarm if a period has ended since the last call. Tells whether its action is invoked."""
        seen = self._seen.setdefault(alarm.name, _Seen())
        end = (now - PUBLISHED_AFTER_S) // metric.period_s * metric.period_s
        if end <= seen.evaluated_s:
            return False
        seen.evaluated_s = end
        values = self._values(metric, condition.range_periods, end)
        seen.value = next((each for each in reversed(values) if each is not None), None)
        before: State = alarm.state_value  # type: ignore[assignment]  # moto calls it a str
        state = condition.state(values, before)
        if state != before:
            alarm.update_state(condition.told(values, state), "{}", state)
            log.info(f"alarm {alarm.name} is {state}")
        if state != "ALARM" or (before == "ALARM" and end - seen.invoked_s < ACTION_EVERY_S):
            return False
        seen.invoked_s = end
        return alarm.actions_enabled

    def latest(self, alarm: Alarm) -> float | None:
        """Returns the latest datapoint that the alarm was evaluated on."""
        return self._seen[alarm.name].value

    def keep_only(self, names: set[str]) -> None:
        """Forgets all alarms but those of `names`."""
        self._seen = {name: seen for name, seen in self._seen.items() if name in names}

    def _values(self, metric: Metric, periods: int, end: float) -> list[float | None]:
        """Returns the datapoints of the periods before `end`, oldest first."""
        key = metric_key(
            metric.namespace, metric.name, [{"Name": name, "Value": value} for name, value in metric.dimensions]
        )
        start = int(end) - periods * metric.period_s
        found = self._cloudwatch.by_period(key, start, end, metric.period_s, metric.unit)
        seconds = range(start, int(end), metric.period_s)
        return [statistic(metric.statistic, found[each]) if each in found else None for each in seconds]
