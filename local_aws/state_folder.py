"""The account's folder: one account at a time (a lock of the kernel's), private to its owner, and limited."""

import contextlib
import fcntl
import os
import shutil
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from workloads import Unavailable

MAX_STATE_BYTES = 32 << 30
MIN_FREE_BYTES = 1 << 30

LOCK = "lock"
PRIVATE = 0o077
"""The umask of the account and of all that it starts."""


@dataclass(frozen=True, slots=True)
class StateFolder:
    path: Path
    used_before: bool

    @classmethod
    @contextlib.contextmanager
    def take(cls, path: Path) -> Iterator[Self]:
        """Makes the folder private and locks it. Raises `Unavailable` if another account or user has it."""
        try:
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
            found = path.stat()
        except OSError as error:
            raise Unavailable(
                f"{path} cannot be the account's folder: {error.strerror}. Choose --state DIR."
            ) from error
        if found.st_uid != os.getuid():
            raise Unavailable(f"{path} belongs to another user: choose a folder of your own with --state DIR.")
        if stat.S_IMODE(found.st_mode) != 0o700:
            path.chmod(0o700)
        folder = cls(path, (path / LOCK).exists())
        lock = _locked(path)
        try:
            yield folder
        finally:
            folder.exports_file.unlink(missing_ok=True)
            os.close(lock)

    @property
    def exports_file(self) -> Path:
        return self.path / "exports"

    def write_exports(self, text: str) -> None:
        """Writes the exports, which hold the key, so that only their owner can read them from the first byte on."""
        self.exports_file.unlink(missing_ok=True)
        descriptor = os.open(self.exports_file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text + "\n")

    def remove_models(self) -> None:
        """Removes the models of an account that was killed, and no folder of that name that was never an account's."""
        if self.used_before:
            shutil.rmtree(self.path / "models", ignore_errors=True)


def check_room(path: Path, *, max_state_bytes: int = MAX_STATE_BYTES, min_free_bytes: int = MIN_FREE_BYTES) -> None:
    """Raises `Unavailable` where the folder holds too much, or its disk has too little room, to start something."""
    held = 0
    for folder, _, names in os.walk(path):
        for name in names:
            with contextlib.suppress(FileNotFoundError):  # of a model or job that ends meanwhile
                held += os.lstat(os.path.join(folder, name)).st_size  # noqa: PTH118  a state has many files
    if held > max_state_bytes:
        raise Unavailable(
            f"{path} holds {_gib(held)}, and may hold {_gib(max_state_bytes)}. Delete endpoints, or the folders of old "
            f"jobs in {path / 'jobs'}."
        )
    if (free := shutil.disk_usage(path).free) < min_free_bytes:
        raise Unavailable(
            f"The disk of {path} has {_gib(free)} left, and nothing is started with less than {_gib(min_free_bytes)}. "
            "Make room, or choose a folder on another disk with --state DIR."
        )


def _locked(path: Path) -> int:
    lock = os.open(path / LOCK, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        pid = os.read(lock, 20).decode().strip() or "unknown"
        os.close(lock)
        raise Unavailable(
            f"{path} is in use by another account, process {pid}. Stop that one, or choose another folder with "
            "--state DIR."
        ) from error
    os.truncate(lock, 0)
    os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
    return lock


def _gib(count: int) -> str:
    return f"{count / 2**30:.1f} GiB"
