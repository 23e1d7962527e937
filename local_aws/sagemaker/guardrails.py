"""The deployment guardrails of an endpoint: what of them can be kept on one machine, and what cannot.

Shifting traffic in steps and watching alarms while it shifts needs two fleets under live load. Here the new Triton is
started beside the old one and takes over when it answers; the alarms of the automatic rollback must exist, and none of
them may be in ALARM at that moment, or the old one stays. The waits are left out, and the account's log says so.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from moto.cloudwatch.models import CloudWatchBackend


@dataclass(frozen=True, slots=True)
class Guardrails:
    config: Mapping[str, Any]
    """DeploymentConfig, as the API has it."""
    cloudwatch: CloudWatchBackend

    @property
    def alarm_names(self) -> list[str]:
        alarms = self.config.get("AutoRollbackConfiguration", {}).get("Alarms", [])
        return [alarm["AlarmName"] for alarm in alarms]

    def missing(self) -> list[str]:
        return [name for name in self.alarm_names if name not in self.cloudwatch.alarms]

    def alarmed(self) -> list[str]:
        known = self.cloudwatch.alarms
        return [name for name in self.alarm_names if name in known and known[name].state_value == "ALARM"]

    def describe(self) -> str:
        """How AWS would shift the traffic, in words."""
        routing = self.config.get("BlueGreenUpdatePolicy", {}).get("TrafficRoutingConfiguration", {})
        kind = str(routing.get("Type", "ROLLING" if "RollingUpdatePolicy" in self.config else "ALL_AT_ONCE"))
        size = routing.get("CanarySize") or routing.get("LinearStepSize")
        share = f" by {size['Value']}{' %' if size['Type'] == 'CAPACITY_PERCENT' else ' instance(s)'}" if size else ""
        return f"{kind.lower().replace('_', ' ')}{share}"
