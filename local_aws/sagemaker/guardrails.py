"""Deployment guardrails: alarms watch the new fleet of an update. One in ALARM returns the traffic to the old fleet.

All traffic shifts at once, unlike on AWS, and time runs 60 times faster: a bake of ten minutes takes ten seconds, and
the minutes of an alarm are seconds. Its metric or SetAlarmState turns an alarm on. Only SetAlarmState turns it off.
"""

import operator
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from moto.cloudwatch.models import Alarm

from local_aws.cloudwatch import LocalCloudWatchBackend, metric_key, statistic
from local_aws.permissions.enforced import ServiceRoles

FASTER = 60
READ_EVERY_S = 0.1
PUBLISHED_AFTER_S = 1
"""After this delay the invocations of a second are published: that happens twice a second."""
_BEYOND: Mapping[str, Callable[[float, float], bool]] = {
    "GreaterThanOrEqualToThreshold": operator.ge,
    "GreaterThanThreshold": operator.gt,
    "LessThanOrEqualToThreshold": operator.le,
    "LessThanThreshold": operator.lt,
}


@dataclass(frozen=True, slots=True)
class Guardrails:
    """The DeploymentConfig of an endpoint."""

    config: Mapping[str, Any]
    cloudwatch: LocalCloudWatchBackend

    @property
    def alarm_names(self) -> list[str]:
        return [each["AlarmName"] for each in self.config.get("AutoRollbackConfiguration", {}).get("Alarms", [])]

    @property
    def bake_s(self) -> float:
        """The waits of a step and before the old fleet ends."""
        blue_green, rolling = (self.config.get(f"{kind}UpdatePolicy", {}) for kind in ("BlueGreen", "Rolling"))
        step = blue_green.get("TrafficRoutingConfiguration", rolling).get("WaitIntervalInSeconds", 0)
        return float(step + blue_green.get("TerminationWaitInSeconds", 0)) / FASTER

    def alarms_in(self, state: str | None) -> list[str]:
        """Returns the names of the rollback's alarms that are in a state, or that do not exist if it is None."""
        found = {name: self.cloudwatch.alarms.get(name) for name in self.alarm_names}
        return [name for name, alarm in found.items() if getattr(alarm, "state_value", None) == state]

    def check_roles(self, roles: ServiceRoles | None, role_arns: Sequence[str | None]) -> None:
        """Raises `Unavailable` for a model's role that may not read the alarms."""
        for role_arn in role_arns:
            if roles is not None and role_arn is not None and self.alarm_names:
                roles.check_rollback(role_arn, self.alarm_names)

    def watch(self, ended: Callable[[], bool]) -> list[str]:
        """Returns the alarms that are on, as soon as one is; none at the end of the bake, or when the fleet ended."""
        until = time.monotonic() + self.bake_s
        while True:
            for name in self.alarm_names:
                if (alarm := self.cloudwatch.alarms.get(name)) is not None and self._is_breached(alarm):
                    alarm.update_state("The metric is beyond the threshold.", "{}", "ALARM")
            alarmed = self.alarms_in("ALARM")
            if alarmed or ended() or time.monotonic() >= until:
                return alarmed
            time.sleep(READ_EVERY_S)

    def _is_breached(self, alarm: Alarm) -> bool:
        name, beyond = alarm.extended_statistic or alarm.statistic, _BEYOND.get(alarm.comparison_operator)
        # A composite alarm, an expression and anomaly detection have no such metric.
        if alarm.state_value == "ALARM" or beyond is None or not (alarm.metric_name and alarm.period and name):
            return False
        period = max(alarm.period // FASTER, 1)
        end = int(time.time() - PUBLISHED_AFTER_S) // period * period
        start = end - alarm.evaluation_periods * period
        dimensions = [{"Name": str(each.name), "Value": str(each.value)} for each in alarm.dimensions]
        key = metric_key(alarm.namespace, alarm.metric_name, dimensions)
        found = self.cloudwatch.by_period(key, start, end, period, alarm.unit)
        breached = [
            beyond(statistic(name, found[second]), alarm.threshold)
            if second in found
            else alarm.treat_missing_data == "breaching"
            for second in range(start, end, period)
        ]
        return sum(breached) >= (alarm.datapoints_to_alarm or alarm.evaluation_periods)
