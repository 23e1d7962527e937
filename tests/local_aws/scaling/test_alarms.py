"""Alarms change their state as CloudWatch's documentation says of missing data; X is beyond the threshold, - missing.

The rows are those of https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/alarms-and-missing-data.html.
"""

import re
from datetime import UTC, datetime

import pytest

from inference_recommender.simulate.tracking import ScalingSchedule
from local_aws.scaling.alarms import AlarmCondition, AlarmState

ABOVE = AlarmCondition(comparison="GreaterThanThreshold", threshold=10, periods=3)


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
    values = [{"0": 5.0, "X": 15.0, "-": None}[each] for each in datapoints]
    assert ABOVE.state(values, "OK") == state


@pytest.mark.parametrize("now", ["OK", "INSUFFICIENT_DATA"])
def test_datapoints_that_are_beyond_the_threshold_and_too_young_change_nothing(now: AlarmState) -> None:
    assert ABOVE.state([None, None, None, 15.0, 15.0], now) == now


def test_the_reason_tells_the_latest_datapoints_first() -> None:
    assert ABOVE.reason([5.0, 15.0, None, 12.0, 11.0], "ALARM") == (
        "Threshold Crossed: 3 of the last 3 datapoints [11.00, 12.00, 15.00] were greater than the threshold (10): "
        "ALARM."
    )


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
def test_a_schedule_that_is_not_known_here_is_refused(expression: str, zone: str | None, why: str) -> None:
    with pytest.raises(ValueError, match=re.escape(why)):
        ScalingSchedule.parse(expression, zone)
