"""Target tracking of the local account, minute by minute, on a clock of the test's.

The arithmetic is tested in `tests/inference_recommender/simulate/test_tracking.py`. Target: 100 invocations a minute.
"""

import re

import pytest
from moto.cloudwatch.models import Alarm

from local_aws.scaling.alarms import DIMENSION, NAMESPACE, AlarmState, state_after
from tests.local_aws.scaling.account import CONCURRENCY, RESOURCE, START, Scaled


def test_three_minutes_above_the_target_add_in_proportion() -> None:
    scaled = Scaled()
    assert scaled.pass_minutes(90, 250, 250, 250) == [1, 1, 1, 3]
    assert scaled.state("AlarmHigh") == "ALARM"


def test_the_fifteenth_minute_below_nine_tenths_removes_some() -> None:
    scaled = Scaled(10)
    assert scaled.pass_minutes(95, *[55] * 14) == [10] * 15
    assert scaled.pass_minutes(55) == [6], "5.5 would do; it never removes too much"


def test_a_cooldown_begins_when_the_change_is_complete() -> None:
    scaled = Scaled(1, ScaleOutCooldown=120)
    scaled.instances.updating = True
    assert scaled.pass_minutes(*[200] * 6) == [1] * 6
    scaled.instances.finish()
    scaled.instances.updating = False
    assert scaled.pass_minutes(150, 150) == [2, 2], "complete after minute 5; two minutes of cooldown"
    assert scaled.pass_minutes(150) == [3]
    assert scaled.instances.asked == [2, 3]


def test_of_two_policies_one_is_enough_to_add_and_both_have_to_agree_to_remove() -> None:
    scaled = Scaled(4)
    scaled.put_policy("Requests", CONCURRENCY, target=2.0)

    def both(minutes: int, invocations: float, at_once: float) -> int:
        for _ in range(minutes):
            for second in range(0, 60, 10):
                scaled.put(at_once, START + scaled.minute * 60 + second, "ConcurrentRequestsPerModel")
            scaled.pass_minutes(invocations)
        return scaled.instances.now

    assert both(16, 50, 1.9) == 4, "the requests in flight are not low"
    assert both(1, 50, 3.0) == 6, "three datapoints of ten seconds are above 2"
    assert both(18, 50, 0.5) == 3, "half as many would do for one, a quarter for the other"


@pytest.mark.parametrize(
    ("suspended", "load"), [("DynamicScalingOutSuspended", 500), ("DynamicScalingInSuspended", 10)]
)
def test_what_is_suspended_does_not_happen(suspended: str, load: float) -> None:
    scaled = Scaled(4)
    scaled.register(1, 10, {suspended: True})
    assert scaled.pass_minutes(*[load] * 20)[-1] == 4


def test_a_scheduled_minimum_acts_in_its_minute_whatever_the_cooldowns() -> None:
    scaled = Scaled(3)
    scaled.schedule("Morning", "cron(5 1 ? * MON-FRI *)", {"MinCapacity": 6}, "Europe/Paris")
    assert scaled.pass_minutes(*[95] * 5) == [3, 3, 3, 3, 6], "00:05:02 in UTC"
    (activity,) = scaled.activities()
    assert activity["Cause"] == "scheduled action name Morning was triggered and minimum capacity was set to 6"
    assert scaled.pass_minutes(*[50] * 15)[-1] == 6, "the policy acts within the new bounds"


def test_an_activity_tells_its_cause_and_its_end() -> None:
    scaled = Scaled()
    scaled.instances.updating = True
    scaled.pass_minutes(*[300] * 3)
    (activity,) = scaled.activities()
    assert activity["StatusCode"] == "InProgress"
    assert activity["StatusMessage"] == (
        "Successfully set desired instance count to 3. Waiting for change to be fulfilled by sagemaker."
    )
    cause = rf"monitor alarm TargetTracking-{RESOURCE}-AlarmHigh-[0-9a-f-]{{36}} in state ALARM triggered policy Policy"
    assert re.fullmatch(cause, activity["Cause"])
    scaled.instances.finish()
    scaled.pass_minutes(90)
    (activity,) = scaled.activities()
    assert (activity["StatusCode"], activity["EndTime"]) == ("Successful", START + 190)
    assert activity["StatusMessage"] == (
        "Successfully set desired instance count to 3. Change successfully fulfilled by sagemaker."
    )


def test_a_change_that_fails_is_told_and_tried_again() -> None:
    scaled = Scaled()
    scaled.instances.failed = "no room"
    scaled.pass_minutes(*[300] * 4, 90)
    assert [(each["StatusCode"], each["StatusMessage"]) for each in scaled.activities()] == [
        ("Failed", "Failed to set desired instance count to 3. Reason: no room")
    ] * 2
    scaled.instances.failed = None
    assert scaled.pass_minutes(300, 300, 300)[-1] == 3, "and no cooldown"


def test_an_update_keeps_the_policys_arn_and_replaces_its_alarms() -> None:
    scaled = Scaled()
    (before,) = scaled.service.policies.values()
    arn, names = before.policy_arn, set(scaled.cloudwatch.alarms)
    scaled.put_policy(target=200)
    (after,) = scaled.service.policies.values()
    assert after.policy_arn == arn
    assert [each.threshold for each in scaled.cloudwatch.alarms.values()] == [200, 180]
    assert names.isdisjoint(scaled.cloudwatch.alarms)


def test_a_deregistered_target_takes_its_policies_alarms_and_schedules_with_it() -> None:
    scaled = Scaled()
    scaled.schedule("Morning", "rate(1 day)", {"MinCapacity": 2})
    scaled.service.deregister_scalable_target(NAMESPACE, RESOURCE, DIMENSION)
    assert (scaled.service.policies, scaled.cloudwatch.alarms, scaled.service.scheduled_actions) == ({}, {}, [])
    assert scaled.pass_minutes(*[900] * 5) == [1] * 5


@pytest.mark.parametrize(("low", "high", "then"), [(3, 9, 3), (1, 2, 2), (1, 9, 2)])
def test_registering_brings_the_instances_within_the_bounds(low: int, high: int, then: int) -> None:
    scaled = Scaled(2)
    scaled.register(low, high)
    assert scaled.instances.now == then


def high_alarm(state: AlarmState) -> Alarm:
    """Returns the alarm of three datapoints above 100."""
    high, _ = Scaled().cloudwatch.alarms.values()
    high.state_value = state
    return high


@pytest.mark.parametrize(
    ("datapoints", "state"),
    [
        ("0-X-X", "OK"),
        ("0----", "OK"),
        ("-----", "INSUFFICIENT_DATA"),
        ("0XX-X", "ALARM"),
        ("--X--", "ALARM"),
        ("00XXX", "ALARM"),
        ("XXXX0", "OK"),
        ("-X-0-", "OK"),
    ],
)
def test_the_state_after_five_datapoints_of_an_alarm_of_three(datapoints: str, state: AlarmState) -> None:
    values = [{"0": 50.0, "X": 150.0, "-": None}[each] for each in datapoints]
    assert state_after(high_alarm("OK"), values) == state


@pytest.mark.parametrize("now", ["OK", "INSUFFICIENT_DATA"])
def test_datapoints_that_are_beyond_the_threshold_and_too_young_change_nothing(now: AlarmState) -> None:
    assert state_after(high_alarm(now), [None, None, None, 150.0, 150.0]) == now
