"""The simulated service: its batches, its queue, its stalls and its capacity, where they can be known otherwise."""

import numpy as np
import pytest

from benchmarks.searches.simulated_service import MM1, Floats, Service, SimulatedService


def alike(random: np.random.Generator, count: int) -> Floats:
    return np.ones(count)


def _finished_ms(service: Service, *sent_ms: float) -> list[float]:
    """Returns when each of the requests is done, in milliseconds."""
    run = SimulatedService(service, 0).scheduled(np.array(sent_ms) / 1000, 1.0)
    return [round(float(finished) * 1000, 6) for finished in run.finished_s]


def _service(**given: object) -> Service:
    return Service(**{"fixed_ms": 10.0, "per_unit_ms": 1.0, "lengths": alike, "max_batch": 4, **given})  # type: ignore[arg-type]


def test_a_free_worker_takes_what_waits_and_no_more_than_a_batch() -> None:
    assert _finished_ms(_service(), 0, 1, 2, 3, 4, 5) == [11, 25, 25, 25, 25, 36]


def test_two_workers_take_turns_and_slow_each_other_down() -> None:
    assert _finished_ms(_service(workers=2), 0, 1, 2) == [11, 12, 22]
    assert _finished_ms(_service(workers=2, contention=0.5), 0, 1, 2) == [11, 17.5, 27.5]


def test_a_batch_waits_for_its_size_or_the_delay() -> None:
    """Four are a batch at once; the fifth waits alone for 50 ms."""
    assert _finished_ms(_service(queue_delay_ms=50), 0, 1, 2, 3, 4) == [17, 17, 17, 17, 65]


def test_users_send_again_when_they_are_answered() -> None:
    run = SimulatedService(_service(), 0).closed_loop([0.0, 0.005], 0.06, think_ms=4)
    assert np.round(run.sent_s * 1000, 6).tolist() == [0, 5, 15, 26, 37]
    assert np.round(run.finished_s * 1000, 6).tolist() == [11, 22, 33, 44, 55]


def test_nothing_is_done_in_a_stall() -> None:
    """A request is late if a stall begins in the 10 ms before it or the 11 ms in which it is served."""
    stalling = _service(stall_ms=10, stall_every_s=0.02)
    run = SimulatedService(stalling, 3).scheduled(np.linspace(0, 199.9, 2000), 200.0)
    assert run.latencies_ms.min() == pytest.approx(11)
    assert (run.latencies_ms > 11 + 1e-6).mean() == pytest.approx(1 - np.exp(-21 / 20), abs=0.04)


def test_the_percentile_of_an_mm1_queue_is_the_one_of_theory() -> None:
    """Percentile q of the time in system is -ln(1 - q) / (mu - lambda): 48.0 ms at 9,240 a minute."""
    latencies = SimulatedService(MM1, 5).open_loop(9_240, 1_600).latencies_ms
    assert np.percentile(latencies, 99) == pytest.approx(-np.log(0.01) / (250 - 154) * 1000, rel=0.03)
