"""The output in a folder or under a prefix of an S3 bucket. A file is there completely or not at all."""

import os
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from ..container_errors import Unavailable

if TYPE_CHECKING:
    from .s3 import Bucket

OutputStorage: TypeAlias = "Folder | Bucket"


def open_storage(location: str) -> OutputStorage:
    if location.startswith("s3://"):
        return open_bucket(location)
    Path(location).mkdir(parents=True, exist_ok=True)
    return Folder(Path(location))


def write_to(location: str, content: bytes) -> None:
    """Writes one file to a path or an s3:// address, replacing one of that name."""
    folder, _, name = location.rpartition("/")
    open_storage(folder or ".").write(name, content)


def open_bucket(location: str) -> "Bucket":
    """Raises `Unavailable` without boto3, which only S3 needs."""
    try:
        from .s3 import Bucket
    except ImportError as error:
        raise Unavailable(f"{location}: {error.name} is not installed. Install it, or use a path on disk.") from None
    return Bucket.open(location)


class Folder:
    """An output on disk. A file is written under a scratch name, synced to the disk, then renamed."""

    def __init__(self, folder: Path) -> None:
        self.location = str(folder)
        self._folder = folder

    def names(self) -> set[str]:
        """Returns the names of the files."""
        return {entry.name for entry in os.scandir(self._folder) if not entry.name.startswith(".")}

    def read(self, name: str) -> bytes:
        return (self._folder / name).read_bytes()

    def write(self, name: str, content: bytes) -> None:
        """Writes a file, replacing one of that name."""
        self._scratch(name, content).replace(self._folder / name)
        self._sync()

    def create(self, name: str, content: bytes) -> bytes:
        """Writes a file unless one of that name exists. Returns the content afterwards."""
        scratch = self._scratch(name, content)
        try:
            os.link(scratch, self._folder / name)
        except FileExistsError:
            return self.read(name)
        finally:
            scratch.unlink()
        self._sync()
        return content

    def tidy(self) -> None:
        """Removes scratch files of killed writers."""
        for scratch in self._folder.glob(".scratch-*"):
            scratch.unlink(missing_ok=True)

    def _scratch(self, name: str, content: bytes) -> Path:
        """Writes a scratch file with a unique name: a killed run's worker may still be writing the same chunk."""
        scratch = self._folder / f".scratch-{name}-{uuid.uuid4().hex}"
        try:
            with scratch.open("xb") as handle:
                handle.write(content)
                handle.flush()
                os.fsync(handle.fileno())
        except OSError:
            scratch.unlink(missing_ok=True)
            raise
        return scratch

    def _sync(self) -> None:
        handle = os.open(self._folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
