"""The summary of a run, of one generator and of several: capacity, latencies, and the records of all."""

import math
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

from inference_recommender.load_generator.load_plan import (
    Arrivals,
    LoadPlan,
    ModelLatencyThreshold,
    Share,
    StoppingConditions,
    arrival_times,
)
from inference_recommender.load_generator.process import Outcome
from inference_recommender.load_generator.self_watch import SelfWatch
from inference_recommender.load_generator.summary import (
    LoadSummary,
    MeasuredRun,
    NothingToMerge,
    merge,
    summarise,
    why_invalid,
)
from tests.builders import message_of
from tests.inference_recommender.load_generator.virtual_run import (
    START_S,
    plan_of,
    records_of,
    run_command,
    sent_requests,
)
from tests.virtual_time import EPOCH, Network, Serve, answering

GENERATORS = 3


def _run_all(plan: LoadPlan, folder: Path, serve: Serve) -> tuple[list[Outcome], list[Network]]:
    """Runs the shares of `plan`; each generator starts 50 ms after the one before, as on machines of their own."""
    outcomes, networks = [], [Network(serve) for _ in range(GENERATORS)]
    for index, network in enumerate(networks):
        share = plan.model_copy(
            update={"share": Share(index=index, of=GENERATORS), "start_at": EPOCH + START_S + 2.2 + 0.05 * index}
        )
        outcomes.append(run_command(share, serve, folder / f"generator-{index}", network=network))
    return outcomes, networks


def test_the_merged_run_of_several_generators_is_that_of_all_their_records(tmp_path: Path) -> None:
    arrivals = Arrivals(invocations_per_minute=9000, duration_in_seconds=4, seed=3, connections=12)
    random = Random(1)
    plan = plan_of(arrivals)
    outcomes, _ = _run_all(plan, tmp_path, answering(lambda request: random.lognormvariate(-5, 0.5)))
    merged = merge(outcomes, plan, tmp_path / "merged")
    assert merged.summary is not None
    assert merged.summary["ended"] == "traffic ended"

    records = [records_of(outcome) for outcome in outcomes]
    intended = np.sort(np.concatenate([columns["intended_s"] for columns in records]))
    assert intended == pytest.approx(arrival_times(arrivals), abs=1e-6), "each arrival is one generator's"

    started = [outcome.summary["started_at"] for outcome in outcomes if outcome.summary]
    offset = np.concatenate([np.full(len(c["sent_s"]), at) for c, at in zip(records, started, strict=True)])
    every = {name: np.concatenate([columns[name] for columns in records]) for name in records[0]}
    finished_at = every["finished_s"] + offset
    both = records_of(merged)
    first = merged.summary["started_at"]
    assert (first, merged.summary["duration_s"]) == (math.ceil(max(started)), 3)
    for second in range(int(first), int(first + 3)):
        of_all = (finished_at >= second) & (finished_at < second + 1)
        of_merged = np.floor(both["finished_s"] + first) == second
        assert of_merged.sum() == of_all.sum() > 100
        for start in ("sent_s", "intended_s"):
            exact = (every["finished_s"] - every[start])[of_all]
            assert np.sort((both["finished_s"] - both[start])[of_merged]) == pytest.approx(np.sort(exact))


def _outcome(folder: Path, exit_code: int, reason: str, **summary: Any) -> Outcome:
    generator = {"cpu_share": 0.1, "lag_ms": 1.0}
    document = {
        "started_at": 1000.0,
        "duration_s": 10.0,
        "unserved_s": 0.0,
        "first_error": None,
        "generator": generator,
        "ended": "traffic ended" if exit_code == 4 else reason,
    }
    return Outcome(folder=folder, exit_code=exit_code, reason=reason, summary={**document, **summary})


FEW = "too few samples: P95 needs at least 59 independent requests at one load; the run had 50 in all"
LAGGED = "generator lagged: its own clock came 60 ms late"
FAILED = "target failed: h refuses connections (Connection refused)"


@pytest.mark.parametrize(
    ("of_each", "of_all"),
    [
        ([(0, "traffic ended")] * 3, (0, "traffic ended")),
        ([(4, FEW)] * 3, (0, "traffic ended")),  # together they have enough
        ([(0, "traffic ended"), (0, "max invocations"), (4, FEW)], (0, "max invocations")),
        ([(0, "traffic ended"), (4, LAGGED), (4, FEW)], (4, LAGGED)),
        ([(4, LAGGED), (0, "traffic ended"), (3, FAILED)], (3, FAILED)),
        ([(0, "traffic ended"), (0, "stopped"), (4, FEW)], (0, "stopped")),
    ],
)
def test_one_generator_s_failure_decides_for_all_but_for_too_few_samples(
    tmp_path: Path, of_each: list[tuple[int, str]], of_all: tuple[int, str]
) -> None:
    outcomes = []
    for number, (exit_code, reason) in enumerate(of_each):
        folder = tmp_path / str(number)
        folder.mkdir()
        finished = np.sort(np.random.default_rng(number).uniform(0, 10, 300))
        sent_requests(finished, 5.0, 1.0).write(folder / "records.npz")
        outcomes.append(_outcome(folder, exit_code, reason))
    arrivals = Arrivals(invocations_per_minute=5400, duration_in_seconds=10)
    merged = merge(outcomes, LoadPlan(url="http://h/", payloads=tmp_path, arrivals=arrivals), tmp_path / "merged")
    assert (merged.exit_code, merged.reason) == of_all
    assert merged.summary is not None
    assert (merged.summary["reason"], merged.summary["generators"]) == (of_all[1], 3)
    assert merged.summary["closed_loop_invocations_per_minute"] == pytest.approx(3 * 300 * 6, rel=0.1)


def test_generators_that_never_ran_at_once_are_not_merged(tmp_path: Path) -> None:
    plan = LoadPlan(
        url="http://h/", payloads=tmp_path, arrivals=Arrivals(invocations_per_minute=1, duration_in_seconds=1)
    )
    outcomes = [_outcome(tmp_path, 0, "traffic ended"), _outcome(tmp_path, 0, "traffic ended", started_at=2000.0)]
    assert message_of(NothingToMerge, merge, outcomes, plan, tmp_path / "merged") == (
        "The 2 generators did not send at the same time for one second: the last started at 2000.0 s and the first "
        "ended at 1010.0 s since the epoch. Give their plans one start_at, and check the clocks."
    )
    crashed = Outcome(folder=tmp_path, exit_code=1, reason="it said nothing", summary=None)
    message = message_of(NothingToMerge, merge, [crashed], plan, tmp_path / "merged")
    assert message == f"{tmp_path} has no summary: it said nothing"


def test_each_stops_at_its_part_of_the_invocations() -> None:
    conditions = StoppingConditions(max_invocations=1000)
    assert conditions.of_one_in(3).max_invocations == 334
    assert conditions.of_one_in(1) == conditions
    assert StoppingConditions().of_one_in(3).max_invocations is None


WATCH = SelfWatch(cpu_share=0.1, lag_ms=0.1)
LIMIT = StoppingConditions(
    model_latency_thresholds=(ModelLatencyThreshold(percentile="P95", value_in_milliseconds=50),)
)


def _measured(held_ms: float = 5.0, *, open_loop: bool = True, failed: float = 0.0, **members: Any) -> MeasuredRun:
    """Twenty seconds at 100 a second, 10 ± 1 ms each, held back by `held_ms` before they were sent."""
    random = np.random.default_rng(5)
    finished = np.sort(random.uniform(0, 20, 2000))
    latencies = random.normal(10, 1, 2000)
    given = {
        "requests": sent_requests(finished, latencies, held_ms, np.where(np.arange(2000) < failed * 2000, 500, 200)),
        "unserved_s": 0.0,
        "open_loop": open_loop,
        "started_at": 1000.0,
        "duration_s": 20.0,
        "first_error": None,
        "ended": "traffic ended",
        "generator": WATCH,
    }
    return MeasuredRun(**{**given, **members})


def _summary(measured: MeasuredRun) -> LoadSummary:
    return summarise(measured, LIMIT)


def test_an_open_loop_is_judged_from_intended_send_and_users_from_actual_send() -> None:
    assert _summary(_measured(held_ms=30)).model_latency_ms == pytest.approx(41.6, abs=1)
    assert _summary(_measured(held_ms=30, open_loop=False)).model_latency_ms == pytest.approx(11.6, abs=1)


def test_requests_without_an_answer_count_with_as_long_as_they_waited() -> None:
    waiting = np.full(400, 10.0)  # half way: ten seconds each
    measured = _measured()
    summary = _summary(replace(measured, requests=replace(measured.requests, unfinished_intended_s=waiting)))
    assert summary.unfinished == 400
    assert summary.client_latency_from_intended_ms["max"] == pytest.approx(10_000)
    assert summary.client_latency_from_intended_ms["p90"] == pytest.approx(10_000)
    assert summary.client_latency_ms["p90"] == pytest.approx(11.3, abs=0.5)


@pytest.mark.parametrize("open_loop", [False, True])
def test_a_run_whose_latency_never_settled_says_so(open_loop: bool) -> None:
    """Ten thousand requests are not too few: it is the machine that changed, or the service that warmed up."""
    finished = _measured().requests.finished_s
    requests = sent_requests(finished, np.where(finished < 9.5, 13.0, 10.0))
    summary = _summary(_measured(requests=requests, open_loop=open_loop))
    assert (summary.closed_loop_invocations_per_minute, summary.warm_up_s) == (None, 20)
    assert why_invalid(summary) == (
        "too few samples: none after the warm-up, since the latency was still falling midway through the run's 20 s; "
        "give it longer, or a machine with no other work"
    )


def test_both_latencies_rate_interval_and_warm_up() -> None:
    summary = _summary(_measured())
    assert summary.client_latency_ms["p50"] == pytest.approx(10, rel=0.02)
    assert summary.client_latency_from_intended_ms["p50"] == pytest.approx(15, rel=0.02)
    assert summary.closed_loop_invocations_per_minute == pytest.approx(6000, rel=0.05)
    low, high = summary.closed_loop_invocations_interval or (0, 0)
    assert low <= (summary.closed_loop_invocations_per_minute or 0) <= high
    assert summary.warm_up_s is not None
    assert why_invalid(summary) is None


def test_a_run_with_too_few_samples_has_no_rate_but_latencies() -> None:
    summary = _summary(_measured(requests=sent_requests(np.linspace(0, 1, 20), 10.0)))
    assert summary.closed_loop_invocations_per_minute is None
    assert summary.client_latency_ms["p50"] == pytest.approx(10, abs=1)
    assert why_invalid(summary) == (
        "too few samples: P95 needs at least 59 independent requests at one load; the run had 20 in all"
    )
