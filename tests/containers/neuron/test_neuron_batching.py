"""Dynamic batching, and the watch over cores that hang or fail."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from containers.neuron.batching import QUIET_S, STUCK_S, Batcher, CoreWatch, Rows, Steps
from containers.neuron.placement import ServerSettings
from tests.containers.neuron.stub_server import SERVING, StubSteps


class Doubling:
    """A model that doubles numbers, and stands still while `go` is not set. It remembers its batches' sizes."""

    def __init__(self) -> None:
        self.sizes: list[int] = []
        self.entered = threading.Semaphore(0)
        self.go = threading.Event()
        self.go.set()

    def predict(self, rows: Rows) -> Sequence[Any]:
        self.entered.release()
        self.go.wait(10)
        self.sizes.append(len(rows))
        if any(row["n"] == "bad" for row in rows):
            raise ValueError("bad number")
        return [2 * int(str(row["n"])) for row in rows]


def ask(batcher: Batcher, *numbers: object) -> Coroutine[Any, Any, Sequence[Any]]:
    return batcher.answer([{"n": number} for number in numbers])


@asynccontextmanager
async def batching(
    steps: Steps, serving: ServerSettings = SERVING, concurrency: int = 1, full: int | None = None
) -> AsyncIterator[Batcher]:
    batcher = Batcher(steps, serving, concurrency, CoreWatch(time.monotonic), full)
    batcher.start()
    yield batcher
    await batcher.stop()


@asynccontextmanager
async def held(model: Doubling, batcher: Batcher) -> AsyncIterator[None]:
    """Holds the model in a first request while the block runs."""
    model.go.clear()
    first = asyncio.create_task(ask(batcher, 0))
    await asyncio.to_thread(model.entered.acquire)
    yield
    await asyncio.sleep(0)  # now all requests wait
    model.go.set()
    await first


def run(
    model: Doubling, serving: ServerSettings, *requests: Sequence[object], hold: bool = False, **options: int
) -> list[Any]:
    """Returns the answers of requests that come at once; with `hold`, while a first one runs."""

    async def asked() -> list[Any]:
        async with batching(StubSteps(model.predict), serving, **options) as batcher:
            if not hold:
                return list(await asyncio.gather(*(ask(batcher, *each) for each in requests), return_exceptions=True))
            async with held(model, batcher):
                tasks = [asyncio.create_task(ask(batcher, *each)) for each in requests]
            return list(await asyncio.gather(*tasks, return_exceptions=True))

    return asyncio.run(asked())


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.lists(st.integers(0, 99), min_size=1, max_size=4), min_size=1, max_size=12),
    st.sampled_from([(), (2,), (4, 8)]),
    st.integers(1, 3),
)
def test_each_request_gets_its_own_answers_and_no_batch_is_too_large(
    requests: list[list[int]], preferred: tuple[int, ...], concurrency: int
) -> None:
    model = Doubling()
    serving = replace(SERVING, max_batch_size=8, preferred_batch_sizes=preferred, max_queue_delay_ms=1.0)
    assert run(model, serving, *requests, concurrency=concurrency) == [[2 * n for n in each] for each in requests]
    assert max(model.sizes) <= 8
    assert sum(model.sizes) == sum(map(len, requests))


Sizes = tuple[dict[str, Any], list[list[int]], dict[str, Any], list[int]]
SIZES: dict[str, Sizes] = {
    "requests that waited for the model form a batch": ({}, [[1], [2], [3]], {}, [1, 3]),
    "without dynamic batching each request is one": ({"dynamic_batching": False}, [[1], [2], [3]], {}, [1, 1, 1, 1]),
    "it takes the largest preferred size that it can fill": (
        {"preferred_batch_sizes": (2, 4)},
        [[n] for n in range(5)],
        {},
        [1, 4, 1],
    ),
    "it starts when it fills its cores; the next is for other cores": (
        {},
        [*([n] for n in range(5)), [5, 6, 7, 8, 9]],
        {"full": 4},
        [1, 4, 1, 5],
    ),
    "a request is never split": ({"max_batch_size": 4}, [[1, 2, 3], [4, 5, 6]], {}, [1, 3, 3]),
}


@pytest.mark.parametrize(("changes", "requests", "options", "sizes"), SIZES.values(), ids=SIZES)
def test_a_batch_has_a_size(
    changes: dict[str, Any], requests: list[list[int]], options: dict[str, Any], sizes: list[int]
) -> None:
    """The model is held in a first request of one row while the others arrive."""
    model = Doubling()
    answers = run(model, replace(SERVING, **changes), *requests, hold=True, **options)
    assert answers == [[2 * n for n in each] for each in requests]
    assert model.sizes == sizes


def test_the_next_batch_starts_before_the_last_is_answered() -> None:
    """The second batch cannot end before the first is answered, and the first is not answered before it has begun."""
    begun, answered = threading.Event(), threading.Event()

    def predict(rows: Rows) -> Sequence[Any]:
        if rows[0]["n"] == 2:
            begun.set()
            assert answered.wait(60)
        return rows

    class Tells(StubSteps):
        def answers(self, outputs: Any, rows: Rows) -> Sequence[Any]:
            assert begun.wait(60)
            answered.set()
            return rows

    async def asked() -> list[Any]:
        async with batching(Tells(predict), replace(SERVING, dynamic_batching=False)) as batcher:
            return list(await asyncio.gather(ask(batcher, 1), ask(batcher, 2)))

    assert asyncio.run(asked()) == [[{"n": 1}], [{"n": 2}]]


def test_a_batch_waits_for_its_preferred_size_for_a_limited_time() -> None:
    """Two of the three rows make the preferred size; the third goes when its time is up."""
    model = Doubling()
    serving = replace(SERVING, preferred_batch_sizes=(2,), max_queue_delay_ms=200.0)
    assert run(model, serving, [1], [2], [3]) == [[2], [4], [6]]
    assert model.sizes == [2, 1]


def test_an_error_of_the_model_fails_only_its_batch() -> None:
    model = Doubling()
    serving = replace(SERVING, dynamic_batching=False)
    [good, bad, other] = run(model, serving, [1], ["bad"], [2])
    assert (good, other) == ([2], [4])
    assert isinstance(bad, ValueError)


def test_requests_of_clients_that_hung_up_are_not_computed() -> None:
    """They once made the next client wait 16 s."""
    model = Doubling()

    async def asked() -> Sequence[Any]:
        async with batching(StubSteps(model.predict)) as batcher:
            async with held(model, batcher):
                gone = [asyncio.create_task(ask(batcher, n)) for n in range(400)]
                await asyncio.sleep(0)
                for task in gone:
                    task.cancel()
                stays = asyncio.create_task(ask(batcher, 21))
            return await stays

    assert asyncio.run(asked()) == [42]
    assert model.sizes == [1, 1]


@pytest.fixture
def clock() -> SimpleNamespace:
    return SimpleNamespace(now_s=100.0)


@pytest.fixture
def watch(clock: SimpleNamespace) -> CoreWatch:
    return CoreWatch(lambda: clock.now_s)


def test_a_call_that_takes_too_long_is_reported_until_it_ends(watch: CoreWatch, clock: SimpleNamespace) -> None:
    with watch.call():
        clock.now_s += STUCK_S
        assert watch.complaint() == ""
        clock.now_s += 1
        assert watch.complaint() == "has not answered for 20 s"
        with watch.call():  # another core's answer does not hide it
            pass
        assert watch.complaint() == "has not answered for 20 s"
    assert watch.complaint() == ""


def test_idle_cores_need_a_probe(watch: CoreWatch, clock: SimpleNamespace) -> None:
    assert not watch.needs_probe()
    clock.now_s += QUIET_S + 1
    assert watch.needs_probe()
    with watch.call(probe=True):
        assert not watch.needs_probe()
    assert not watch.needs_probe()


def test_only_a_failed_probe_proves_a_fault_of_the_cores(watch: CoreWatch) -> None:
    with pytest.raises(ValueError, match="rows"), watch.call():
        raise ValueError("rows")
    assert watch.complaint() == ""
    assert watch.needs_probe()
    with pytest.raises(RuntimeError, match="gone"), watch.call(probe=True):
        raise RuntimeError("the device is gone")
    assert watch.complaint() == "fails: RuntimeError: the device is gone"
