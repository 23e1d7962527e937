"""The port through which a build says what it is doing. The library never prints."""

import time
from collections.abc import Callable

Progress = Callable[[str], None]


def silent(step: str) -> None:
    """No-op: the default where no progress is shown."""


def seldom(progress: Progress, every_s: float, clock_s: Callable[[], float] = time.monotonic) -> Progress:
    """Passes on a step only `every_s` seconds after the last one or the beginning, so that short work is silent."""
    last_s = clock_s()

    def told(step: str) -> None:
        nonlocal last_s
        if (now_s := clock_s()) - last_s >= every_s:
            last_s = now_s
            progress(step)

    return told
