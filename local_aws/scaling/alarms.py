"""Evaluates an alarm over its datapoints as CloudWatch documents it. Pure: no clock, no moto.

    OK, ALARM           M of the N most recent datapoints that exist are beyond the threshold, or fewer
    INSUFFICIENT_DATA   none exists in the evaluation range

The evaluation range is longer than N periods, so that an older datapoint can stand for a missing one; its length is
not documented but for the example of N = 3, which has 5. Where fewer than N exist, the alarm goes to ALARM if one
beyond the threshold is at least M periods old and all later ones are beyond it or missing. That is how missing data is
treated by default, and the alarms of target tracking have nothing else.

Sources:
https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/alarm-evaluation.html
https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/alarms-and-missing-data.html
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

State = Literal["OK", "ALARM", "INSUFFICIENT_DATA"]
Comparison = Literal["GreaterThanThreshold", "LessThanThreshold"]
MORE_PERIODS = 2
"""How much longer than N periods the evaluation range is."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Condition:
    """The threshold of an alarm, and how many datapoints in a row have to be beyond it: here M = N = `periods`."""

    comparison: Comparison
    threshold: float
    periods: int

    @property
    def range_periods(self) -> int:
        """Periods of the evaluation range."""
        return self.periods + MORE_PERIODS

    def breached_by(self, value: float) -> bool:
        return value > self.threshold if self.comparison == "GreaterThanThreshold" else value < self.threshold

    def state(self, values: Sequence[float | None], now: State) -> State:
        """Returns the state after the evaluation range's datapoints, oldest first, None for one that is missing.

        `now` is the state before, which stays where the datapoints are beyond the threshold and too young to decide.
        """
        seen = [value for value in values if value is not None]
        if not seen:
            return "INSUFFICIENT_DATA"
        if len(seen) >= self.periods:
            return "ALARM" if all(self.breached_by(value) for value in seen[-self.periods :]) else "OK"
        run = 0
        for age, value in enumerate(reversed(values), start=1):
            if value is None:
                continue
            if not self.breached_by(value):
                break
            run = age
        if run >= self.periods:
            return "ALARM"
        return now if all(self.breached_by(value) for value in seen) else "OK"

    def told(self, values: Sequence[float | None], state: State) -> str:
        """Returns the alarm's StateReason."""
        seen = [value for value in values if value is not None][-self.periods :]
        if not seen:
            return "Insufficient Data: no datapoints were received in the evaluation range"
        beyond = sum(self.breached_by(value) for value in seen)
        side = "greater than" if self.comparison == "GreaterThanThreshold" else "less than"
        shown = ", ".join(f"{value:.2f}" for value in reversed(seen))
        return (
            f"Threshold Crossed: {beyond} of the last {len(seen)} datapoints [{shown}] "
            f"{'was' if beyond == 1 else 'were'} {side} the threshold ({self.threshold:g}): {state}."
        )
