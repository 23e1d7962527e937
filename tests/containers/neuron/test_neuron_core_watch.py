"""A core that does not answer, or that fails, is told of; one that merely has nothing to do is not."""

import asyncio
import json
from types import SimpleNamespace
from typing import Any, cast

import pytest

from containers.neuron.core_watch import QUIET_S, STUCK_S, CoreWatch
from containers.neuron.launcher import SILENT_S, Worker, tell_of_the_unwell
from tests.containers.neuron.callers import in_virtual_time


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def watch(clock: Clock) -> CoreWatch:
    return CoreWatch(clock)


def test_a_call_that_takes_too_long_is_told_of_until_it_ends(watch: CoreWatch, clock: Clock) -> None:
    with watch.call():
        clock.now_s += STUCK_S
        assert watch.complaint() == ""
        clock.now_s += 1
        assert watch.complaint() == "has not answered for 20 s"
        with watch.call():  # another core's answer does not hide it
            pass
        assert watch.complaint() == "has not answered for 20 s"
    assert watch.complaint() == ""


def test_cores_that_nobody_asks_are_asked(watch: CoreWatch, clock: Clock) -> None:
    assert not watch.wants_probe()
    clock.now_s += QUIET_S + 1
    assert watch.wants_probe()
    with watch.call(probe=True):
        assert not watch.wants_probe()
    assert not watch.wants_probe()


def test_a_failure_may_be_its_rows_so_a_probe_has_the_last_word(watch: CoreWatch) -> None:
    with pytest.raises(ValueError, match="rows"), watch.call():
        raise ValueError("rows")
    assert watch.complaint() == ""
    assert watch.wants_probe()
    with pytest.raises(RuntimeError, match="gone"), watch.call(probe=True):
        raise RuntimeError("the device is gone")
    assert watch.complaint() == "fails: RuntimeError: the device is gone"
    with watch.call(probe=True):
        pass
    assert (watch.complaint(), watch.wants_probe()) == ("", False)


def test_what_is_wrong_with_one_worker_is_told_to_all_once_and_so_is_its_end() -> None:
    """The kernel chooses the worker that a health check asks."""

    async def told() -> list[list[str]]:
        pipes: list[list[bytes]] = [[], []]
        workers = [
            Worker(number, [number], cast(Any, SimpleNamespace(stdin=SimpleNamespace(write=pipe.append))))
            for number, pipe in enumerate(pipes)
        ]
        telling = asyncio.create_task(tell_of_the_unwell(workers))
        for complaint in ("", "has not answered for 20 s", "has not answered for 20 s", ""):
            workers[1].complaint = complaint
            await asyncio.sleep(2)
        await asyncio.sleep(SILENT_S)  # neither has said a word
        telling.cancel()
        return [[json.loads(line)["unwell"] for line in pipe] for pipe in pipes]

    stuck = "Worker 1 on NeuronCore 1 has not answered for 20 s."
    silent = "Worker 0 on NeuronCore 0 has said nothing for 20 s. Worker 1 on NeuronCore 1 has said nothing for 20 s."
    assert in_virtual_time(told()) == [[stuck, "", silent]] * 2
