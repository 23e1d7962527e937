"""Target tracking, calculated for small loads: each case names AWS's page and the expected minutes.

[TT] https://docs.aws.amazon.com/autoscaling/application/userguide/target-tracking-scaling-policy-overview.html
[SS] https://docs.aws.amazon.com/autoscaling/application/userguide/step-scaling-policy-overview.html
[SC] https://docs.aws.amazon.com/autoscaling/application/userguide/application-auto-scaling-scheduled-scaling.html
[CW] https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/AlarmThatSendsEmail.html
[API] https://docs.aws.amazon.com/autoscaling/application/APIReference/API_TargetTrackingScalingPolicyConfiguration.html
[SM] https://docs.aws.amazon.com/sagemaker/latest/APIReference/API_UpdateEndpointWeightsAndCapacities.html
[ECS] https://docs.aws.amazon.com/AmazonECS/latest/developerguide/cluster-auto-scaling.html
[AZ] https://docs.aws.amazon.com/sagemaker/latest/dg/best-practices-deployment.html
[IN] https://docs.aws.amazon.com/sagemaker/latest/dg/monitoring-cloudwatch.html
[NT] https://docs.aws.amazon.com/sagemaker/latest/dg/endpoint-auto-scaling-prerequisites.html

The target is 100 invocations per minute and instance. An instance serves three minutes after it is asked for. The load
of minute k is known when it is over; a change that it causes is seen in minute k + 1.
"""

import re
from datetime import UTC, datetime
from typing import Any

import pytest

from inference_recommender.simulate.policy import FIRST_MONDAY, ZoneLoss
from inference_recommender.simulate.simulation import FleetCapacity, scheduled
from inference_recommender.simulate.tracking import ScalingSchedule, TrackingAlarms
from tests.builders import message_of
from tests.inference_recommender.simulate.service import course, policy, timing
from workloads import UsageError
from workloads.hosting import ScheduledMinimum


def test_a_scale_out_waits_for_three_minutes_above_the_target() -> None:
    """[TT]: the alarms that the service makes for a policy have three datapoints of a minute.

    One instance has 150 a minute from minute 2 on. Minutes 2, 3, 4 are above 100: in minute 5, ceil(150 / 100) = 2 are
    wanted. Two minutes above the target, as in minutes 0 and 1 of the second load, ask for nothing.
    """
    assert course([90, 90, *[150] * 6])["desired"] == [1, 1, 1, 1, 1, 2, 2, 2]
    assert course([150, 150, 90, 150, 150, 90, 90])["desired"][2:] == [2] * 5  # it begins with two, for 150 a minute


def test_a_new_instance_serves_when_it_is_provisioned_and_its_model_is_loaded() -> None:
    """[SM]: the endpoint is Updating, then InService. Asked for in minute 5, it serves in minute 8."""
    found = course([90, 90, *[150] * 8])
    assert found["serving"] == [1, 1, 1, 1, 1, 1, 1, 1, 2, 2]
    assert found["paid"] == [1, 1, 1, 1, 1, 2, 2, 2, 2, 2]


@pytest.mark.parametrize(("starts_s", "counted"), [(20, 3), (40, 1)])
def test_an_instance_that_serves_for_most_of_a_minute_counts_in_its_metric(starts_s: int, counted: int) -> None:
    """[IN]: 1 / (instances that are active at the time of the request) is sent with each request.

    Asked for at the end of minute 3, two more serve 20 s into minute 4, and most requests of minute 4 are sent to
    three: its metric is 100 for each, and no more are asked for. Where they take 40 s, most requests find one.
    """
    found = course([90, 250, 250, 250, 300, 300], timing=timing(provisioning_s=0, model_load_s=starts_s))
    assert (found["desired"][4], found["serving"][4]) == (3, counted)


@pytest.mark.parametrize(
    ("load", "bounds", "last"),
    [
        pytest.param([180, *[1000] * 4], {}, 10, id="[TT] proportional: 2 * 500 / 100"),
        pytest.param([400, *[440] * 4], {}, 5, id="[TT] a fraction of an instance is rounded up: 4.4"),
        pytest.param([300, *[300] * 10], {}, 3, id="[TT] exactly the target adds nothing"),
        pytest.param([1000, *[910] * 30], {}, 10, id="[TT] above nine tenths of the target nothing is removed"),
        pytest.param([200, *[900] * 4], {"max_capacity": 6}, 6, id="[TT] the maximum: 9 are desired"),
        pytest.param([1000, *[50] * 20], {"min_capacity": 3}, 3, id="[TT] the minimum: 1 would do"),
        pytest.param([1000, *[10] * 40], {"scale_in": False}, 10, id="[API] DisableScaleIn"),
        pytest.param([1000, *[5] * 16], {}, 1, id="[NT] little traffic removes instances"),
        pytest.param([1000, *[0] * 40], {}, 10, id="[NT] without traffic there is no metric, so none is removed"),
    ],
)
def test_the_desired_instances_follow_the_metric_within_the_bounds(
    load: list[int], bounds: dict[str, Any], last: int
) -> None:
    assert course(load, policy(**bounds))["desired"][-1] == last


def test_a_scale_in_waits_for_fifteen_minutes_below_nine_tenths() -> None:
    """[TT]: capacity goes only when the metric is far enough below the target, usually more than 10 %.

    10 instances have 550 a minute from minute 1 on, 55 each, below 90. Minutes 1 to 15 are fifteen: in minute 16,
    ceil(5.5) = 6 are wanted, since it never removes too much.
    """
    found = course([1000, *[550] * 17])["desired"]
    assert found[:16] == [10] * 16
    assert found[16:] == [6, 6]


def test_the_cooldown_of_a_scale_out_begins_when_it_is_complete() -> None:
    """[API]: seconds to wait for a previous scale-out to take effect; [SS]: it begins after a successful scale-out.

    Minutes 1 to 3 have 300: in minute 4, 3 are wanted, which serve in minute 7, when 300 s of cooldown begin: until
    minute 12. The load is 310 from minute 7 on, so from minute 10 on the alarm asks for a fourth each minute; the
    action that is heard is the one at the end of minute 11.
    """
    found = course([100, *[300] * 6, *[310] * 8])["desired"]
    assert found == [1, 1, 1, 1, 3, 3, 3, 3, 3, 3, 3, 3, 4, 4, 4]


def test_within_the_cooldown_only_a_larger_scale_out_adds_its_difference() -> None:
    """[SS]: two were added; an alarm that asks for three within the cooldown adds one, and one that asks for two none.

    Capacity was 10 when 12 became desired, and the datapoint was averaged over those 10.
    """
    capacity = FleetCapacity(policy(), 10)
    assert capacity.scale_out(0, 12, 10) == 2
    capacity.cooldowns.out_until_s = 300
    assert capacity.scale_out(60, 12, 10) == 0
    assert capacity.scale_out(60, 13, 10) == 1
    assert capacity.scale_out(60, 14, 12) == 0, "two more than the twelve that serve by then are no larger scale-out"
    assert capacity.scale_out(300, 14, 12) == 1


def test_a_scale_in_waits_for_the_cooldown_of_the_one_before() -> None:
    """[API]: seconds after a scale-in before another can start.

    Fifteen minutes below the target take 10 instances to 8 in minute 16; a minute later they are gone, and 1200 s of
    cooldown end with minute 36. The load falls further in minute 17; minutes 17 to 31 are fifteen, but the scale-in
    waits until the cooldown is over.
    """
    found = course([1000, *[800] * 16, *[300] * 25], policy(scale_in_cooldown_s=1200))["desired"]
    assert found[15:18] == [10, 8, 8]
    assert found[36:38] == [8, 3]


def test_a_scale_out_does_not_wait_for_the_cooldown_of_a_scale_in() -> None:
    """[TT]: another alarm's scale-out acts at once during a scale-in's cooldown, which then ends."""
    capacity = FleetCapacity(policy(), 10)
    assert capacity.scale_in(0, 6) == 4
    capacity.cooldowns.in_until_s = 3600
    assert capacity.scale_in(60, 5) == 0
    assert capacity.scale_out(120, 9, 6) == 3
    assert capacity.scale_in(180, 7) == 2, "the cooldown stopped"


def test_missing_data_never_removes_instances() -> None:
    """[TT]: a policy does not scale in while its alarm has insufficient data."""
    alarms = TrackingAlarms(100)
    assert [alarms.observe(10) for _ in range(14)] == [0] * 14
    assert alarms.observe(None) == 0
    assert [alarms.observe(10) for _ in range(15)] == [0] * 14 + [-1]


def test_an_endpoint_that_is_updating_takes_no_other_change() -> None:
    """[SM]: the endpoint is Updating until it has its new capacity. With half an hour to provision, nothing is added
    until the first two serve at the end of minute 34, however the load grows; then six more are.
    """
    found = course([100, *[300] * 5, *[900] * 32], timing=timing(provisioning_s=1800))
    assert found["desired"][4:36] == [3] * 31 + [9]
    assert found["serving"][34:36] == [1, 3]


@pytest.mark.parametrize(("minimum", "then"), [(6, 6), (2, 3)])
def test_a_scheduled_minimum_acts_at_once(minimum: int, then: int) -> None:
    """[SC]: below the new minimum, it scales out to it, whatever the cooldowns; above it, nothing happens.

    Three serve 300 a minute. The minimum of minute 5 is looked at when that minute is over.
    """
    rise = ScheduledMinimum(schedule="cron(5 0 * * ? *)", min_capacity=minimum)
    assert course([300] * 8, policy(scheduled_minimums=(rise,)))["desired"][4:] == [3, 3, then, then]


def test_a_scheduled_minimum_holds_until_the_next_one() -> None:
    """[SC]: a scheduled action sets the minimum, and scaling continues within it."""
    rise = ScheduledMinimum(schedule="at(2026-01-05T00:00:00)", min_capacity=6)
    fall = ScheduledMinimum(schedule="at(2026-01-05T00:30:00)", min_capacity=2)
    found = course([100] * 33, policy(scheduled_minimums=(rise, fall)))["desired"]
    assert found[1] == 6
    assert found[30] == 6
    assert found[31] == 2, "the low alarm has lasted for long"


def test_an_ecs_task_without_an_instance_waits_for_the_capacity_provider() -> None:
    """[ECS]: a CapacityProviderReservation above 100 % starts instances, and each minute it is looked at.

    In minute 4 two tasks more are desired. A minute later their instances are asked for, which take two minutes, and
    the model one: they serve in minute 8.
    """
    found = course([100, *[300] * 9], timing=timing(hosts="ecs"))
    assert found["desired"] == [1, 1, 1, 1, 3, 3, 3, 3, 3, 3]
    assert found["serving"] == [1, 1, 1, 1, 1, 1, 1, 1, 3, 3]
    assert found["paid"] == [1, 1, 1, 1, 1, 3, 3, 3, 3, 3]


def test_an_idle_instance_of_ecs_stays_for_fifteen_minutes_and_takes_a_task_at_once() -> None:
    """[ECS]: below 100 %, an instance without a task goes, after the fifteen datapoints of the low alarm.

    Ten tasks become five in minute 16. Minutes 18 to 20 have 800: in minute 21 eight are desired, and three of the five
    idle instances have tasks a minute later, when the model is loaded; the other two go in minute 32.
    """
    found = course([1000, *[500] * 17, *[800] * 16], timing=timing(hosts="ecs"))
    assert found["desired"][15:23] == [10, 5, 5, 5, 5, 5, 8, 8]
    assert found["serving"][20:23] == [5, 5, 8]
    assert found["paid"][20:34] == [10] * 12 + [8, 8]


def test_a_capacity_provider_starts_no_instance_while_one_is_warming_up() -> None:
    """[ECS]: the scale-out is blocked within instanceWarmupPeriod, here 300 s from minute 5 on.

    A zone fails in minute 6. Its instance is missed a minute later and could be asked for in minute 8; it is in 10.
    """
    found = course([100, *[300] * 14], timing=timing(hosts="ecs"), losses=(ZoneLoss(at_s=360, zones=2),))
    assert found["serving"][5:15] == [1, 0, 0, 2, 2, 2, 2, 2, 3, 3]


@pytest.mark.parametrize(
    ("expression", "zone", "minute", "runs"),
    [
        ("cron(0 6 * * ? *)", None, "2026-01-05T06:00", True),
        ("cron(0 6 * * ? *)", None, "2026-01-05T06:01", False),
        ("cron(0 6 * * ? *)", "America/New_York", "2026-01-05T11:00", True),
        ("cron(*/20 8-10 ? JAN,MAR MON *)", None, "2026-01-05T09:40", True),
        ("cron(*/20 8-10 ? JAN,MAR MON *)", None, "2026-01-06T09:40", False),
        ("cron(10/25 * 5 1 ? 2026)", None, "2026-01-05T00:35", True),
        ("at(2026-01-05T09:30:15)", None, "2026-01-05T09:30", True),
        ("at(2026-01-05T09:30:15)", "Asia/Tokyo", "2026-01-05T00:30", True),
        ("rate(2 hours)", None, "2026-01-05T04:00", True),
        ("rate(2 hours)", None, "2026-01-05T05:00", False),
        ("rate(2 hours)", None, "2026-01-05T00:00", False),
    ],
)
def test_when_a_schedule_runs(expression: str, zone: str | None, minute: str, runs: bool) -> None:
    begins = datetime.fromisoformat(minute).replace(tzinfo=UTC)
    assert ScalingSchedule.parse(expression, zone).runs_in(begins, datetime(2026, 1, 5, tzinfo=UTC)) is runs


@pytest.mark.parametrize(
    ("expression", "zone", "why"),
    [
        ("cron(0 6 L * ? *)", None, "invalid literal for int() with base 10: 'L'"),
        ("cron(0 25 * * ? *)", None, "25 is not within 0 and 23"),
        ("cron(0 6 * * ?)", None, "'cron(0 6 * * ?)' has 5 fields instead of six"),
        ("every day", None, "'every day' is none of at(…), rate(…) and cron(…)"),
        ("rate(0 minutes)", None, "'rate(0 minutes)' is no whole number of minutes, hours or days"),
        ("rate(1 day)", "Mars/Olympus", "'Mars/Olympus' is no time zone"),
    ],
)
def test_an_unsupported_schedule_is_refused(expression: str, zone: str | None, why: str) -> None:
    with pytest.raises(ValueError, match=re.escape(why)):
        ScalingSchedule.parse(expression, zone)


def test_an_unsupported_scheduled_minimum_names_the_key() -> None:
    minimum = ScheduledMinimum(schedule="cron(0 24 * * ? *)", min_capacity=2)
    assert message_of(UsageError, scheduled, (minimum,), FIRST_MONDAY, 86_400) == (
        "scheduled_minimums: 24 is not within 0 and 23. A cron expression has minutes, hours, day of month, month, "
        "day of week and year, with numbers, names, *, ?, lists, ranges and steps."
    )
