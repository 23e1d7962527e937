"""A recorded traffic trace: a CSV file of times and requests per second, checked and resampled to minutes.

The first column is a time, in ISO 8601 (2026-11-22T13:00:00Z; without a zone it is UTC) or in seconds since 1970. The
second column is the mean rate until the next line's time. A first line without numbers is a heading. Lines must be in
order and evenly spaced, by 1, 2, 5 or 10 s or by whole minutes. CloudWatch records a trace of minutes, too.
"""

import csv
import hashlib
import io
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from inference_recommender.capacity.statistics import Floats
from inference_recommender.load_generator.time_stamps import parsed_time
from inference_recommender.simulate.policy import TrafficLoad, TrafficSource
from inference_recommender.simulate.tracking import MINUTE_S
from workloads import Unavailable, UsageError

if TYPE_CHECKING:
    from aws_api.session import AwsSession

Fill = Literal["zero", "last"]
GAPS_SHOWN = 5
EXAMPLE = "A line is a time and requests per second: 2026-11-22T13:00:00Z,41.5"
LONGEST_MINUTES = 2 * 366 * 24 * 60
KEPT_DAYS, DEFAULT_DAYS = 15, 14
"""Retention of CloudWatch's datapoints of a minute."""
MINUTE = timedelta(minutes=1)


@dataclass(frozen=True, kw_only=True, slots=True)
class Trace:
    """A recorded trace; each seed has the same rates."""

    name: str
    sha256: str
    start: datetime
    rates: Floats
    """Mean requests per second, one entry per minute."""
    history: Floats = field(default_factory=lambda: np.empty(0))
    """The same for the minutes before the start."""

    def load(self, seed: int) -> TrafficLoad:
        return TrafficLoad(start=self.start, rates=self.rates, history=self.history)


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
    spacing = _spacing(file, lines, fill)
    rates = [lines[0].rate]
    for before, line in pairwise(lines):
        missing = round((line.at_s - before.at_s) / spacing) - 1
        rates += [before.rate if fill == "last" else 0.0] * missing + [line.rate]
    values = np.repeat(np.array(rates), max(spacing // MINUTE_S, 1))
    lines_per_minute = max(MINUTE_S // spacing, 1)
    minutes = len(values) // lines_per_minute
    if not minutes:
        raise UsageError(f"{name}: is shorter than a minute: record for longer.")
    values = values[: minutes * lines_per_minute].reshape(minutes, lines_per_minute).mean(axis=1)
    return Trace(name=name, sha256=sha256, start=datetime.fromtimestamp(lines[0].at_s, UTC), rates=values)


def following(trace: Trace, before: TrafficSource) -> Trace:
    """Returns the trace with the recorded one before it as its history; a shape is no history.

    Raises `UsageError` if it does not follow at once.
    """
    if not isinstance(before, Trace):
        return trace
    end = before.start + len(before.rates) * MINUTE
    if trace.start != end:
        raise UsageError(
            f"--judge-on: {trace.name} begins at {trace.start:%Y-%m-%d %H:%M} UTC, and {before.name} ends at "
            f"{end:%Y-%m-%d %H:%M}. Give days that follow at once: a policy knows the days before them."
        )
    return replace(trace, history=np.concatenate([before.history, before.rates]))


def trace_csv(load: TrafficLoad) -> str:
    """Returns the traffic in the format of `--trace`."""
    times = (load.start + number * MINUTE for number in range(len(load.rates)))
    lines = (f"{at.isoformat()},{rate:.6g}" for at, rate in zip(times, load.rates.tolist(), strict=True))
    return "\n".join(("time,requests_per_second", *lines)) + "\n"


def _lines(file: str, text: str) -> list[_Line]:
    found: list[_Line] = []
    for number, row in enumerate(csv.reader(io.StringIO(text)), start=1):
        cells = [cell.strip() for cell in row]
        if not any(cells) or (not found and number == 1 and not math.isfinite(_number(cells[-1]))):
            continue
        if len(cells) != 2:
            raise UsageError(f"{file}:{number}: has {len(cells)} columns instead of two. {EXAMPLE}.")
        at_s, zone = _time(file, number, cells[0])
        rate = _number(cells[1])
        if not math.isfinite(rate):
            raise UsageError(f"{file}:{number}: got '{cells[1]}' for requests per second, which is no number.")
        if rate < 0:
            raise UsageError(f"{file}:{number}: got {rate:g} requests per second; a rate cannot be negative.")
        found.append(_Line(number=number, at_s=at_s, zone=zone, rate=rate))
    if len(found) < 2:
        had = "no line" if not found else "one line"
        raise UsageError(f"{file}: has {had} with a rate; a trace needs at least 2. {EXAMPLE}.")
    return found


def _number(text: str) -> float:
    """Returns NaN for other text."""
    try:
        return float(text)
    except ValueError:
        return math.nan


def _time(file: str, number: int, text: str) -> tuple[float, str]:
    """Returns seconds since 1970, and the UTC offset as it was written, "" for none."""
    try:
        return parsed_time(text)
    except ValueError as error:
        raise UsageError(f"{file}:{number}: got '{text}' for a time, which is not ISO 8601. {EXAMPLE}.") from error


def _spacing(file: str, lines: Sequence[_Line], fill: Fill | None) -> int:
    """Returns the seconds between lines. Raises `UsageError` for mixed time zones, wrong order, spacing or gaps."""
    first = lines[0]
    for before, line in pairwise(lines):
        if line.zone != first.zone:
            had, got = (zone or "no zone" for zone in (first.zone, line.zone))
            raise UsageError(
                f"{file}:{line.number}: time zones are mixed: {got}, after {had} in line {first.number}. "
                "Write all times in UTC."
            )
        if line.at_s <= before.at_s:
            raise UsageError(f"{file}:{line.number}: is not after the line before it; sort the trace by time.")
    gaps = {line.number: line.at_s - before.at_s for before, line in pairwise(lines)}
    spacing = sorted(gaps.values())[len(gaps) // 2]
    if not (spacing in (1, 2, 5, 10) if spacing < MINUTE_S else spacing % MINUTE_S == 0):
        raise UsageError(
            f"{file}: lines are {spacing:g} s apart. Allowed: 1, 2, 5 or 10 s, or whole minutes; 60 s fits best."
        )
    if (lines[-1].at_s - first.at_s) / MINUTE_S > LONGEST_MINUTES:
        raise UsageError(f"{file}: is longer than two years; simulate a part of it.")
    if wrong := {line: gap for line, gap in gaps.items() if (gap % spacing if fill else gap != spacing)}:
        shown = ", ".join(f"line {line} after {gap:,g} s" for line, gap in list(wrong.items())[:GAPS_SHOWN])
        more = f" and {len(wrong) - GAPS_SHOWN} more" if len(wrong) > GAPS_SHOWN else ""
        advice = (
            "Fill the gaps with --set simulation.fill_gaps=zero if there was no traffic, or =last if the monitoring "
            "failed."
        )
        if fill:
            advice = "Correct their times: fill_gaps adds whole lines only."
        raise UsageError(
            f"{file}: lines are {spacing:g} s apart, but {len(wrong)} {'comes' if len(wrong) == 1 else 'come'} at "
            f"another time: {shown}{more}. {advice}"
        )
    return int(spacing)


def recorded(session: "AwsSession", endpoint: str, days: int, now: datetime) -> Trace:
    """Returns an endpoint's Invocations by CloudWatch in the last `days` before `now`, all variants together.

    A minute without a datapoint has no invocations. Raises `Unavailable`, also without any traffic.
    """
    from aws_api.errors import translate_aws_errors  # boto3, which files do without
    from aws_api.session import metric_query

    if days > KEPT_DAYS:
        raise UsageError(f"--days: got {days}. CloudWatch keeps minutes for {KEPT_DAYS} days; give at most that.")
    end = now.replace(second=0, microsecond=0)
    start = end - timedelta(days=days)
    with translate_aws_errors("DescribeEndpoint"):
        described = session.client("sagemaker").describe_endpoint(EndpointName=endpoint)
    variants = described.get("ProductionVariants", [])
    dimensions = [{"EndpointName": endpoint, "VariantName": each["VariantName"]} for each in variants]
    queries = [
        metric_query(f"variant{number}", "AWS/SageMaker", "Invocations", each, "Sum")
        for number, each in enumerate(dimensions)
    ]
    by_minute: dict[datetime, float] = {}
    window = {"MetricDataQueries": queries, "StartTime": start, "EndTime": end}
    for result in session.pages("cloudwatch", "get_metric_data", "MetricDataResults", **window):
        for at, value in zip(result["Timestamps"], result["Values"], strict=True):
            by_minute[at] = by_minute.get(at, 0.0) + float(value)
    if not any(by_minute.values()):
        period = f"{days} day{'s' * (days != 1)}"
        raise Unavailable(
            f"--trace cloudwatch:{endpoint}: CloudWatch has no invocation of {endpoint} in the last {period}. Look "
            "further back with --days, or simulate a shape with --trace."
        )
    rates = [by_minute.get(start + number * MINUTE, 0.0) / 60 for number in range(days * 24 * 60)]
    sha256 = hashlib.sha256(json.dumps([start.isoformat(), rates]).encode()).hexdigest()
    return Trace(name=endpoint, sha256=sha256, start=start, rates=np.array(rates))
