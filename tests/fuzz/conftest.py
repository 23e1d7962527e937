"""Holds every file of this folder to a bound on memory."""

from collections.abc import Iterator

import psutil
import pytest

MAX_GROWTH_BYTES = 256 << 20
"""How much one file's tests may add to this process. A server under test has a bound of its own, beside its tests."""


@pytest.fixture(scope="module", autouse=True)
def _bounded_memory() -> Iterator[None]:
    process = psutil.Process()
    before = process.memory_info().rss
    yield
    growth = process.memory_info().rss - before
    assert growth < MAX_GROWTH_BYTES, f"the process grew by {growth / 2**20:.0f} MiB"
