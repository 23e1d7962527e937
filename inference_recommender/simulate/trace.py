"""A recorded traffic trace: a CSV file of times and requests per second, checked and resampled to even steps. Pure.

The first column is a time, in ISO 8601 (2026-11-22T13:00:00Z; without a zone it is UTC) or in seconds since 1970. The
second column is the mean rate until the next line's time. A first line without numbers is a heading. Lines must be in
order and evenly spaced, by 1, 2, 5 or 10 s or by whole minutes.
"""

import csv
import hashlib
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from itertools import pairwise
from pathlib import Path
from typing import Literal

import numpy as np

from inference_recommender.capacity.statistics import Floats
from inference_recommender.simulate.policy import HIGH_RESOLUTION_S, TrafficLoad
from inference_recommender.simulate.tracking import MINUTE_S
from workloads import UsageError

Fill = Literal["zero", "last"]
FEWEST_LINES = 2
GAPS_SHOWN = 5
EXAMPLE = "A line is a time and requests per second: 2026-11-22T13:00:00Z,41.5"
LONGEST_MINUTES = 2 * 366 * 24 * 60


@dataclass(frozen=True, kw_only=True, slots=True)
class Trace:
    """A recorded trace; each seed has the same rates."""

    name: str
    sha256: str
    start: datetime
    step_s: int
    """A minute, or ten seconds if the recording is finer than a minute."""
    rates: Floats
    """Mean requests per second, one entry per step."""

    def load(self, seed: int) -> TrafficLoad:
        return TrafficLoad(start=self.start, step_s=self.step_s, rates=self.rates)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Line:
    number: int
    at_s: float
    zone: str
    rate: float


def read_trace(file: Path, fill: Fill | None = None) -> Trace:
    """Reads a CSV file, with its gaps filled as `fill` says. Raises `UsageError`, which names the lines."""
    try:
        content = file.read_bytes()
        text = content.decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"--trace: {file} cannot be read: {error}.") from error
    return parse_trace(str(file), text, hashlib.sha256(content).hexdigest(), file.name, fill)


def parse_trace(file: str, text: str, sha256: str, name: str, fill: Fill | None = None) -> Trace:
    lines = _lines(file, text)
    if len(lines) < FEWEST_LINES:
        had = "no line" if not lines else "one line"
        raise UsageError(f"{file}: has {had} with a rate; a trace needs at least {FEWEST_LINES}. {EXAMPLE}.")
    _refuse_mixed_zones(file, lines)
    spacing = _spacing(file, lines)
    rates = [lines[0].rate]
    for before, line in pairwise(lines):
        missing = round((line.at_s - before.at_s) / spacing) - 1
        rates += [before.rate if fill == "last" else 0.0] * missing + [line.rate]
    _refuse_gaps(file, lines, spacing, fill)
    return even_trace(name, sha256, lines[0].at_s, spacing, rates)


def even_trace(name: str, sha256: str, first_s: float, spacing_s: int, rates: Sequence[float]) -> Trace:
    """Returns a trace with steps of a minute, or of ten seconds, from rates that are `spacing_s` apart."""
    step_s = MINUTE_S if spacing_s >= MINUTE_S else HIGH_RESOLUTION_S
    values = np.array(rates)
    if spacing_s >= step_s:
        values = np.repeat(values, spacing_s // step_s)
    else:
        whole = len(values) // (MINUTE_S // spacing_s) * (MINUTE_S // spacing_s)
        values = values[:whole].reshape(-1, step_s // spacing_s).mean(axis=1)
    whole_minutes = len(values) // (MINUTE_S // step_s) * (MINUTE_S // step_s)
    if not whole_minutes:
        raise UsageError(f"{name}: is shorter than a minute: record for longer.")
    return Trace(
        name=name,
        sha256=sha256,
        start=datetime.fromtimestamp(first_s, UTC),
        step_s=step_s,
        rates=values[:whole_minutes],
    )


def _lines(file: str, text: str) -> list[_Line]:
    found: list[_Line] = []
    for number, row in enumerate(csv.reader(io.StringIO(text)), start=1):
        cells = [cell.strip() for cell in row]
        if not any(cells) or (not found and number == 1 and not _is_number(cells[-1])):
            continue
        if len(cells) != 2:
            raise UsageError(f"{file}:{number}: has {len(cells)} columns instead of two. {EXAMPLE}.")
        at_s, zone = _time(file, number, cells[0])
        rate = float(cells[1]) if _is_number(cells[1]) else math.nan
        if not math.isfinite(rate):
            raise UsageError(f"{file}:{number}: got '{cells[1]}' for requests per second, which is no number.")
        if rate < 0:
            raise UsageError(f"{file}:{number}: got {rate:g} requests per second; a rate cannot be negative.")
        found.append(_Line(number=number, at_s=at_s, zone=zone, rate=rate))
    return found


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _time(file: str, number: int, text: str) -> tuple[float, str]:
    """Returns seconds since 1970, and the UTC offset as it was written, "" for none."""
    if _is_number(text) and math.isfinite(float(text)):
        return float(text), "seconds since 1970"
    try:
        at = datetime.fromisoformat(text)
    except ValueError as error:
        raise UsageError(f"{file}:{number}: got '{text}' for a time, which is not ISO 8601. {EXAMPLE}.") from error
    zone: tzinfo = at.tzinfo or UTC
    return at.replace(tzinfo=zone).timestamp(), at.strftime("%z") if at.tzinfo else ""


def _refuse_mixed_zones(file: str, lines: Sequence[_Line]) -> None:
    first = lines[0]
    other = next((line for line in lines if line.zone != first.zone), None)
    if other is not None:
        had, got = (zone or "no zone" for zone in (first.zone, other.zone))
        raise UsageError(
            f"{file}:{other.number}: time zones are mixed: {got}, after {had} in line {first.number}. "
            "Write all times in UTC."
        )


def _spacing(file: str, lines: Sequence[_Line]) -> int:
    """Returns the seconds between lines. Raises `UsageError` for wrong order or spacing."""
    apart = [after.at_s - before.at_s for before, after in pairwise(lines)]
    for line, gap in zip(lines[1:], apart, strict=True):
        if gap <= 0:
            raise UsageError(f"{file}:{line.number}: is not after the line before it; sort the trace by time.")
    spacing = sorted(apart)[len(apart) // 2]
    allowed = spacing in (1, 2, 5, 10) if spacing < MINUTE_S else spacing % MINUTE_S == 0
    if not allowed:
        raise UsageError(
            f"{file}: lines are {spacing:g} s apart. Allowed: 1, 2, 5 or 10 s, or whole minutes; 60 s fits best."
        )
    if (lines[-1].at_s - lines[0].at_s) / MINUTE_S > LONGEST_MINUTES:
        raise UsageError(f"{file}: is longer than two years; simulate a part of it.")
    return int(spacing)


def _refuse_gaps(file: str, lines: Sequence[_Line], spacing: int, fill: Fill | None) -> None:
    """Raises `UsageError` for gaps; with `fill`, for gaps that are no whole number of lines."""
    gaps = {line.number: line.at_s - before.at_s for before, line in pairwise(lines)}
    wrong = {line: gap for line, gap in gaps.items() if (gap % spacing if fill else gap != spacing)}
    if not wrong:
        return
    shown = ", ".join(f"line {line} after {gap:,g} s" for line, gap in list(wrong.items())[:GAPS_SHOWN])
    more = f" and {len(wrong) - GAPS_SHOWN} more" if len(wrong) > GAPS_SHOWN else ""
    advice = (
        "Correct their times: fill_gaps adds whole lines only."
        if fill
        else "Fill the gaps with --set simulation.fill_gaps=zero if there was no traffic, or =last if the monitoring "
        "failed."
    )
    raise UsageError(
        f"{file}: lines are {spacing:g} s apart, but {len(wrong)} {'comes' if len(wrong) == 1 else 'come'} at another "
        f"time: {shown}{more}. "
        f"{advice}"
    )
