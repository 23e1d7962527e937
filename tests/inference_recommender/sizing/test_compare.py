"""The performance gate: false alarms and power on simulated runs, and refusals in words."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.searches.simulated_service import COLD, Service, SimulatedService
from inference_recommender.capacity.closed_loop import capacity
from inference_recommender.capacity.statistics import Limit
from inference_recommender.capacity.time_series import Series
from inference_recommender.measurement import Measurement
from inference_recommender.sizing.compare import compare
from tests.builders import a_measurement, known
from workloads import LatencyObjective

OBJECTIVE = LatencyObjective(percentile="P99", model_latency_ms=60.0, peak_invocations_per_minute=1000)
SLOWER = replace(COLD, fixed_ms=COLD.fixed_ms * 1.1, per_unit_ms=COLD.per_unit_ms * 1.1)
STAIRS = [step * 15.0 for step in range(6) for _ in range(4)], 90
WALK = [0.0, *(20 + 2.5 * user for user in range(16))], 60
"""`make run`: one user for 20 s, then two and more, 24 a minute, for 40 s."""

Traffic = tuple[list[float], int]


def _measured(model: Service, seed: int, traffic: Traffic) -> Measurement:
    """A simulated run, read as a job's is: a point a second."""
    joins, seconds = traffic
    run = SimulatedService(model, seed).closed_loop(joins, seconds)
    succeeded, limit = np.ones(len(run.finished_s), dtype=bool), Limit(percentile=99, latency_ms=60)
    estimate = known(capacity(run.finished_s, run.latencies_ms, succeeded, limit, float(seconds)))
    parts = np.split(run.latencies_ms, np.searchsorted(run.finished_s, np.arange(1, seconds)))
    return a_measurement(
        estimate.invocations_per_minute,
        closed_loop_invocations_interval=estimate.interval,
        warm_up_s=estimate.warm_up_s,
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
    return [difference.figure for difference in compare([baseline], [candidate], OBJECTIVE).regressions]


@pytest.mark.parametrize("traffic", [STAIRS, WALK], ids=["stairs", "walk"])
@pytest.mark.parametrize(
    ("seeds", "false_alarms", "found"), [(10, 1, 10), pytest.param(100, 7, 95, marks=pytest.mark.slow)]
)
def test_identical_services_seldom_fail_and_one_that_is_ten_percent_slower_nearly_always(
    traffic: Traffic, seeds: int, false_alarms: int, found: int
) -> None:
    """5 % are promised; 7 of a hundred or fewer come of it with a probability of 87 %. Of ten, two or more are false
    alarms with a probability of 9 % where 5 % of comparisons are, and of 62 % where 20 % are.
    """
    baselines = [_measured(COLD, seed, traffic) for seed in range(seeds)]
    identical, slower = (
        sum(bool(_figures(each, _measured(service, 1000 + seed, traffic))) for seed, each in enumerate(baselines))
        for service in (COLD, SLOWER)
    )
    assert identical <= false_alarms
    assert slower >= found


def _plain(rate: float = 10_000.0, spread: float = 0.02, **given: Any) -> Measurement:
    interval = (rate * (1 - spread), rate * (1 + spread))
    return a_measurement(**{"rate": rate, "closed_loop_invocations_interval": interval, **given})


@given(loss=st.floats(0, 0.5), spread=st.floats(0.001, 0.1))
def test_a_loss_fails_exactly_where_it_is_beyond_both_intervals_together(loss: float, spread: float) -> None:
    baseline, candidate = _plain(spread=spread), _plain(rate=10_000 * (1 - loss), spread=spread)
    failed = bool(_figures(baseline, candidate))
    noise = np.hypot(np.log1p(spread), -np.log1p(-spread))
    if -np.log1p(-loss) > noise * 1.01 and loss > 0.021:
        assert failed
    if -np.log1p(-loss) < noise * 0.99 or loss < 0.019:
        assert not failed


def test_a_latency_that_rose_at_equal_load_fails_though_the_capacity_held() -> None:
    def series(latency_ms: float) -> Series:
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

    comparison = compare([_plain(series=series(20))], [_plain(series=series(23))], OBJECTIVE)
    assert [difference.figure for difference in comparison.regressions] == ["P99 ms at equal load"]
    assert comparison.regressions[0].ratio == pytest.approx(1.15, rel=0.01)


def test_a_latency_that_cannot_be_compared_is_reported_and_the_capacity_decides() -> None:
    comparison = compare([_plain(variant="db")], [_plain(variant="db")], OBJECTIVE)
    assert comparison.unfit == ()
    assert comparison.not_compared == (
        "ml.c5.xlarge db: latency was not compared: a run has no course of P99 by users of at least 10 periods.",
    )


@pytest.mark.parametrize(
    ("baseline", "candidate", "reason"),
    [
        ([], _plain(), "The baseline has no results: measure it again."),
        (
            [_plain()],
            _plain(variant="pt-db"),
            "The candidate did not test ml.c5.xlarge: measure it on what the baseline was measured on.",
        ),
        (
            [_plain()],
            _plain(failure_reason="The container died."),
            "The candidate's test of ml.c5.xlarge failed: The container died. Measure it again.",
        ),
        (
            [_plain(closed_loop_invocations_per_minute=None)],
            _plain(),
            "The baseline has no capacity of ml.c5.xlarge: measure it again with lighter traffic.",
        ),
        (
            [_plain()],
            _plain(closed_loop_invocations_interval=None),
            "The candidate's capacity of ml.c5.xlarge has no interval: its traffic was too short, or no load clearly "
            "kept the limit. Measure it again with longer phases.",
        ),
        (
            [_plain(spread=0.3)],
            _plain(spread=0.3),
            "ml.c5.xlarge: the noise of the two runs could hide a loss of 36% of capacity, more than 25%. Measure both "
            "again with longer phases.",
        ),
    ],
)
def test_runs_that_carry_no_verdict_are_reported_with_what_to_do(
    baseline: list[Measurement], candidate: Measurement, reason: str
) -> None:
    comparison = compare(baseline, [candidate], OBJECTIVE)
    assert (comparison.regressions, comparison.unfit) == ((), (reason,))
