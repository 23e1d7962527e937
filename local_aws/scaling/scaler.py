"""Acts on scaling policies and scheduled actions: changes counts for them, and ends the activities that follow.

`Scaler.tick(now)` does everything that is due at a Unix time. A thread calls it each second. Policies of one target
(https://docs.aws.amazon.com/autoscaling/application/userguide/target-tracking-scaling-policy-overview.html):

- an endpoint that is Updating rejects changes; the alarm's action repeats a minute later;
- one policy is enough to add instances; the largest capacity wins;
- all policies that may remove instances must agree, and the largest capacity wins;
- bounds, cooldowns and suspensions apply. Scheduled actions set bounds and have no cooldown.
"""

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from moto.applicationautoscaling.models import FakeApplicationAutoscalingPolicy, FakeScalableTarget, FakeScheduledAction
from moto.cloudwatch.models import Alarm
from moto.core.exceptions import ServiceException

from inference_recommender.simulate.tracking import Cooldowns, ScalingSchedule, instances_for
from local_aws.cloudwatch import LocalCloudWatchBackend
from local_aws.scaling.alarms import DIMENSION, NAMESPACE, AlarmWatch
from local_aws.scaling.service import LocalScalingBackend, ScalingActivity

EVERY_S = 1.0
DEFAULT_COOLDOWN_S = 300
log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Policy:
    policy: FakeApplicationAutoscalingPolicy
    tracking: Mapping[str, Any]
    """Its TargetTrackingScalingPolicyConfiguration."""
    high_invoked: bool
    low_invoked: bool

    @property
    def high(self) -> Alarm:
        return self.policy.alarms[0]

    @property
    def low(self) -> Alarm:
        return self.policy.alarms[1]

    def cooldown_s(self, name: str) -> float:
        return float(self.tracking.get(name, DEFAULT_COOLDOWN_S))

    def cause(self, alarm: Alarm) -> str:
        return f"monitor alarm {alarm.name} in state ALARM triggered policy {self.policy.policy_name}"


class Scaler(threading.Thread):
    """Scales the variants of one region. `close` ends the thread of `start`."""

    def __init__(
        self, backend: LocalScalingBackend, cloudwatch: LocalCloudWatchBackend, now: Callable[[], float] = time.time
    ) -> None:
        super().__init__(name="scaler", daemon=True)
        self._backend = backend
        self._watch = AlarmWatch(cloudwatch)
        self._now = now
        self._minute = _minute(now())
        self._due: dict[str, str] = {}
        """Target → the cause of new bounds that the endpoint has not applied yet."""
        self._closing = threading.Event()

    def close(self) -> None:
        self._closing.set()
        if self.is_alive():
            self.join()

    def tick(self, now: float) -> None:
        """Does everything that is due at `now`, which never decreases."""
        with self._backend.lock:
            self._end_activities(now)
            self._run_schedules(now)
            targets = [each for each in self._targets() if each.service_namespace == NAMESPACE]
            policies = {each.resource_id: self._policies(each, now) for each in targets}
            for target in targets:
                try:
                    self._scale(target, policies[target.resource_id], now)
                except ServiceException as error:
                    log.info(f"{target.resource_id} could not be scaled: {error.message}")

    def run(self) -> None:
        while not self._closing.wait(EVERY_S):
            try:
                self.tick(self._now())
            except Exception:  # every error: scaling of the other targets must continue
                log.exception("scaling failed; it continues")

    def _targets(self) -> list[FakeScalableTarget]:
        return list(self._backend.targets.get(DIMENSION, {}).values())

    def _cooldowns(self, resource_id: str) -> Cooldowns:
        return self._backend.cooldowns.setdefault(resource_id, Cooldowns())

    def _end_activities(self, now: float) -> None:
        capacity = self._backend.capacity
        for activity in [each for each in self._backend.activities if each.ended_at is None]:
            problem = capacity.problem(activity.resource_id)
            if capacity.count(activity.resource_id) is None and problem is None:
                continue
            activity.ended_at, activity.reason = now, problem
            if problem is None and activity.cooldown_s:
                cooldowns = self._cooldowns(activity.resource_id)
                name = "out_until_s" if activity.added > 0 else "in_until_s"
                setattr(cooldowns, name, now + activity.cooldown_s)
            log.info(f"{activity.resource_id}: {activity.message}")

    def _run_schedules(self, now: float) -> None:
        while self._minute < _minute(now):
            self._minute += timedelta(minutes=1)
            for action in list(self._backend.scheduled_actions):
                if _runs(action, self._minute):
                    self._set_bounds(action)

    def _set_bounds(self, action: FakeScheduledAction) -> None:
        target = next((each for each in self._targets() if each.resource_id == action.resource_id), None)
        if target is None or _suspended(target, "ScheduledScalingSuspended"):
            return
        bounds: dict[str, int] = action.scalable_target_action or {}  # type: ignore[assignment]  # moto calls it a str
        target.update(bounds.get("MinCapacity"), bounds.get("MaxCapacity"), None)  # type: ignore[arg-type]  # None keeps it
        sides = {"minimum": "MinCapacity", "maximum": "MaxCapacity"}
        changes = [f"{side} capacity was set to {bounds[name]}" for side, name in sides.items() if name in bounds]
        self._due[target.resource_id] = " and ".join(
            [f"scheduled action name {action.scheduled_action_name} was triggered", *changes]
        )

    def _policies(self, target: FakeScalableTarget, now: float) -> list[_Policy]:
        found = []
        for policy in self._backend.policies_of(target.resource_id, DIMENSION):
            tracking = policy.target_tracking_scaling_policy_configuration
            if len(policy.alarms) == 2 and tracking is not None:
                high, low = (self._watch.invokes(alarm, now) for alarm in policy.alarms)
                found.append(_Policy(policy=policy, tracking=tracking, high_invoked=high, low_invoked=low))
        return found

    def _scale(self, target: FakeScalableTarget, policies: list[_Policy], now: float) -> None:
        instances = self._backend.capacity.count(target.resource_id)
        if instances is None:
            return
        if (cause := self._due.pop(target.resource_id, None)) is not None and self._change(
            target, instances, instances, cause, now
        ):
            return
        out = [each for each in policies if each.high_invoked]
        if out and not _suspended(target, "DynamicScalingOutSuspended"):
            self._scale_out(target, out, instances, now)
        elif not out and not _suspended(target, "DynamicScalingInSuspended"):
            self._scale_in(
                target, [each for each in policies if not each.tracking.get("DisableScaleIn")], instances, now
            )

    def _scale_out(self, target: FakeScalableTarget, policies: list[_Policy], instances: int, now: float) -> None:
        cooldowns = self._cooldowns(target.resource_id)
        before = cooldowns.instances_before(now, instances)
        desired, largest = self._largest([(each, each.high) for each in policies], before)
        if desired > instances:
            cause, cooldown_s = largest.cause(largest.high), largest.cooldown_s("ScaleOutCooldown")
            if self._change(target, instances, desired, cause, now, cooldown_s):
                cooldowns.start_out(self._backend.within_bounds(target, desired) - instances)

    def _scale_in(self, target: FakeScalableTarget, policies: list[_Policy], instances: int, now: float) -> None:
        invoked = next((each for each in policies if each.low_invoked), None)
        if invoked is None or any(each.low.state_value != "ALARM" for each in policies):
            return
        desired, largest = self._largest([(each, each.low) for each in policies], instances)
        if desired < instances and self._cooldowns(target.resource_id).allow_in(now):
            cause, cooldown_s = largest.cause(largest.low), largest.cooldown_s("ScaleInCooldown")
            self._change(target, instances, desired, cause, now, cooldown_s)

    def _largest(self, alarms: list[tuple[_Policy, Alarm]], instances: int) -> tuple[int, _Policy]:
        desired = []
        for policy, alarm in alarms:
            value = self._watch.latest(alarm)
            assert value is not None, "an alarm in ALARM has a datapoint"
            desired.append((instances_for(instances, value, policy.tracking["TargetValue"]), policy))
        return max(desired, key=lambda each: each[0])

    def _change(
        self, target: FakeScalableTarget, present: int, desired: int, cause: str, now: float, cooldown_s: float = 0.0
    ) -> bool:
        count = self._backend.within_bounds(target, desired)
        if count == present:
            return False
        self._backend.capacity.set_count(target.resource_id, count)
        activity = ScalingActivity(
            resource_id=target.resource_id,
            count=count,
            cause=cause,
            started_at=now,
            added=count - present,
            cooldown_s=cooldown_s,
        )
        self._backend.activities.appendleft(activity)
        log.info(f"{target.resource_id}: {present} to {count} instances: {cause}")
        return True


def _minute(now: float) -> datetime:
    return datetime.fromtimestamp(now // 60 * 60, UTC)


def _runs(action: FakeScheduledAction, minute: datetime) -> bool:
    begins, ends = (_moment(each) for each in (action.start_time, action.end_time))
    if (begins is not None and minute < begins) or (ends is not None and minute > ends):
        return False
    since = begins or datetime.fromtimestamp(action.creation_time, UTC)
    return ScalingSchedule.parse(action.schedule, action.timezone).runs_in(minute, since)


def _moment(value: object) -> datetime | None:
    if value is None or value == "":
        return None
    return datetime.fromtimestamp(value, UTC) if isinstance(value, int | float) else datetime.fromisoformat(str(value))


def _suspended(target: FakeScalableTarget, what: str) -> bool:
    state: dict[str, bool] = target.suspended_state or {}  # type: ignore[assignment]  # moto calls it a str
    return bool(state.get(what))
