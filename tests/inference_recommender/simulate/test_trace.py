"""Recorded traces: the accepted lines, and a message for each wrong one; shapes."""

from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest

from inference_recommender.simulate.shapes import SHAPES, ShapeName, shape
from inference_recommender.simulate.trace import Trace, parse_trace, read_trace, trace_csv
from tests.builders import message_of
from tests.inference_recommender.simulate.test_simulation import OBJECTIVE
from workloads import Sizing, UsageError

EXAMPLE = "A line is a time and requests per second: 2026-11-22T13:00:00Z,41.5."


def parsed(*lines: str) -> Trace:
    return parse_trace("t.csv", "\n".join(lines), "abc", "t.csv")


def refusal(*lines: str) -> str:
    return message_of(UsageError, parsed, *lines)


def test_a_trace_of_minutes_is_read_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "black-friday.csv"
    file.write_text("time,requests per second\n2026-11-27T00:00:00Z,10\n2026-11-27T00:01:00Z,20.5\n\n", "utf-8")
    trace = read_trace(file)
    assert (trace.name, trace.start) == ("black-friday.csv", datetime(2026, 11, 27, tzinfo=UTC))
    assert trace.rates.tolist() == [10, 20.5]
    assert len(trace.sha256) == 64
    assert parsed(*trace_csv(trace.load(3)).splitlines()).rates.tolist() == [10, 20.5]


def test_coarser_times_hold_their_rate_and_finer_ones_are_averaged() -> None:
    assert parsed("0,1", "300,2").rates.tolist() == [1] * 5 + [2] * 5
    assert parsed(*(f"{second},{second % 10}" for second in range(150))).rates.tolist() == [4.5, 4.5]
    assert parsed("2026-11-27T00:00:00+02:00,1", "2026-11-27T00:01:00+02:00,1").start.hour == 22


@pytest.mark.parametrize(
    ("lines", "sentence"),
    [
        (("time,rate",), f"t.csv: has no line with a rate; a trace needs at least 2. {EXAMPLE}"),
        (("0,1",), f"t.csv: has one line with a rate; a trace needs at least 2. {EXAMPLE}"),
        (("0,1", "60,2", "60,3"), "t.csv:3: is not after the line before it; sort the trace by time."),
        (("0,1", "60,-2"), "t.csv:2: got -2 requests per second; a rate cannot be negative."),
        (("0,1", "60,x"), "t.csv:2: got 'x' for requests per second, which is no number."),
        (("0,1", "noon,2"), f"t.csv:2: got 'noon' for a time, which is not ISO 8601. {EXAMPLE}"),
        (("0,1", "60,2,3"), f"t.csv:2: has 3 columns instead of two. {EXAMPLE}"),
        (
            ("2026-11-22T13:00:00Z,1", "2026-11-22T13:01:00+02:00,1"),
            "t.csv:2: time zones are mixed: +0200, after +0000 in line 1. Write all times in UTC.",
        ),
        (("0,1", "7,1"), "t.csv: lines are 7 s apart. Allowed: 1, 2, 5 or 10 s, or whole minutes; 60 s fits best."),
        (("0,1", "10,1"), "t.csv: is shorter than a minute: record for longer."),
        (("0,1", "604800000,1"), "t.csv: is longer than two years; simulate a part of it."),
    ],
)
def test_wrong_lines_are_refused(lines: tuple[str, ...], sentence: str) -> None:
    assert refusal(*lines) == sentence


def test_a_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "t.csv"
    file.write_bytes(b"\xff\xfe0")
    with pytest.raises(UsageError, match=r"^--trace: .*t\.csv cannot be read: "):
        read_trace(file)


@pytest.mark.parametrize("name", SHAPES)
def test_a_shape_reaches_the_peak_and_the_trough_and_depends_on_its_seed_alone(name: ShapeName) -> None:
    found = shape(name, OBJECTIVE, Sizing())
    rates = np.array([found.load(seed).rates for seed in range(8)])
    assert (found.load(3).rates == rates[3]).all()
    assert (rates[0] != rates[1]).any()
    assert rates.shape[1] == (7 if name in ("weekly", "steady-growth") else 1) * 1440
    assert 850 <= rates.max() <= 1200
    assert 80 <= rates.min() <= 120


def test_a_zone_is_lost_near_the_peak() -> None:
    (lost,) = shape("zone-lost", OBJECTIVE, Sizing(availability_zones=3)).load(0).losses
    assert lost.zones == 3
    assert 14 * 3600 <= lost.at_s <= 18 * 3600
