"""The benchmark of policies on unseen days, with two days of made-up counts."""

from pathlib import Path

import pytest

from benchmarks.searches import unseen_days


def test_the_table_and_the_goals_are_of_the_best_policy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Counts hardly change, so every policy holds."""
    minutes = ((day, minute) for day in (21, 22) for minute in range(1440))
    lines = (f"1998-06-{day} {minute // 60:02}:{minute % 60:02}:00,{1000 + minute % 2}" for day, minute in minutes)
    (tmp_path / "counts.csv").write_text("\n".join(["period,count", *lines]) + "\n", "utf-8")
    monkeypatch.setattr(unseen_days, "DAYS", 1)
    monkeypatch.setattr(unseen_days, "CHOSEN_ON", 1)
    monkeypatch.setattr(unseen_days, "optimised", lambda case, today: today)
    assert unseen_days.main(["--counts", str(tmp_path / "counts.csv")]) == 0
    shown = capsys.readouterr().out
    assert [line.split()[:4] for line in shown.splitlines()[2:7]] == [
        [name, "1", "of", "1"] for name in ("optimised", "recommended", "step", "predictive", "growth")
    ]
    assert unseen_days.main(["--counts", "none.csv"]) == 4
