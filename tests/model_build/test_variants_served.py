"""A workload's serving settings at work in a real Triton: variants of one compiled model, and Triton's statistics."""

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import psutil
import pytest

from inference_recommender.payloads import request_body
from local_aws.process.triton import TritonServer
from model_build.execute import build
from tests.model_build.miniatures import edited, plan_of
from tests.model_build.miniatures.tiny_bert import make_workload
from tests.quick_triton import await_counts, start_triton, statistics
from workloads import Row, WorkloadFolder

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def workload(tmp_path_factory: pytest.TempPathFactory) -> WorkloadFolder:
    """One copy of the model, so that batches can be counted."""
    made = make_workload(tmp_path_factory.mktemp("variants") / "workloads", "text-classification")
    return edited(made, "[serving]", "[serving]\nmodel_instances = 1")


class Served:
    def __init__(self, server: TritonServer, rows: list[Row]) -> None:
        self.server, self.rows = server, rows

    def ask(self, row: Row) -> None:
        assert self.server.invoke(request_body(row), {"Content-Type": "application/json"}).status == 200

    def ask_at_once(self) -> None:
        threads = [threading.Thread(target=self.ask, args=(row,)) for row in self.rows]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def statistics(self, model: str) -> Any:
        return statistics(self.server, model)

    def batches(self) -> Counter[int]:
        """Counts how often the model ran, by batch size, warm-up included."""
        entries = self.statistics("tiny_model")["batch_stats"]
        return Counter({entry["batch_size"]: entry["compute_infer"]["count"] for entry in entries})


Serve = Callable[[str], Served]
WARM_UP = Counter({1: 1, 4: 1, 8: 1})
"""The executions before the first request where batches are aimed at."""


@pytest.fixture(scope="module")
def serve(workload: WorkloadFolder) -> Iterator[Serve]:
    """Builds a target or variant and serves its repository; the end of the module stops the servers."""
    servers = []

    @cache
    def start(name: str) -> Served:
        planned = plan_of(workload, name)
        artifact = build(planned)
        server = start_triton(planned.repository, artifact.default_model, artifact.environment)
        servers.append(server)
        return Served(server, workload.payloads())

    yield start
    for server in servers:
        server.request_stop()
    for server in servers:
        server.stop()


def test_every_batch_size_is_warmed_up_and_requests_that_come_at_once_are_batched(serve: Serve) -> None:
    batching, alone = serve("cpu"), serve("alone")
    await_counts(batching.batches, WARM_UP)
    await_counts(alone.batches, {1: 1, 8: 1})
    for rounds in range(1, 21):
        batching.ask_at_once()
        alone.ask_at_once()
        await_counts(alone.batches, {1: 1 + rounds * len(alone.rows), 8: 1})
        if max(batching.batches() - WARM_UP, default=1) > 1:
            return
    pytest.fail(f"Triton never put requests together: {batching.batches()}")


def test_a_request_seen_before_is_answered_from_the_cache(serve: Serve) -> None:
    served = serve("cached")
    for _ in range(3):
        served.ask(served.rows[0])
    await_counts(lambda: served.statistics("tiny")["inference_stats"]["cache_hit"]["count"], 2)
    await_counts(served.batches, WARM_UP + Counter([1]))


def test_every_copy_of_an_instance_group_is_used(serve: Serve) -> None:
    """Triton's statistics do not tell them apart. The Python backend has a process for each, which wakes to work."""
    served = serve("twice")
    children = psutil.Process(served.server.pid).children()
    copies = [child for child in children if "/tiny_model/1/model.py" in " ".join(child.cmdline())]
    assert len(copies) == 2
    before = [copy.num_ctx_switches().voluntary for copy in copies]
    for _ in range(30):
        served.ask_at_once()
        woken = [copy.num_ctx_switches().voluntary - count for copy, count in zip(copies, before, strict=True)]
        if min(woken) >= 20:  # One that has nothing to do wakes once a second.
            return
    pytest.fail(f"Triton did not use both: they woke {woken} times")
