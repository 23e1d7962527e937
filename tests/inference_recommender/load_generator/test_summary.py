"""The summary of a run: capacity, latencies from actual and from intended send, and the difference."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from inference_recommender.load_generator.load_plan import ModelLatencyThreshold, StoppingConditions
from inference_recommender.load_generator.self_watch import SelfWatch
from inference_recommender.load_generator.summary import LoadSummary, MeasuredRun, summarise, why_invalid
from tests.inference_recommender.load_generator.builders import sent_requests

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
