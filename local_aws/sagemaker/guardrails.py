"""Deployment guardrails: alarms watch the new fleet of an update. One in ALARM returns the traffic to the old fleet.

Time runs 60 times faster: a bake of ten minutes takes ten seconds, and the minutes of an alarm are seconds. Its metric
or SetAlarmState turns an alarm on. Only SetAlarmState turns it off. A rolling update shifts the traffic in batches, but
unlike on AWS, both fleets run in full.
"""

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from moto.cloudwatch.models import Alarm

from local_aws.cloudwatch import COMPARISONS, alarm_key, statistic

FASTER = 60
INTERVAL_S, PUBLISHED_AFTER_S = 0.1, 1


@dataclass(frozen=True, slots=True)
class Guardrails:
    """The DeploymentConfig of an endpoint."""

    config: Mapping[str, Any]
    cloudwatch: Any

    @property
    def alarms(self) -> dict[str, Alarm | None]:
        """The alarms of the rollback by name; None for one that does not exist."""
        named = self.config.get("AutoRollbackConfiguration", {}).get("Alarms", [])
        return {each["AlarmName"]: self.cloudwatch.alarms.get(each["AlarmName"]) for each in named}

    def steps(self, instances: int) -> list[tuple[float, float]]:
        """Returns each share of the traffic of a new fleet with `instances`, and the seconds of its bake."""
        blue_green, rolling = (self.config.get(f"{kind}UpdatePolicy", {}) for kind in ("BlueGreen", "Rolling"))
        routing = blue_green.get("TrafficRoutingConfiguration", rolling)
        sizes = (routing.get(name) for name in ("CanarySize", "LinearStepSize", "MaximumBatchSize"))
        size: Mapping[str, Any] = next(filter(None, sizes), {"Type": "CAPACITY_PERCENT", "Value": 100})
        share = min(size["Value"] / (100 if size["Type"] == "CAPACITY_PERCENT" else instances), 1.0)
        count = 2 if routing.get("Type") == "CANARY" else math.ceil(1 / share - 1e-9)
        bake_s = routing.get("WaitIntervalInSeconds", 0) / FASTER
        last_s = bake_s + blue_green.get("TerminationWaitInSeconds", 0) / FASTER
        return [*((share * number, bake_s) for number in range(1, count)), (1.0, last_s)]

    def watch(self, bake_s: float, ended: Callable[[], bool]) -> list[str]:
        """Returns the alarms that are on, as soon as one is; none at the end of the bake, or when the fleet ended."""
        until = time.monotonic() + bake_s
        while True:
            for alarm in filter(None, self.alarms.values()):
                if alarm.state_value != "ALARM" and self._is_breached(alarm):
                    alarm.update_state("The metric is beyond the threshold.", "{}", "ALARM")
            alarmed = [name for name, alarm in self.alarms.items() if alarm and alarm.state_value == "ALARM"]
            if alarmed or ended() or time.monotonic() >= until:
                return alarmed
            time.sleep(INTERVAL_S)

    def _is_breached(self, alarm: Alarm) -> bool:
        """Returns False for an alarm without a metric of its own: of other alarms, or of an expression."""
        name, beyond = alarm.extended_statistic or alarm.statistic, COMPARISONS.get(alarm.comparison_operator)
        if not (beyond and name and alarm.metric_name and alarm.period):
            return False
        period = max(alarm.period // FASTER, 1)
        end = int(time.time() - PUBLISHED_AFTER_S) // period * period
        start = end - alarm.evaluation_periods * period
        found = self.cloudwatch.by_period(alarm_key(alarm), start, end, period, alarm.unit).values()
        missing = alarm.evaluation_periods - len(found) if alarm.treat_missing_data == "breaching" else 0
        breached = missing + sum(beyond(statistic(name, data), alarm.threshold) for data in found)
        return bool(breached >= (alarm.datapoints_to_alarm or alarm.evaluation_periods))
