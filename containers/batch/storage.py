"""Where the output is kept: a folder, or a prefix of an S3 bucket. A file is there whole or not at all."""

import os
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from .errors import LibraryMissing

if TYPE_CHECKING:
    from .s3 import Bucket


class Storage(Protocol):
    location: str

    def names(self) -> set[str]:
        """Of the files that are there."""

    def read(self, name: str) -> bytes: ...

    def write(self, name: str, content: bytes) -> None:
        """Puts the file there, in place of one of that name."""

    def create(self, name: str, content: bytes) -> bytes:
        """Puts the file there unless there is one of that name; returns what is there then."""

    def tidy(self) -> None:
        """Removes what killed writers left."""


def open_storage(location: str) -> Storage:
    if location.startswith("s3://"):
        return open_bucket(location)
    Path(location).mkdir(parents=True, exist_ok=True)
    return Folder(Path(location))


def write_to(location: str, content: bytes) -> None:
    """Puts one file, in place of one of that name."""
    folder, _, name = location.rpartition("/")
    open_storage(folder or ".").write(name, content)


def open_bucket(location: str) -> "Bucket":
    """Only who uses S3 needs boto3."""
    try:
        from .s3 import Bucket
    except ImportError as error:
        raise LibraryMissing(location, str(error.name)) from None
    return Bucket.open(location)


class Folder:
    """Written under a scratch name, brought to the disk, then renamed."""

    def __init__(self, folder: Path) -> None:
        self.location = str(folder)
        self._folder = folder

    def names(self) -> set[str]:
        return {entry.name for entry in os.scandir(self._folder) if not entry.name.startswith(".")}

    def read(self, name: str) -> bytes:
        return (self._folder / name).read_bytes()

    def write(self, name: str, content: bytes) -> None:
        scratch = self._scratch(name, content)
        scratch.replace(self._folder / name)
        self._bring_names_to_disk()

    def create(self, name: str, content: bytes) -> bytes:
        scratch = self._scratch(name, content)
        try:
            os.link(scratch, self._folder / name)
        except FileExistsError:
            return self.read(name)
        finally:
            scratch.unlink()
        self._bring_names_to_disk()
        return content

    def tidy(self) -> None:
        for scratch in self._folder.glob(".scratch-*"):
            scratch.unlink(missing_ok=True)

    def _scratch(self, name: str, content: bytes) -> Path:
        """No two writers share one: an orphan of a killed run may still be writing the same chunk."""
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

    def _bring_names_to_disk(self) -> None:
        handle = os.open(self._folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
