"""The document of a survey: what was fitted, how far off it is, and what must be known of it."""

from pathlib import Path

import pytest

from inference_recommender.cli.report import kind_of, report
from inference_recommender.lengths.result import NAME, LengthSurface, Measured, Origin, sentences, surface
from inference_recommender.lengths.shifts import Bounds
from inference_recommender.lengths.surface import Sample
from inference_recommender.lengths.terminal import show
from inference_recommender.report.lengths import lengths_table, shifts_table
from tests.inference_recommender.lengths.test_shifts import OBJECTIVE, SIZING, turned
from workloads import load_workload

ORIGIN = Origin(
    asked="a Triton of this machine with cpu",
    archive_sha256="a" * 64,
    measured_on="local",
    machine="AMD EPYC with 2 cores",
    measured_at="2026-11-23T09:00:00+00:00",
    run="runs/spellcheck-lengths-1",
)
BOUNDS = Bounds(inputs=64, outputs=32)
GRID = [(n, m) for n in (5, 11, 20, 64) for m in (5, 11, 32)]


def sample(n: int, m: int, factor: float = 1.0) -> Sample:
    return Sample(input_tokens=n, output_tokens=m, latency_ms=(1 + 0.05 * n + 0.2 * m) * factor)


def found(measured: Measured, bounds: Bounds = BOUNDS) -> LengthSurface:
    return surface(
        "spellcheck",
        measured,
        ORIGIN,
        bounds,
        objective=OBJECTIVE,
        sizing=SIZING,
        invocations_per_minute=26_960.0,
    )


def measured(**changes: object) -> Measured:
    whole = {
        "payloads": tuple(sample(n, n, 1.1) for n in range(5, 15)),
        "grid": tuple(sample(n, n // 2) for n, _ in GRID),
        "forced": tuple(sample(n, m, factor) for n, m in GRID for factor in (0.99, 1.0, 1.01)),
        "under_load": tuple(sample(n, n // 2, 1.5) for n, _ in GRID),
        "load_invocations_per_minute": 6_000.0,
        "kinds": (turned("as measured", 1.0), turned("+25 %", 0.8), turned("all at the limits", 0.4)),
    }
    return Measured.model_validate({**whole, **changes})


def test_a_surface_is_kept_with_its_model_and_held_to_payloads_it_has_not_seen(
    capsys: pytest.CaptureFixture[str],
) -> None:
    result = found(measured())
    assert result.forced
    assert (len(result.points), result.points[0].requests) == (12, 3)
    assert result.fit is not None
    assert [round(each.ms, 3) for each in result.fit.coefficients] == [1.0, 0.05, 0.2]
    assert result.check is not None
    assert result.check.off == pytest.approx(-0.0909, abs=1e-3)
    assert result.cautions == ()
    assert list(sentences(result)) == [
        "Latency ≈ a + b·n + c·m for n tokens in and m out: a = 1 ms (1 to 1), b = 0.05 ms (0.05 to 0.05), c = 0.2 ms "
        "(0.2 to 0.2); off by 0.0% on lengths left out, by 0% at worst; the medians' own noise is 0.0%.",
        "The 9 payloads themselves, which it was not fitted to, took 3.57 ms on average alone; it predicts 3.25 "
        "(-9.1%).",
    ]
    assert [each.name for each in result.lengths.shifts] == ["as measured", "+25 %", "all at the limits"]
    as_measured, *_, longest = result.lengths.shifts
    assert as_measured.max_invocations_per_minute == 26_960
    assert longest.scale_of_throughput == pytest.approx(0.4)
    show(result, "P99")
    shown = capsys.readouterr().out
    assert "in   5 out   11 out   32 out" in shown
    assert "all at the limits" in shown


def test_the_report_has_the_shifts_with_where_they_are_from() -> None:
    lengths = found(measured()).lengths
    table, percentiles = shifts_table(lengths), lengths_table(lengths)
    assert table is not None
    assert percentiles is not None
    assert table.rows[0]["payloads"] == "as measured"
    assert table.rows[0]["scale_within_limit"] == table.rows[0]["most_by_turn"] == 1
    assert "on AMD EPYC with 2 cores, in turns, by closed-loop users" in table.note
    assert percentiles.note.endswith("the model takes 64 tokens.")


def test_without_a_model_the_surface_is_as_measured_and_shifts_are_too() -> None:
    uneven = tuple(Sample(input_tokens=n, output_tokens=n % 7 + 1, latency_ms=1.0 + 9 * (n % 2)) for n in range(5, 40))
    result = found(measured(forced=(), grid=uneven, payloads=uneven))
    assert (result.fit, result.check, result.lengths.model) == (None, None, None)
    assert len(result.lengths.shifts) == 3
    assert result.cautions == (
        "No model of latency by length is near enough: the surface is as measured.",
        "Answers had the lengths that the model gave them: this server takes no length to force.",
    )


def test_an_encoder_has_no_answers() -> None:
    few = Bounds(inputs=64, outputs=0)
    grid = tuple(sample(n, 0) for n in (4, 16, 17, 64) for _ in range(4))
    result = found(measured(forced=(), grid=grid, payloads=grid[:8], under_load=grid), few)
    assert result.fit is not None
    assert result.lengths.output_tokens is None
    assert result.cautions == ()


def test_the_folder_of_a_survey_has_a_report(tmp_path: Path) -> None:
    surface = found(measured())
    surface.write_json(tmp_path / NAME)
    worst = surface.lengths.shifts[-1]
    load_workload("spellcheck").workload.write_json(tmp_path / "workload.json")
    assert kind_of(tmp_path) == "lengths"
    drawn = report(tmp_path)
    assert drawn.verdict == "met"
    assert drawn.decision == (
        f"Where payloads are all at the limits, an instance bears at most {worst.scale_within_limit:.2f} times as "
        "many; size the fleet anew before the lengths shift so far."
    )
    names = [table.name for table in drawn.tables]
    assert names == ["length-shifts", "lengths", "lengths-alone", "lengths-under-load", "lengths-by-users"]
    assert len(drawn.tables[2].rows) == len(GRID)
