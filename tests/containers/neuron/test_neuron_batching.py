"""Requests that wait are answered together, each with its own answers."""

import asyncio
import threading
import time
from collections.abc import Coroutine, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from containers.neuron.batching import Batcher, Rows
from containers.neuron.core_watch import CoreWatch
from containers.neuron.server_settings import ServerSettings
from tests.containers.neuron.neuron_server import SERVING
from tests.containers.neuron.stub_server import StubSteps


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


def run(
    model: Doubling,
    serving: ServerSettings,
    *requests: Sequence[object],
    concurrency: int = 1,
    hold: bool = False,
    full: int | None = None,
) -> list[Any]:
    """The answers of requests that come at once; with `hold`, behind a first one that is being answered."""

    async def asked() -> list[Any]:
        batcher = Batcher(StubSteps(model.predict), serving, concurrency, CoreWatch(time.monotonic), full)
        batcher.start()
        first: list[asyncio.Task[Any]] = []
        if hold:
            model.go.clear()
            first = [asyncio.create_task(ask(batcher, 0))]
            await asyncio.to_thread(model.entered.acquire)
        tasks = [asyncio.create_task(ask(batcher, *request)) for request in requests]
        await asyncio.sleep(0)  # now all of them wait
        model.go.set()
        answers = await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.gather(*first)
        await batcher.stop()
        return answers

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


def test_what_waited_while_the_model_was_busy_goes_together() -> None:
    model = Doubling()
    assert run(model, SERVING, [1], [2], [3], hold=True) == [[2], [4], [6]]
    assert model.sizes == [1, 3]


def test_without_dynamic_batching_each_request_goes_alone() -> None:
    model = Doubling()
    assert run(model, replace(SERVING, dynamic_batching=False), [1], [2], [3], hold=True) == [[2], [4], [6]]
    assert model.sizes == [1, 1, 1, 1]


def test_the_largest_preferred_size_that_is_there_is_taken() -> None:
    model = Doubling()
    serving = replace(SERVING, preferred_batch_sizes=(2, 4))
    run(model, serving, *([n] for n in range(5)), hold=True)
    assert model.sizes == [1, 4, 1]


def test_a_batch_is_full_where_its_cores_have_all_they_take() -> None:
    """The next batch is for other cores, and does not wait for these."""
    model = Doubling()
    run(model, SERVING, *([n] for n in range(5)), [5, 6, 7, 8, 9], hold=True, full=4)
    assert model.sizes == [1, 4, 1, 5]


def test_the_next_batch_is_under_way_before_the_last_is_answered() -> None:
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
        serving = replace(SERVING, dynamic_batching=False)
        batcher = Batcher(Tells(predict), serving, 1, CoreWatch(time.monotonic))
        batcher.start()
        answers = await asyncio.gather(ask(batcher, 1), ask(batcher, 2))
        await batcher.stop()
        return list(answers)

    assert asyncio.run(asked()) == [[{"n": 1}], [{"n": 2}]]


def test_a_request_is_never_split() -> None:
    model = Doubling()
    run(model, replace(SERVING, max_batch_size=4), [1, 2, 3], [4, 5, 6], hold=True)
    assert model.sizes == [1, 3, 3]


def test_a_batch_waits_for_its_preferred_size_but_not_for_ever() -> None:
    """Two of the three rows make the preferred size; the third goes when its time is up."""
    model = Doubling()
    serving = replace(SERVING, preferred_batch_sizes=(2,), max_queue_delay_ms=200.0)
    assert run(model, serving, [1], [2], [3]) == [[2], [4], [6]]
    assert model.sizes == [2, 1]


def test_several_batches_are_on_their_way_at_once_where_a_pipeline_wants_them() -> None:
    together = threading.Barrier(2, timeout=10)

    class Pipeline(Doubling):
        def predict(self, rows: Rows) -> Sequence[Any]:
            together.wait()
            return super().predict(rows)

    serving = replace(SERVING, dynamic_batching=False)
    assert run(Pipeline(), serving, [1], [2], concurrency=2) == [[2], [4]]


def test_what_the_model_raises_is_the_answer_of_its_batch_and_the_next_is_answered() -> None:
    model = Doubling()
    serving = replace(SERVING, dynamic_batching=False)
    [good, bad, other] = run(model, serving, [1], ["bad"], [2])
    assert (good, other) == ([2], [4])
    assert isinstance(bad, ValueError)


def test_work_for_callers_that_are_gone_is_not_done() -> None:
    """800 that hung up once made the next one wait 16 s."""
    model = Doubling()

    async def asked() -> Sequence[Any]:
        batcher = Batcher(StubSteps(model.predict), SERVING, 1, CoreWatch(time.monotonic))
        batcher.start()
        model.go.clear()
        first = asyncio.create_task(ask(batcher, 0))
        await asyncio.to_thread(model.entered.acquire)
        gone = [asyncio.create_task(ask(batcher, n)) for n in range(400)]
        await asyncio.sleep(0)
        for task in gone:
            task.cancel()
        stays = asyncio.create_task(ask(batcher, 21))
        await asyncio.sleep(0)
        model.go.set()
        await first
        answer = await stays
        await batcher.stop()
        return answer

    assert asyncio.run(asked()) == [42]
    assert model.sizes == [1, 1]


def test_a_caller_that_goes_away_leaves_the_others_their_answers() -> None:
    model = Doubling()

    async def asked() -> Sequence[Any]:
        batcher = Batcher(StubSteps(model.predict), SERVING, 1, CoreWatch(time.monotonic))
        batcher.start()
        model.go.clear()
        gone, stays = (asyncio.create_task(ask(batcher, n)) for n in (1, 2))
        await asyncio.to_thread(model.entered.acquire)
        gone.cancel()
        model.go.set()
        answer = await stays
        with pytest.raises(asyncio.CancelledError):
            await gone
        await batcher.stop()
        return answer

    assert asyncio.run(asked()) == [4]
