"""Deployment guardrails: alarms watch the new fleet of an update. One in ALARM returns the traffic to the old fleet.

All traffic shifts at once, unlike on AWS, and time runs 60 times faster: a bake of ten minutes takes ten seconds, and
the minutes of an alarm are seconds. Its metric or SetAlarmState turns an alarm on. Only SetAlarmState turns it off.
"""

import operator
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from moto.cloudwatch.models import Alarm

from local_aws.cloudwatch import LocalCloudWatchBackend, metric_key, statistic

FASTER = 60
READ_EVERY_S = 0.1
PUBLISHED_AFTER_S = 1
_BEYOND = {"GreaterThanOrEqualTo": operator.ge, "GreaterThan": operator.gt, "LessThan": operator.lt}


@dataclass(frozen=True, slots=True)
class Guardrails:
    """The DeploymentConfig of an endpoint."""

    config: Mapping[str, Any]
    cloudwatch: LocalCloudWatchBackend

    @property
    def alarm_names(self) -> list[str]:
        return [each["AlarmName"] for each in self.config.get("AutoRollbackConfiguration", {}).get("Alarms", [])]

    def alarms_in(self, state: str | None) -> list[str]:
        """Returns the names of the rollback's alarms that are in a state, or that do not exist if it is None."""
        found = {name: self.cloudwatch.alarms.get(name) for name in self.alarm_names}
        return [name for name, alarm in found.items() if getattr(alarm, "state_value", None) == state]

    def watch(self, ended: Callable[[], bool]) -> list[str]:
        """Returns the alarms that are on, as soon as one is; none at the end of the bake, or when the fleet ended."""
        blue_green, rolling = (self.config.get(f"{kind}UpdatePolicy", {}) for kind in ("BlueGreen", "Rolling"))
        step = blue_green.get("TrafficRoutingConfiguration", rolling).get("WaitIntervalInSeconds", 0)
        until = time.monotonic() + (step + blue_green.get("TerminationWaitInSeconds", 0)) / FASTER
        while True:
            for alarm in [self.cloudwatch.alarms[name] for name in self.alarm_names if name in self.cloudwatch.alarms]:
                if alarm.state_value != "ALARM" and self._is_breached(alarm):
                    alarm.update_state("The metric is beyond the threshold.", "{}", "ALARM")
            if (alarmed := self.alarms_in("ALARM")) or ended() or time.monotonic() >= until:
                return alarmed
            time.sleep(READ_EVERY_S)

    def _is_breached(self, alarm: Alarm) -> bool:
        """Returns False for an alarm without a metric of its own: of other alarms, or of an expression."""
        name, beyond = alarm.extended_statistic or alarm.statistic, _BEYOND.get(alarm.comparison_operator[:-9])
        if not (beyond and name and alarm.metric_name and alarm.period):
            return False
        period = max(alarm.period // FASTER, 1)
        end = int(time.time() - PUBLISHED_AFTER_S) // period * period
        start = end - alarm.evaluation_periods * period
        dimensions = [{"Name": str(each.name), "Value": str(each.value)} for each in alarm.dimensions]
        key = metric_key(alarm.namespace, alarm.metric_name, dimensions)
        found = self.cloudwatch.by_period(key, start, end, period, alarm.unit).values()
        missing = alarm.evaluation_periods - len(found) if alarm.treat_missing_data == "breaching" else 0
        breached = missing + sum(beyond(statistic(name, data), alarm.threshold) for data in found)
        return bool(breached >= (alarm.datapoints_to_alarm or alarm.evaluation_periods))
