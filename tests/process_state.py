"""Fails a test that changes the state of its process for the tests after it."""

import ctypes
import locale
import os
import random
import signal
import sys
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, cast

import numpy as np
import pytest

SIGNALS = (
    *(signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGPIPE),
    *(signal.SIGALRM, signal.SIGCHLD, signal.SIGUSR1, signal.SIGUSR2),
)
# np.random.get_state() takes 0.1 ms.
NUMPY_STATE: int = np.random.get_bit_generator().ctypes.state_address  # type: ignore[attr-defined]  # no stub
NUMPY_STATE_BYTES = 625 * 4  # The generator's words, and the place of the next one.
WORDS = 624
MAX_DRAWS = 1_000 * WORDS


def _umask() -> int:
    umask = os.umask(0o077)
    os.umask(umask)
    return umask


def _environment() -> dict[str, str]:
    environment = dict(os.environ)
    environment.pop("PYTEST_CURRENT_TEST", None)
    return environment


def _set_environment(environment: dict[str, str]) -> None:
    for name in set(_environment()) - set(environment):
        del os.environ[name]
    os.environ.update(environment)


def _set_handlers(handlers: dict[signal.Signals, Any]) -> None:
    for number, handler in handlers.items():
        signal.signal(number, handler)


def _set_filters(filters: list[Any]) -> None:
    cast(list[Any], warnings.filters)[:] = filters
    warnings._filters_mutated()  # type: ignore[attr-defined]


STATE: dict[str, tuple[Callable[[], Any], Callable[[Any], object]]] = {
    "recursion limit": (sys.getrecursionlimit, sys.setrecursionlimit),
    "umask": (_umask, os.umask),
    "locale": (partial(locale.setlocale, locale.LC_ALL), partial(locale.setlocale, locale.LC_ALL)),
    "environment": (_environment, _set_environment),
    "working directory": (os.getcwd, os.chdir),
    "state of random": (random.getstate, random.setstate),
    "state of numpy.random": (
        partial(ctypes.string_at, NUMPY_STATE, NUMPY_STATE_BYTES),
        lambda state: ctypes.memmove(NUMPY_STATE, state, NUMPY_STATE_BYTES),
    ),
    "signal handlers": (lambda: {number: signal.getsignal(number) for number in SIGNALS}, _set_handlers),
    "warnings filters": (lambda: list(warnings.filters), _set_filters),
}
"""The functions that read and restore each kind of state."""


@pytest.fixture(autouse=True)
def unchanged_process_state() -> Iterator[None]:
    """Compares the state before a test's function fixtures with the state after them, and restores it."""
    before = {name: read() for name, (read, _) in STATE.items()}
    modules = len(sys.modules)
    yield
    leaks = []
    for name, (read, restore) in STATE.items():
        if (after := read()) != before[name]:
            if _may_change(name, before[name], after, imported=len(sys.modules) != modules):
                continue
            restore(before[name])
            leaks.append(f"{name}: {_difference(before[name], after)}")
    if leaks:
        pytest.fail("The test changed its process. Restore it, or use monkeypatch. " + "; ".join(leaks), pytrace=False)


def _may_change(name: str, before: Any, after: Any, imported: bool) -> bool:
    """Whether a test may leave this: packages add warnings filters when they are first imported, and draw numbers."""
    if name == "state of random":
        return _only_drawn(before, after)
    return name == "warnings filters" and imported


def _only_drawn(before: Any, after: Any) -> bool:
    """Whether the generator was neither seeded nor set: its words are those that follow after some draws."""
    generator = random.Random()
    generator.setstate(before)
    for _ in range(MAX_DRAWS // WORDS):
        if generator.getstate()[1][:-1] == after[1][:-1]:
            return True
        generator.getrandbits(32 * WORDS)
    return False


def _difference(before: Any, after: Any) -> str:
    if isinstance(before, dict):
        names = sorted(name for name in {**before, **after} if before.get(name) != after.get(name))
        return ", ".join(f"{name} {before.get(name)!r} → {after.get(name)!r}" for name in names)
    if isinstance(before, list):
        return f"{[each for each in after if each not in before]} added"
    text = f"{before!r} → {after!r}"
    return text if len(text) < 500 else "seeded or set"
