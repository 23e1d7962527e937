"""Target tracking as Application Auto Scaling documents it: alarms, desired capacity, cooldowns, schedules. Pure.

    scale out   three datapoints in a row above the target value
    scale in    fifteen minutes of datapoints in a row below 90 % of it
    desired     ceil(instances that the datapoint was averaged over * datapoint / target value)

The simulation and the local AWS account share this module. Sources:

- Alarms, rounding, several policies, insufficient data, cooldowns:
  https://docs.aws.amazon.com/autoscaling/application/userguide/target-tracking-scaling-policy-overview.html
- The scale-out cooldown begins when the activity is complete. During it, only a larger scale-out adds instances, of
  which the previous ones count as a part. A scale-out ends a scale-in cooldown:
  https://docs.aws.amazon.com/autoscaling/application/userguide/step-scaling-policy-overview.html
- An alarm's scaling action repeats once a minute while the alarm lasts:
  https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/AlarmThatSendsEmail.html
- Schedules: https://docs.aws.amazon.com/autoscaling/application/userguide/scheduled-scaling-using-cron-expressions.html

The guide does not document the numbers of datapoints and the 90 %. They are those of the alarms that AWS creates.
"""

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

MINUTE_S, DAY_MINUTES = 60, 1440
OUT_DATAPOINTS = 3
IN_MINUTES = 15
SCALE_IN_BELOW = 0.9
"""Share of the target value below which datapoints count for a scale-in."""
ROUNDING = 1e-9
"""A desired capacity this little above a whole number is that number."""


def instances_for(instances: int, value: float, target: float) -> int:
    """Returns how many instances bring a metric that `instances` share to its target value; at least one."""
    return max(math.ceil(instances * value / target - ROUNDING), 1)


class TrackingAlarms:
    """The high and the low alarm of one policy, fed with one datapoint a minute."""

    __slots__ = ("_above", "_below", "_low", "target")

    def __init__(self, target: float) -> None:
        self.target, self._low = target, target * SCALE_IN_BELOW
        self._above = self._below = 0

    def observe(self, value: float | None) -> int:
        """Takes the next datapoint; None if it is missing. Returns 1 for a scale-out, -1 for a scale-in, else 0."""
        self._above = self._above + 1 if value is not None and value > self.target else 0
        self._below = self._below + 1 if value is not None and value < self._low else 0
        if self._above >= OUT_DATAPOINTS:
            return 1
        return -1 if self._below >= IN_MINUTES else 0


@dataclass(slots=True)
class Cooldowns:
    """The cooldowns of a scalable target. Times are in seconds."""

    added: int = 0
    """Instances of the scale-out whose cooldown runs."""
    out_until_s: float = -math.inf
    in_until_s: float = -math.inf

    def allow_out(self, now_s: float, desired: int, instances: int) -> bool:
        """Returns whether a scale-out to `desired` may start. `instances` are those of the datapoint."""
        return now_s >= self.out_until_s or desired - instances > self.added

    def instances_before(self, now_s: float, instances: int) -> int:
        """Returns the instances without those of the scale-out whose cooldown runs."""
        return max(instances - self.added, 1) if now_s < self.out_until_s else instances

    def allow_in(self, now_s: float) -> bool:
        return now_s >= self.in_until_s

    def start_out(self, added: int) -> None:
        """Notes a scale-out, which ends a scale-in cooldown."""
        self.added, self.in_until_s = added, -math.inf


DAYS = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
CRON_FIELDS: tuple[tuple[int, int, Sequence[str]], ...] = (
    (0, 59, ()),
    (0, 23, ()),
    (1, 31, ()),
    (1, 12, MONTHS),
    (1, 7, DAYS),
    (1970, 2199, ()),
)
"""Lowest and highest value and the names of minutes, hours, days of month, months, days of week, and years."""
_EXPRESSION = re.compile(r"(at|rate|cron)\((.+)\)")
_RATE = re.compile(r"(\d+) (minute|hour|day)s?")
_RATE_MINUTES = {"minute": 1, "hour": 60, "day": 24 * 60}


@dataclass(frozen=True, slots=True)
class ScalingSchedule:
    """An at(…), rate(…) or cron(…) expression in its time zone. L, W and # of cron are not supported."""

    kind: str
    zone: ZoneInfo
    at: datetime | None = None
    every_minutes: int = 0
    fields: tuple[frozenset[int], ...] = ()

    @classmethod
    def parse(cls, expression: str, zone: str | None = None) -> "ScalingSchedule":
        """Raises ValueError, a sentence, for an expression or a zone that is not supported."""
        try:
            local = ZoneInfo(zone or "UTC")
        except (KeyError, ValueError) as error:  # ZoneInfoNotFoundError is a KeyError
            raise ValueError(f"'{zone}' is no time zone") from error
        found = _EXPRESSION.fullmatch(expression)
        if found is None:
            raise ValueError(f"'{expression}' is none of at(…), rate(…) and cron(…)")
        kind, inside = found.groups()
        if kind == "at":
            return cls(kind, local, at=datetime.fromisoformat(inside).replace(tzinfo=local).astimezone(UTC))
        if kind == "rate":
            rate = _RATE.fullmatch(inside)
            if rate is None or int(rate[1]) == 0:
                raise ValueError(f"'{expression}' is no whole number of minutes, hours or days")
            return cls(kind, local, every_minutes=int(rate[1]) * _RATE_MINUTES[rate[2]])
        texts = inside.split()
        if len(texts) != len(CRON_FIELDS):
            raise ValueError(f"'{expression}' has {len(texts)} fields instead of six")
        return cls(
            kind, local, fields=tuple(_field(text, *field) for text, field in zip(texts, CRON_FIELDS, strict=True))
        )

    def runs_in(self, minute: datetime, since: datetime) -> bool:
        """Returns whether the action runs in the minute that begins at `minute`. A rate counts from `since`."""
        if self.kind == "at":
            assert self.at is not None
            return minute <= self.at < minute + timedelta(minutes=1)
        if self.kind == "rate":
            passed = int((minute - since.replace(second=0, microsecond=0)).total_seconds()) // MINUTE_S
            return passed > 0 and passed % self.every_minutes == 0
        local = minute.astimezone(self.zone)
        return local.hour in self.fields[1] and local.minute in self.fields[0] and self._on(local.date())

    def times(self, start: datetime, end: datetime) -> Iterator[datetime]:
        """Yields the times of an at or a cron expression on the days from `start` to `end`."""
        if self.at is not None:
            yield self.at
        if self.kind != "cron":
            return
        first, last = start.astimezone(self.zone).date(), end.astimezone(self.zone).date()
        for day in (first + timedelta(days=number) for number in range((last - first).days + 1)):
            if self._on(day):
                for hour in sorted(self.fields[1]):
                    for minute in sorted(self.fields[0]):
                        local = datetime(day.year, day.month, day.day, hour, minute, tzinfo=self.zone)
                        yield local.astimezone(UTC)

    def _on(self, day: date) -> bool:
        _, _, days, months, weekdays, years = self.fields
        return day.day in days and day.month in months and day.isoweekday() % 7 + 1 in weekdays and day.year in years


def _field(text: str, low: int, high: int, names: Sequence[str]) -> frozenset[int]:
    """Returns the values of a cron field. Raises ValueError."""
    values: set[int] = set()
    for part in text.split(","):
        span, _, step = part.partition("/")
        first, last = low, high
        if span not in ("*", "?"):
            begins, dash, ends = span.partition("-")
            first = _number(begins, low, names)
            last = _number(ends, low, names) if dash else high if step else first
        if not low <= first <= last <= high:
            raise ValueError(f"{part} is not within {low} and {high}")
        values.update(range(first, last + 1, int(step or 1)))
    return frozenset(values)


def _number(text: str, low: int, names: Sequence[str]) -> int:
    return names.index(text.upper()) + low if text.upper() in names else int(text)
