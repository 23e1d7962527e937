"""Progress of a build as a callback. The library never prints."""

import time
from collections.abc import Callable

Progress = Callable[[str], None]


def silent(step: str) -> None:
    """Shows no progress."""


def seldom(progress: Progress, every_s: float, clock_s: Callable[[], float] = time.monotonic) -> Progress:
    """Passes on a step only `every_s` seconds after the last one or the beginning, so that short work is silent."""
    last_s = clock_s()

    def report(step: str) -> None:
        nonlocal last_s
        if (now_s := clock_s()) - last_s >= every_s:
            last_s = now_s
            progress(step)

    return report
