"""A real process under callers that want too much: its memory, its log and its health check stay as they are."""

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.containers.neuron.callers import get, post
from tests.containers.neuron.stub_server import StubServer, stub_server

pytestmark = pytest.mark.integration

GROWTH = 256 << 20
"""Bytes that one request may add to the process for a while: Python's objects for a body of 6 MB, and some rest."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StubServer]:
    with stub_server(tmp_path_factory.mktemp("stub") / "server.log", descriptors=160) as running:
        yield running


def test_the_largest_body_of_the_smallest_objects_is_refused_in_bounded_memory(server: StubServer) -> None:
    before = server.memory()
    data = b",".join([b"{}"] * 2_000_000)
    body = b'{"inputs": [{"name": "TEXT", "shape": [2000000, 1], "datatype": "BYTES", "data": [' + data + b"]}]}"
    assert server.ask(post(body)) == 400
    assert server.memory() - before < GROWTH


def test_at_the_limit_of_descriptors_a_health_check_gets_in_and_the_log_stays_small(server: StubServer) -> None:
    """229,114 tracebacks, 100 MB, were written in 40 s."""
    with ExitStack() as callers:
        for _ in range(400):
            callers.enter_context(server.connect())
        assert [server.ask(get()) for _ in range(5)] == [200] * 5
        assert server.log.stat().st_size < 10_000, server.log.read_text()[:2000]
