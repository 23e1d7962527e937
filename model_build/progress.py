"""The port through which a build says what it is doing. The library never prints."""

from collections.abc import Callable

Progress = Callable[[str], None]


def silent(step: str) -> None:
    """No-op: the default where no progress is shown."""
