"""The generator's own limits, stalls of its machine, and its alarm."""

import asyncio
from pathlib import Path
from time import perf_counter

import numpy as np
import pytest

from inference_recommender.load_generator.clock import TimerfdAlarm
from inference_recommender.load_generator.load_plan import Arrivals
from inference_recommender.load_generator.self_watch import SelfWatch, merge_stalls, stalled_between, touches_stall
from tests.builders import known
from tests.inference_recommender.load_generator.virtual_run import drive, plan_of, records_of, run_command
from tests.virtual_time import VirtualLoop, answering

ARRIVALS = Arrivals(invocations_per_minute=6000, duration_in_seconds=4, connections=64)


def test_a_run_records_when_the_machine_stalled(tmp_path: Path) -> None:
    events = {1.003: lambda loop: loop.block(0.08), 2.503: lambda loop: loop.block(0.3)}
    outcome = run_command(plan_of(ARRIVALS), answering(0.001), tmp_path, events=events)
    stalls = records_of(outcome)["stalls_s"]
    assert stalls.dtype == np.float64
    assert stalls.ravel() == pytest.approx([1.0, 1.083, 2.503, 2.803], abs=1e-6)
    assert (outcome.exit_code, outcome.reason) == (0, "traffic ended")
    assert known(outcome.summary)["stalled_s"] == pytest.approx(0.083 + 0.3)
    assert known(outcome.summary)["generator"]["lag_ms"] == pytest.approx(0, abs=1e-6), "lag does not count stalls"


def test_each_window_has_the_seconds_of_its_stalls() -> None:
    """The second stall covers the end of the second window."""
    events = {
        0.403: lambda virtual: virtual.loop.block(0.05),
        1.903: lambda virtual: virtual.loop.block(0.4),
    }
    virtual = drive(ARRIVALS, answering(0.001), events=events)
    assert [window.stalled_s for window in virtual.windows] == pytest.approx([0.053, 0.097, 0.303, 0], abs=1e-6)


def test_a_tick_within_20_ms_is_no_stall() -> None:
    virtual = drive(ARRIVALS, answering(0.001), events={1.0: lambda virtual: virtual.loop.block(0.029)})
    assert len(virtual.run.stalls_s) == 0


def test_stolen_cores_are_a_stall(tmp_path: Path) -> None:
    def steal(loop: VirtualLoop) -> None:
        loop.stolen_s += 0.06

    outcome = run_command(plan_of(ARRIVALS), answering(0.001), tmp_path, events={1.25: steal, 1.75: steal, 3.1: steal})
    assert records_of(outcome)["stalls_s"] == pytest.approx(np.array([[1.0, 2.0], [3.0, 3.5]]), abs=0.02)


def test_a_run_of_which_half_was_stalled_is_invalid(tmp_path: Path) -> None:
    events = {second + 0.003: lambda loop: loop.block(0.6) for second in range(4)}
    outcome = run_command(plan_of(ARRIVALS), answering(0.001), tmp_path, events=events)
    assert (outcome.exit_code, outcome.reason) == (4, "machine stalled for 60 % of the run")


def test_stalls_of_several_generators_are_joined_where_they_touch() -> None:
    merged = merge_stalls([np.array([[1.0, 2.0], [5.0, 6.0]]), np.array([[2.0, 3.0], [5.2, 5.4]]), np.zeros((0, 2))])
    assert merged.tolist() == [[1.0, 3.0], [5.0, 6.0]]
    assert stalled_between(merged, 2.5, 5.5) == 1.0
    starts, ends = np.array([0.0, 0.5, 3.5, 5.5]), np.array([0.9, 1.1, 4.9, 9.0])
    assert touches_stall(merged, starts, ends).tolist() == [False, True, False, True]


@pytest.mark.parametrize(
    ("cpu_share", "lag_ms", "complaint"),
    [
        (0.9, 50.0, None),
        (0.91, 1.0, "generator lagged: it used 91% of its core, so it was the bottleneck"),
        (0.5, 51.0, "generator lagged: its own clock was 51 ms late"),
    ],
)
def test_a_generator_near_its_limits_complains(cpu_share: float, lag_ms: float, complaint: str | None) -> None:
    assert SelfWatch(cpu_share=cpu_share, lag_ms=lag_ms).complaint() == complaint


def test_the_lag_is_the_90th_percentile() -> None:
    lags_s = np.array([0.001] * 80 + [0.02] * 20)
    watch = SelfWatch.of(1.0, 4.0, lags_s)
    assert watch.cpu_share == 0.25
    assert watch.lag_ms == pytest.approx(20)


def test_an_alarm_rings_once_for_its_latest_setting_and_never_early() -> None:
    async def ring() -> list[float]:
        rung: list[float] = []
        alarm = TimerfdAlarm(lambda: rung.append(perf_counter()))
        began = perf_counter()
        for moment in (began + 0.02, began - 1.0):
            count = len(rung)
            alarm.set(perf_counter() + 3600)
            alarm.set(moment)
            while len(rung) == count:
                await asyncio.sleep(0.005)
            assert rung[-1] >= moment
        alarm.set(perf_counter() + 0.01)
        alarm.close()
        await asyncio.sleep(0.03)
        return rung

    assert len(asyncio.run(ring())) == 2
