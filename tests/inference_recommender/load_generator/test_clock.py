"""The alarm on Linux's timerfd, in real time: it never rings early, and rings once for each setting."""

import asyncio
from time import perf_counter

from inference_recommender.load_generator.clock import TimerfdAlarm


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
