"""The performance gate: false alarms and power on simulated runs, refusals in words, the command's exit codes."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from inference_recommender.__main__ import main
from inference_recommender.capacity.closed_loop import Limit, capacity
from inference_recommender.capacity.compare import compare
from inference_recommender.measurement import Measurement, Series
from inference_recommender.run_folder import RunFolder
from tests.inference_recommender.capacity.simulated_service import COLD, Model, SimulatedService
from workloads import LatencyObjective, load_workload

OBJECTIVE = LatencyObjective(percentile="P99", model_latency_ms=60.0, peak_invocations_per_minute=1000)
SLOWER = replace(COLD, fixed_ms=COLD.fixed_ms * 1.1, per_unit_ms=COLD.per_unit_ms * 1.1)
STAIRS = [step * 15.0 for step in range(6) for _ in range(4)], 90
WALK = [0.0, *(20 + 2.5 * user for user in range(16))], 60
"""`make run`: one user for 20 s, then two and more, 24 a minute, for 40 s."""

Traffic = tuple[list[float], int]


def _measured(model: Model, seed: int, traffic: Traffic) -> Measurement:
    """A simulated run, read as a job's is: a point a second."""
    joins, seconds = traffic
    run = SimulatedService(model, seed).closed_loop(joins, seconds)
    found = capacity(
        run.finished_s, run.latencies_ms, run.succeeded, Limit(percentile=99, latency_ms=60), float(seconds)
    )
    assert found is not None
    parts = np.split(run.latencies_ms, np.searchsorted(run.finished_s, np.arange(1, seconds)))
    return Measurement(
        instance_type="ml.c5.xlarge",
        endpoint_name="simulated",
        max_invocations_per_minute=found.invocations_per_minute,
        max_invocations_interval=found.interval,
        model_latency_ms=found.latency_ms,
        warm_up_s=found.warm_up_s,
        series=Series(
            period_s=1,
            seconds=tuple(float(second) for second in range(seconds)),
            users=tuple(float(np.searchsorted(joins, second, side="right")) for second in range(seconds)),
            invocations=tuple(float(len(part)) for part in parts),
            errors=(0.0,) * seconds,
            latency_ms={f"p{rank}": tuple(float(np.percentile(part, rank)) for part in parts) for rank in (50, 99)},
        ),
    )


def _figures(baseline: Measurement, candidate: Measurement) -> list[str]:
    return [one.figure for one in compare([baseline], [candidate], OBJECTIVE).regressions]


def _count(model: Model, seeds: range, traffic: Traffic) -> int:
    """In how many comparisons the gate fails."""
    pairs = ((_measured(COLD, seed, traffic), _measured(model, 1000 + seed, traffic)) for seed in seeds)
    return sum(bool(_figures(*pair)) for pair in pairs)


@pytest.mark.parametrize("traffic", [STAIRS, WALK], ids=["stairs", "walk"])
def test_identical_services_seldom_fail_and_one_that_is_ten_percent_slower_nearly_always(traffic: Traffic) -> None:
    assert _count(COLD, range(15), traffic) <= 2
    assert _count(SLOWER, range(15), traffic) >= 14


@pytest.mark.slow
@pytest.mark.parametrize("traffic", [STAIRS, WALK], ids=["stairs", "walk"])
def test_false_alarms_are_at_most_7_of_a_hundred_and_the_power_at_least_95(traffic: Traffic) -> None:
    """5 % is promised; 7 of a hundred or fewer come of it with a probability of 87 %."""
    assert _count(COLD, range(100), traffic) <= 7
    assert _count(SLOWER, range(100), traffic) >= 95


def _plain(rate: float = 10_000.0, spread: float = 0.02, **given: Any) -> Measurement:
    interval = (rate * (1 - spread), rate * (1 + spread))
    known = {"max_invocations_per_minute": rate, "max_invocations_interval": interval, "model_latency_ms": 40.0}
    return Measurement(**{"instance_type": "ml.c5.xlarge", "endpoint_name": "e", **known, **given})


@given(loss=st.floats(0, 0.5), spread=st.floats(0.001, 0.1))
def test_a_loss_fails_exactly_where_it_is_beyond_both_intervals_together(loss: float, spread: float) -> None:
    baseline, candidate = _plain(spread=spread), _plain(rate=10_000 * (1 - loss), spread=spread)
    failed = bool(_figures(baseline, candidate))
    noise = np.hypot(np.log1p(spread), -np.log1p(-spread))
    if -np.log1p(-loss) > noise * 1.01 and loss > 0.021:
        assert failed
    if -np.log1p(-loss) < noise * 0.99 or loss < 0.019:
        assert not failed


@given(gain=st.floats(0, 3))
def test_a_better_candidate_never_fails(gain: float) -> None:
    assert not _figures(_plain(), _plain(rate=10_000 * (1 + gain)))


def test_a_latency_that_rose_at_equal_load_fails_though_the_capacity_held() -> None:
    def course(latency_ms: float) -> Series:
        random = np.random.default_rng(int(latency_ms))
        values = tuple(float(value) for value in latency_ms * random.normal(1, 0.02, 60))
        return Series(
            period_s=1,
            seconds=tuple(map(float, range(60))),
            users=(4.0,) * 60,
            invocations=(100.0,) * 60,
            errors=(0.0,) * 60,
            latency_ms={"p99": values},
        )

    found = compare([_plain(series=course(20))], [_plain(series=course(23))], OBJECTIVE)
    assert [one.figure for one in found.regressions] == ["P99 ms at equal load"]
    assert found.regressions[0].ratio == pytest.approx(1.15, rel=0.01)


def _unfit(baseline: Sequence[Measurement], candidate: Sequence[Measurement]) -> tuple[str, ...]:
    found = compare(baseline, candidate, OBJECTIVE)
    assert not found.regressions
    return found.unfit


def test_runs_that_carry_no_verdict_are_told_with_what_to_do() -> None:
    assert _unfit([], [_plain()]) == ("The baseline has no results: measure it again.",)
    assert _unfit([_plain()], [_plain(instance_type="ml.c6i.xlarge")]) == (
        "The candidate did not test ml.c5.xlarge: measure it on what the baseline was measured on.",
    )
    assert _unfit([_plain()], [_plain(failure_reason="The container died.")]) == (
        "The candidate's test of ml.c5.xlarge failed: The container died. Measure it again.",
    )
    assert _unfit([_plain(max_invocations_per_minute=None)], [_plain()]) == (
        "The baseline has no capacity of ml.c5.xlarge: measure it again, with traffic that it can bear.",
    )
    assert _unfit([_plain()], [_plain(max_invocations_interval=None, variant="pt-db")]) == (
        "The candidate did not test ml.c5.xlarge: measure it on what the baseline was measured on.",
    )
    assert _unfit([_plain()], [_plain(max_invocations_interval=None)]) == (
        "The candidate does not say how sure its capacity of ml.c5.xlarge is: its traffic was too short, or no load "
        "surely kept the limit. Measure it again with longer phases.",
    )
    assert _unfit([_plain(spread=0.3)], [_plain(spread=0.3)]) == (
        "ml.c5.xlarge: the noise of the two runs could hide a loss of 36% of capacity, more than 25%. Measure both "
        "again with longer phases.",
    )


def test_a_latency_that_cannot_be_compared_is_told_and_the_capacity_decides() -> None:
    found = compare([_plain(variant="db")], [_plain(variant="db")], OBJECTIVE)
    assert found.unfit == ()
    assert found.not_compared == (
        "db ml.c5.xlarge: latency was not compared: a run has no course of P99 by users of at least 10 periods.",
    )


def _run(folder: Path, measured: Measurement, workload: str = "spellcheck", users: int = 1) -> str:
    kept = RunFolder(folder)
    kept.keep_workload(load_workload(workload).workload)
    kept.keep("request.json", {"InputConfig": {"TrafficPattern": {"Users": users}}})
    kept.keep_measurements((measured,))
    return str(folder)


def test_the_command_passes_fails_and_abstains(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old, same = _run(tmp_path / "old", _plain()), _run(tmp_path / "same", _plain(rate=10_100))
    slow, unsure = _run(tmp_path / "slow", _plain(rate=8_000)), _run(tmp_path / "unsure", _plain(spread=0.5))
    assert main(["compare", old, same, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["verdict"] == "no regression shown"
    assert main(["compare", old, slow]) == 1
    shown = capsys.readouterr()
    assert "-20.0%" in shown.out
    assert shown.err.endswith(
        "Regression beyond the noise: ml.c5.xlarge: max invocations per minute -20.0% (-22.2% to -17.7%). Do not "
        "release the candidate: find what made it slower, or, if the loss is meant, size it anew and make its run the "
        "baseline.\n"
    )
    assert main(["compare", old, unsure, "--json"]) == 4
    shown = capsys.readouterr()
    assert json.loads(shown.out)["verdict"] == "none"
    assert shown.err.endswith(
        "No verdict: neither release on these runs nor reject; do what is said above and compare again.\n"
    )


def test_runs_of_different_workloads_or_traffic_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old = _run(tmp_path / "old", _plain())
    other = _run(tmp_path / "other", _plain(), workload="text_classification")
    assert main(["compare", old, other]) == 2
    assert capsys.readouterr().err == (
        f"{other}: its workload is text_classification, but that of the baseline {old} is spellcheck. Only runs of the "
        "same workload and traffic compare: measure the candidate with the baseline's workload.\n"
    )
    busier = _run(tmp_path / "busier", _plain(), users=2)
    assert main(["compare", old, busier]) == 2
    assert capsys.readouterr().err == (
        f'{busier}: its traffic is {{"Users":2}}, but that of the baseline {old} is {{"Users":1}}. Only runs of the '
        "same workload and traffic compare: measure the candidate with the baseline's traffic.\n"
    )
    assert main(["compare", old, str(tmp_path / "nowhere")]) == 2
    assert capsys.readouterr().err == f"{tmp_path / 'nowhere'} is no run folder: it has no workload.json.\n"
