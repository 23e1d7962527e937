"""Target tracking as Application Auto Scaling documents it: alarms, wanted capacity, cooldowns, bounds. Pure.

    scale out   three datapoints on end above the target value
    scale in    fifteen minutes of datapoints on end below 90 % of it
    wanted      ceil(instances that the datapoint was averaged over * datapoint / target value)

What is AWS's word, and where:

- A high and a low alarm per policy; the metric above the target scales out, and only "far enough below the target value
  (usually more than 10% lower)" scales in; fractions are rounded so that too little is never added and too much never
  removed; with several policies, any may add and all have to agree to remove, and the largest capacity wins; a policy
  does not scale in on insufficient data; cooldowns.
  [TT] https://docs.aws.amazon.com/autoscaling/application/userguide/target-tracking-scaling-policy-overview.html
- The scale-out cooldown begins when the activity has completed, and only a larger scale-out gets past it; what was
  added counts as part of the next. A scale-out ends a scale-in cooldown.
  [SS] https://docs.aws.amazon.com/autoscaling/application/userguide/step-scaling-policy-overview.html
- An alarm's action for autoscaling is invoked once a minute while the alarm lasts.
  [CW] https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/AlarmThatSendsEmail.html
- Scheduled minimums act at once, without regard to cooldowns.
  [SC] https://docs.aws.amazon.com/autoscaling/application/userguide/application-auto-scaling-scheduled-scaling.html

The numbers of datapoints (3 and 15) and the 90 % are those of the alarms that the service makes; the guide gives none.
That a metric of 10 s has a low alarm of 15 minutes, too, is an assumption.
"""

import math
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from inference_recommender.simulate.policy import MINUTE_S, Policy
from workloads import UsageError
from workloads.endpoint_hosting import ScheduledMinimum

OUT_DATAPOINTS = 3
IN_MINUTES = 15
SCALE_IN_BELOW = 0.9
"""Share of the target value under which the low alarm counts."""
ROUNDING = 1e-9
"""A wanted capacity this little above a whole number is that number."""


class Alarms:
    """The high and the low alarm of one policy."""

    __slots__ = ("_above", "_below", "_in_datapoints", "_low", "_repeat", "in_low", "period_s", "target")

    def __init__(self, target: float, period_s: int = MINUTE_S) -> None:
        self.target = target
        self.period_s = period_s
        self.in_low = False
        """Whether the low alarm is in ALARM."""
        self._low = target * SCALE_IN_BELOW
        self._above = self._below = 0
        self._in_datapoints = IN_MINUTES * MINUTE_S // period_s
        self._repeat = MINUTE_S // period_s

    def observe(self, value: float | None) -> int:
        """Takes the next datapoint, None where it is missing. Returns 1 where the high alarm's action is invoked, -1
        where the low one's is, else 0.
        """
        if value is not None and value > self.target:
            self._above += 1
            self._below = 0
            self.in_low = False
            late = self._above - OUT_DATAPOINTS
            return 1 if late >= 0 and late % self._repeat == 0 else 0
        self._above = 0
        if value is None or value >= self._low:
            self._below = 0
            self.in_low = False
            return 0
        self._below += 1
        late = self._below - self._in_datapoints
        self.in_low = late >= 0
        return -1 if late >= 0 and late % self._repeat == 0 else 0

    def wanted(self, instances: int, value: float) -> int:
        """Returns the instances that bring a metric to its target value which `instances` share."""
        return math.ceil(instances * value / self.target - ROUNDING)


class Capacity:
    """The desired capacity of a scalable target, its bounds and its cooldowns."""

    def __init__(self, policy: Policy, desired: int) -> None:
        self.policy = policy
        self.minimum = policy.min_capacity
        self.desired = desired
        self._added = 0
        """Instances of the scale-out whose cooldown runs."""
        self._out_until_s = self._in_until_s = -math.inf

    def scale_out(self, now_s: float, wanted: int, instances: int) -> int:
        """Returns how many instances are added. `instances` are those that the datapoint was averaged over."""
        wanted = min(wanted, self.policy.max_capacity)
        if wanted <= self.desired or (now_s < self._out_until_s and wanted - instances <= self._added):
            return 0
        added, self._added = wanted - self.desired, wanted - instances
        self.desired = wanted
        self._in_until_s = -math.inf
        return added

    def scale_in(self, now_s: float, wanted: int) -> int:
        """Returns how many instances are removed."""
        wanted = max(wanted, self.minimum)
        if not self.policy.scale_in or wanted >= self.desired or now_s < self._in_until_s:
            return 0
        removed = self.desired - wanted
        self.desired = wanted
        return removed

    def schedule(self, minimum: int) -> int:
        """Sets another minimum, and returns how many instances are added for it, whatever the cooldowns."""
        self.minimum = minimum
        added = max(minimum - self.desired, 0)
        self.desired += added
        return added

    def scaled_out(self, done_s: float) -> None:
        """Begins the cooldown of a scale-out that is complete at `done_s`."""
        self._out_until_s = done_s + self.policy.scale_out_cooldown_s

    def scaled_in(self, done_s: float) -> None:
        self._in_until_s = done_s + self.policy.scale_in_cooldown_s


DAYS = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")


def scheduled(minimums: tuple[ScheduledMinimum, ...], start: datetime, length_s: float) -> list[tuple[float, int]]:
    """Returns second and new minimum of every scheduled action from `start` on, in order of time.

    Raises `UsageError` for a schedule with what is not simulated: L, W and # of a cron expression.
    """
    end = start + timedelta(seconds=length_s)
    acts = [
        ((at - start).total_seconds(), each.min_capacity)
        for each in minimums
        for at in _times(each, start, end)
        if start <= at < end
    ]
    return sorted(acts)


def _times(each: ScheduledMinimum, start: datetime, end: datetime) -> Iterator[datetime]:
    try:
        zone = ZoneInfo(each.timezone)
    except (ZoneInfoNotFoundError, ValueError) as error:
        raise UsageError(f"scheduled_minimums: timezone: got '{each.timezone}', which is no time zone.") from error
    kind, _, inside = each.schedule.rstrip(")").partition("(")
    try:
        if kind == "at":
            yield datetime.fromisoformat(inside).replace(tzinfo=zone).astimezone(UTC)
            return
        minutes, hours, days, months, weekdays, years = inside.split()
        for day in _days(start.astimezone(zone).date(), end.astimezone(zone).date()):
            if not (
                day.day in _field(days, 1, 31)
                and day.month in _field(months, 1, 12, MONTHS)
                and day.isoweekday() % 7 + 1 in _field(weekdays, 1, 7, DAYS)
                and day.year in _field(years, 1970, 2199)
            ):
                continue
            for hour in sorted(_field(hours, 0, 23)):
                for minute in sorted(_field(minutes, 0, 59)):
                    yield datetime(day.year, day.month, day.day, hour, minute, tzinfo=zone).astimezone(UTC)
    except ValueError as error:
        raise UsageError(
            f"scheduled_minimums: schedule: '{each.schedule}' cannot be simulated. A cron expression has minutes, "
            "hours, day of month, month, day of week and year, with numbers, names, *, ?, lists, ranges and steps."
        ) from error


def _days(first: date, last: date) -> Iterator[date]:
    for number in range((last - first).days + 1):
        yield first + timedelta(days=number)


def _field(text: str, low: int, high: int, names: tuple[str, ...] = ()) -> set[int]:
    """Returns the values of a cron field. Raises ValueError for what it does not know."""
    found: set[int] = set()
    for part in text.split(","):
        span, _, step = part.partition("/")
        if span in ("*", "?"):
            first, last = low, high
        else:
            begins, dash, ends = span.partition("-")
            first = _number(begins, low, names)
            last = _number(ends, low, names) if dash else (high if step else first)
        if not low <= first <= last <= high:
            raise ValueError(f"{part} is out of range")
        found.update(range(first, last + 1, int(step or 1)))
    return found


def _number(text: str, low: int, names: tuple[str, ...]) -> int:
    return names.index(text.upper()) + low if text.upper() in names else int(text)
