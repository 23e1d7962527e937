"""Alarms change their state as CloudWatch's documentation says of missing data; X is beyond the threshold, - missing.

The rows are those of https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/alarms-and-missing-data.html.
"""

import pytest

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
