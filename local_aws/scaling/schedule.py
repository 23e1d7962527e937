"""Tells in which minutes a scheduled action runs: at(…), rate(…) and cron(…) expressions. Pure.

Source: https://docs.aws.amazon.com/autoscaling/application/userguide/scheduled-scaling-using-cron-expressions.html
L, W and # of a cron expression are not known here.
"""

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

_EXPRESSION = re.compile(r"(at|rate|cron)\((.+)\)")
_RATE = re.compile(r"(\d+) (minute|hour|day)s?")
_MINUTES = {"minute": 1, "hour": 60, "day": 24 * 60}
_MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
_DAYS = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")


def runs_in(expression: str, zone: str | None, minute: datetime, since: datetime) -> bool:
    """Tells whether the action runs in the minute that begins at `minute` (UTC). A rate counts from `since`.

    Raises ValueError for an expression that is not known here.
    """
    found = _EXPRESSION.fullmatch(expression)
    if found is None:
        raise ValueError(f"'{expression}' is none of at(…), rate(…) and cron(…)")
    kind, inside = found.groups()
    local = minute.astimezone(ZoneInfo(zone or "UTC"))
    if kind == "at":
        at = datetime.fromisoformat(inside).replace(tzinfo=local.tzinfo).astimezone(UTC)
        return minute <= at < minute + timedelta(minutes=1)
    if kind == "rate":
        return _in_step(inside, minute, since)
    fields = inside.split()
    if len(fields) != 6:
        raise ValueError(f"'{expression}' has {len(fields)} fields instead of six")
    values = (local.minute, local.hour, local.day, local.month, local.isoweekday() % 7 + 1, local.year)
    bounds = ((0, 59), (0, 23), (1, 31), (1, 12), (1, 7), (1970, 2199))
    names: tuple[Sequence[str], ...] = ((), (), (), _MONTHS, _DAYS, ())
    matches = [_matches(*each) for each in zip(fields, values, bounds, names, strict=True)]
    return all(matches)


def check(expression: str, zone: str | None) -> None:
    """Raises NotImplementedError, a sentence, for a schedule that is not known here."""
    now = datetime(2026, 1, 1, tzinfo=UTC)
    try:
        runs_in(expression, zone, now, now)
    except (ValueError, KeyError) as error:  # ZoneInfoNotFoundError is a KeyError
        raise NotImplementedError(f"a schedule such as this one: {error}") from error


def _in_step(inside: str, minute: datetime, since: datetime) -> bool:
    found = _RATE.fullmatch(inside)
    if found is None or int(found[1]) == 0:
        raise ValueError(f"'rate({inside})' is no whole number of minutes, hours or days")
    passed = int((minute - since.replace(second=0, microsecond=0)).total_seconds()) // 60
    return passed > 0 and passed % (int(found[1]) * _MINUTES[found[2]]) == 0


def _matches(field: str, value: int, bounds: tuple[int, int], names: Sequence[str]) -> bool:
    """Tells whether a cron field has `value`; reads the whole field, so that what is wrong in it is always said."""
    allowed = [_values(part, bounds, names) for part in field.split(",")]
    return any(value in each for each in allowed)


def _values(part: str, bounds: tuple[int, int], names: Sequence[str]) -> range:
    span, _, step = part.partition("/")
    low, high = bounds
    if span not in ("*", "?"):
        first, dash, last = span.partition("-")
        low = _number(first, bounds, names)
        high = _number(last, bounds, names) if dash else high if step else low
    return range(low, high + 1, int(step or 1))


def _number(text: str, bounds: tuple[int, int], names: Sequence[str]) -> int:
    number = names.index(text) + bounds[0] if text in names else int(text)
    if not bounds[0] <= number <= bounds[1]:
        raise ValueError(f"{number} is not within {bounds[0]} and {bounds[1]}")
    return number
