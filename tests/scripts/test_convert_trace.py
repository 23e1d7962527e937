"""Counts per minute of public traces become a trace of `simulate`."""

from datetime import UTC, date, datetime
from pathlib import Path

import pytest

from inference_recommender.simulate.trace import read_trace
from scripts.convert_trace import main


@pytest.fixture
def counts(tmp_path: Path) -> Path:
    """Two days, of which the second one has its third minute twice and not its fourth."""
    lines = [
        f"1998-06-{day:02} {minute // 60:02}:{minute % 60:02}:00,{minute}" for day in (1, 2) for minute in range(1440)
    ]
    lines[1440 + 3] = lines[1440 + 2]
    file = tmp_path / "counts.csv"
    file.write_text("\n".join(["period,count", *lines]) + "\n", "utf-8")
    return file


def test_days_are_cut_out_and_scaled(counts: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = counts.read_text("utf-8").splitlines()
    counts.write_text("\n".join(text[:500] + text[501:]) + "\n", "utf-8")
    assert main([str(counts), "--from", "1998-06-01", "--days", "1", "--peak", "6000"]) == 0
    shown = capsys.readouterr()
    assert shown.err == "1,440 minutes, 1 of them missing in counts.csv.\n"
    (tmp_path / "day.csv").write_text(shown.out, "utf-8")
    trace = read_trace(tmp_path / "day.csv")
    assert (trace.start, len(trace.rates)) == (datetime(1998, 6, 1, tzinfo=UTC), 1440)
    assert trace.rates.max() == pytest.approx(100)
    assert trace.rates[499] == trace.rates[498], "the missing minute has the count before it"


@pytest.mark.parametrize(
    ("first", "sentence"),
    [
        (date(1998, 6, 2), "counts.csv:1445: 1998-06-02 00:02:00 comes twice"),
        (date(1998, 6, 3), "counts.csv: does not have all of the 1 days from 1998-06-03 on"),
    ],
)
def test_wrong_counts_are_refused(first: date, sentence: str, counts: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as refused:
        main([str(counts), "--from", first.isoformat(), "--days", "1"])
    assert refused.value.code == 2
    assert sentence in capsys.readouterr().err
