"""Tells whether a worker's cores answer: since when they have been asked, when they last answered, whether they failed.

A worker that has nothing to do asks its cores with a probe, so that their failure is seen before a request's. The clock
is given, in seconds.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

STUCK_S = 20.0
"""A core that has not answered for so long is taken to be dead. SageMaker waits 60 s for an answer."""
QUIET_S = 5.0
"""An answer older than this says nothing of the cores any more."""


class CoreWatch:
    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._asked: dict[object, float] = {}  # moments at which the calls under way began
        self._answered = now()
        self._suspected = False
        self._failure = ""

    @contextmanager
    def call(self, probe: bool = False) -> Iterator[None]:
        """Times a call of the model. The failure of a probe is the cores'; another's may be due to its rows."""
        call = object()
        self._asked[call] = self._now()
        try:
            yield
        except Exception as error:
            self._suspected = True
            if probe:
                self._failure = f"{type(error).__name__}: {error}"
            raise
        else:
            self._answered, self._suspected, self._failure = self._now(), False, ""
        finally:
            del self._asked[call]

    def wants_probe(self) -> bool:
        """Returns whether only a probe can tell: no call is under way, and the last was long ago or failed."""
        return not self._asked and (self._suspected or self._now() - self._answered > QUIET_S)

    def complaint(self) -> str:
        """Returns what is wrong, to follow the worker's name; empty while its cores answer."""
        if self._now() - min(self._asked.values(), default=self._now()) > STUCK_S:
            return f"has not answered for {STUCK_S:.0f} s"
        return f"fails: {self._failure}" if self._failure else ""
