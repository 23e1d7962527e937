"""Counts per minute of public traces become a trace of `simulate`."""

from datetime import UTC, date, datetime
from pathlib import Path

import pytest

from inference_recommender.simulate.trace import parse_trace
from scripts.convert_trace import convert, main
from tests.builders import message_of
from workloads import UsageError


@pytest.fixture
def counts(tmp_path: Path) -> Path:
    """Two days of rising counts, without the minute 500 of the first one."""
    minutes = [(day, minute) for day in (1, 2) for minute in range(1440) if (day, minute) != (1, 500)]
    lines = (f"1998-06-{day:02} {minute // 60:02}:{minute % 60:02}:00,{minute}" for day, minute in minutes)
    file = tmp_path / "counts.csv"
    file.write_text("\n".join(["period,count", *lines]) + "\n", "utf-8")
    return file


def test_days_are_cut_out_and_scaled(counts: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(counts), "--from", "1998-06-01", "--days", "1", "--peak", "6000"]) == 0
    trace = parse_trace("day.csv", capsys.readouterr().out, "", "day.csv")
    assert (trace.start, len(trace.rates)) == (datetime(1998, 6, 1, tzinfo=UTC), 1440)
    assert trace.rates.max() == pytest.approx(100)
    assert trace.rates[500] == trace.rates[499], "the missing minute has the count before it"


@pytest.mark.parametrize(("day", "days"), [(2, 2), (3, 1)])
def test_days_outside_the_file_are_refused(counts: Path, day: int, days: int) -> None:
    assert message_of(UsageError, convert, counts, date(1998, 6, day), days) == (
        f"{counts}: does not have all of the {days} days from 1998-06-0{day} on."
    )
