"""One build or verification of a target at a time, on one machine. A killed process leaves no lock behind."""

import contextlib
import fcntl
from collections.abc import Iterator
from pathlib import Path

from model_build.errors import BuildRunning


@contextlib.contextmanager
def exclusive(folder: Path, workload: str, target: str) -> Iterator[None]:
    """Hold `folder`/.lock; raises `BuildRunning` at once when another process does."""
    folder.mkdir(parents=True, exist_ok=True)
    lock = folder / ".lock"
    with lock.open("w") as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise BuildRunning(workload, target, lock) from None
        yield
