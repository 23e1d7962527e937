"""Reads an archive or a folder into `Contents`. Damaged bytes become a message, never a traceback.

An archive is read once, from front to back, and never unpacked. Kept are the first 64 bytes of each file, up to a
megabyte of a config.pbtxt or a Neuron model's JSON, and the zip directory of a PyTorch file. The stream is read to
gzip's checksum.
"""

import io
import os
import stat
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from posixpath import join
from typing import Protocol, TypeVar

from containers.archive_reader import LIMITS, ArchiveRefused, Entry, entries
from model_build.lint.contents import Contents, Member, normalised

HEAD_BYTES = 64
MAX_CONFIG_BYTES = 1 << 20
# A zip's directory is at its end: about a hundred bytes for each tensor.
MAX_ZIP_DIRECTORY_BYTES = 4 << 20
NEURON_JSON = ("settings.json", "server.json", "goldens.json", "parity.json")
"""The files of a model for Neuron, only at the root."""
PYTORCH_SUFFIXES = (".pt", ".pth", ".pt2", ".bin")


class Content(Protocol):
    """A file's content, from front to back."""

    def read(self, most: int = -1, /) -> bytes: ...


C = TypeVar("C", bound=Content)


def read(path: Path) -> Contents:
    """`path` must exist."""
    members: list[Member] = []
    try:
        for member in _folder(path) if path.is_dir() else _archive(path):
            members.append(member)
            if len(members) > LIMITS.entries:
                raise ArchiveRefused(f"it has more than {LIMITS.entries:,} files and folders")
    except (ArchiveRefused, OSError) as error:
        return Contents(members=tuple(members), unreadable=str(error))
    return Contents(members=tuple(members))


def _archive(path: Path) -> Iterator[Member]:
    with path.open("rb") as stream:
        for entry in entries(stream):
            if entry.kind == "file":
                yield _file(entry.name, entry.size, entry, _read_past)
            else:
                yield Member(name=entry.name, kind=entry.kind, target=entry.target)


def _folder(root: Path) -> Iterator[Member]:
    for parent, folders, files in os.walk(root, onerror=_raise):
        folders.sort()
        prefix = Path(parent).relative_to(root).as_posix()
        for name in [*folders, *sorted(files)]:
            yield _entry(Path(parent, name), join("" if prefix == "." else prefix, name))


def _entry(path: Path, name: str) -> Member:
    status = path.lstat()
    if stat.S_ISLNK(status.st_mode):
        return Member(name=name, kind="symlink", target=str(path.readlink()))
    if stat.S_ISDIR(status.st_mode):
        return Member(name=name, kind="folder")
    if not stat.S_ISREG(status.st_mode):
        return Member(name=name, kind="device")
    with path.open("rb") as content:
        return _file(name, status.st_size, content, lambda file, count: file.seek(count, io.SEEK_CUR))


def _raise(error: OSError) -> None:
    raise error


def _read_past(content: Entry, count: int) -> None:
    """A member of a stream cannot seek."""
    for _ in content.blocks(count):
        pass


def _file(name: str, size: int, content: C, skip: Callable[[C, int], object]) -> Member:
    head = content.read(HEAD_BYTES)
    text, zip_names = None, None
    wanted = name.rsplit("/", 1)[-1] == "config.pbtxt" or normalised(name) in NEURON_JSON
    if wanted and size <= MAX_CONFIG_BYTES:
        text = head + content.read()
    elif name.endswith(PYTORCH_SUFFIXES) and head.startswith(b"PK\x03\x04"):
        skip(content, max(size - len(head) - MAX_ZIP_DIRECTORY_BYTES, 0))
        zip_names = _zip_names(content.read())
    return Member(name=name, kind="file", size=size, head=head, text=text, zip_names=zip_names)


def _zip_names(tail: bytes) -> tuple[str, ...] | None:
    try:
        with zipfile.ZipFile(io.BytesIO(tail)) as archive:
            return tuple(archive.namelist())
    except (zipfile.BadZipFile, ValueError, OverflowError, NotImplementedError):
        return None
