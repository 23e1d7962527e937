"""Triton's counters become the times of a request in it; a waiting request waits in every model that it passes."""

from typing import Any

import pytest

from inference_recommender.capacity.server_times import answered, read_counters, server_times, warm_up_s
from tests.builders import known

MS = 1_000_000


def told(name: str, *, requests: int, queue_ms: float, compute_ms: tuple[float, float, float], batches: int) -> Any:
    """Returns a model's item; `compute_ms` are sums over requests, and `batches` executions had them, or none."""
    parts = {f"compute_{part}": {"count": requests, "ns": round(ms * MS)} for part, ms in _named(compute_ms)}
    one = [
        {"batch_size": 1, **{f"compute_{part}": {"ns": round(ms * MS)} for part, ms in _named(compute_ms)}}
        for _ in range(min(batches, 1))
    ]
    return {
        "name": name,
        "version": "1",
        "inference_count": requests,
        "execution_count": batches,
        "inference_stats": {"success": {"count": requests}, "queue": {"ns": round(queue_ms * MS)}, **parts},
        "batch_stats": one,
    }


def _named(compute_ms: tuple[float, float, float]) -> list[tuple[str, float]]:
    return list(zip(("input", "infer", "output"), compute_ms, strict=True))


def test_means_are_of_the_requests_between_two_readings() -> None:
    before = read_counters({"model_stats": [told("m", requests=5, queue_ms=90, compute_ms=(5, 50, 5), batches=5)]})
    after = read_counters({"model_stats": [told("m", requests=15, queue_ms=110, compute_ms=(6, 90, 8), batches=7)]})
    found = known(server_times(before, after))
    assert found.model_dump() == {
        "queue_ms": pytest.approx(2.0),
        "compute_ms": {"input": pytest.approx(0.1), "infer": pytest.approx(4.0), "output": pytest.approx(0.3)},
        "requests": 10,
        "rows_per_execution": 5.0,
    }
    assert found.waiting_share == pytest.approx(2.0 / 6.4)
    assert answered(before, after) == 10


def test_an_ensembles_request_waits_in_its_models_and_computes_once() -> None:
    after = read_counters(
        {
            "model_stats": [
                told("engine", requests=10, queue_ms=30, compute_ms=(1, 78, 1), batches=5),
                told("pipeline", requests=10, queue_ms=0, compute_ms=(2, 97, 1), batches=0),
                told("tokenise", requests=10, queue_ms=10, compute_ms=(1, 19, 0), batches=10),
            ]
        }
    )
    found = known(server_times({}, after))
    assert (found.queue_ms, found.compute_ms.total, found.requests) == pytest.approx((4.0, 10.0, 10))
    assert found.rows_per_execution == 2.0, "of the model that computes most, and not of the ensemble"


def test_models_that_answered_nothing_do_not_count() -> None:
    before = read_counters({"model_stats": [told("m", requests=4, queue_ms=8, compute_ms=(0, 9, 0), batches=4)]})
    assert server_times(before, before) is None
    restarted = read_counters({"model_stats": [told("m", requests=1, queue_ms=1, compute_ms=(0, 1, 0), batches=1)]})
    assert server_times(before, restarted) is None
    assert answered(before, restarted) == 0


def test_the_warm_up_of_a_server_that_had_no_request_yet_is_what_it_executed() -> None:
    counters = read_counters({"model_stats": [told("m", requests=4, queue_ms=1, compute_ms=(2, 97, 1), batches=4)]})
    assert warm_up_s(counters) == pytest.approx(0.1)
