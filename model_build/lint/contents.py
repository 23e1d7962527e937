"""The members of an archive or a folder, with the bytes that checks need.

An archive is read once, from front to back, and never unpacked. Kept are the first 64 bytes of each file, up to a
megabyte of a config.pbtxt or a Neuron model's JSON, and the zip directory of a PyTorch file. The stream is read to
gzip's checksum. Damaged bytes become a message, never a traceback. Paths are relative, with forward slashes and no
`./`; the root is "".
"""

import io
import os
import posixpath
import stat
import zipfile
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from posixpath import join
from typing import BinaryIO

from containers.archive_reader import LIMITS, ArchiveRefused, Entry, Kind, entries


@dataclass(frozen=True, kw_only=True, slots=True)
class Member:
    name: str
    """The name as stored; `Contents` normalises it."""
    kind: Kind
    size: int = 0
    target: str = ""
    """A link's target, relative to its own folder (symlink) or to the root (hardlink)."""
    head: bytes = b""
    """A file's first 64 bytes."""
    text: bytes | None = None
    """The content of a config.pbtxt or a Neuron model's JSON, unless it is too large."""
    zip_names: tuple[str, ...] | None = None
    """The names in a zipped PyTorch file; None for other files or an unreadable directory."""


@dataclass(frozen=True)
class Contents:
    members: tuple[Member, ...]
    unreadable: str | None = None
    """The reason why reading ended early, after these members."""

    @cached_property
    def tree(self) -> Mapping[str, Member]:
        """The members inside the archive, by normalised path; the last of a name wins, as in unpacking."""
        return {path: member for member in self.members if (path := normalised(member.name))}

    @cached_property
    def _children(self) -> Mapping[str, set[str]]:
        children: dict[str, set[str]] = {"": set()}
        for path in self.tree:
            while path:
                parent, name = posixpath.split(path)
                children.setdefault(parent, set()).add(name)
                path = parent
        return children

    def children(self, folder: str) -> list[str]:
        """The names inside a folder, sorted."""
        return sorted(self._children.get(folder, ()))

    def folders(self, folder: str) -> list[str]:
        """The names of the folders inside a folder."""
        return [name for name in self.children(folder) if self.is_folder(join(folder, name))]

    def is_folder(self, path: str) -> bool:
        return path in self._children or ((member := self.resolve(path)) is not None and member.kind == "folder")

    def file(self, path: str) -> Member | None:
        member = self.resolve(path)
        return member if member is not None and member.kind == "file" else None

    def exists(self, path: str) -> bool:
        return self.file(path) is not None or self.is_folder(path)

    def resolve(self, path: str) -> Member | None:
        """The member at `path`, through links that stay inside; None where there is none."""
        for _ in range(8):
            member = self.tree.get(path)
            if member is None or member.kind not in ("symlink", "hardlink"):
                return member
            inside = link_target(path, member)
            if inside is None:
                return None
            path = inside
        return None


def normalised(name: str) -> str | None:
    """`./a//b/` is `a/b`; None for a name that leaves the archive."""
    if name.startswith("/"):
        return None
    path = posixpath.normpath(name)
    if path == ".." or path.startswith("../"):
        return None
    return "" if path == "." else path


def link_target(path: str, member: Member) -> str | None:
    """Returns the path to which a link at `path` points, relative to the root; None where it points out."""
    if member.target.startswith("/"):
        return None
    folder = posixpath.dirname(path) if member.kind == "symlink" else ""
    return normalised(join(folder, member.target))


HEAD_BYTES = 64
MAX_CONFIG_BYTES = 1 << 20
# A zip's directory is at its end: about a hundred bytes for each tensor.
MAX_ZIP_DIRECTORY_BYTES = 4 << 20
NEURON_JSON = ("settings.json", "server.json", "goldens.json", "parity.json")
"""The files of a model for Neuron, only at the root."""
PYTORCH_SUFFIXES = (".pt", ".pth", ".pt2", ".bin")


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
                yield _file(entry.name, entry.size, entry)
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
        return _file(name, status.st_size, content)


def _raise(error: OSError) -> None:
    raise error


def _file(name: str, size: int, content: Entry | BinaryIO) -> Member:
    head = content.read(HEAD_BYTES)
    text, zip_names = None, None
    wanted = name.rsplit("/", 1)[-1] == "config.pbtxt" or normalised(name) in NEURON_JSON
    if wanted and size <= MAX_CONFIG_BYTES:
        text = head + content.read()
    elif name.endswith(PYTORCH_SUFFIXES) and head.startswith(b"PK\x03\x04"):
        before = max(size - len(head) - MAX_ZIP_DIRECTORY_BYTES, 0)
        if isinstance(content, Entry):
            deque(content.blocks(before), maxlen=0)
        else:
            content.seek(before, io.SEEK_CUR)
        zip_names = _zip_names(content.read())
    return Member(name=name, kind="file", size=size, head=head, text=text, zip_names=zip_names)


def _zip_names(tail: bytes) -> tuple[str, ...] | None:
    try:
        with zipfile.ZipFile(io.BytesIO(tail)) as archive:
            return tuple(archive.namelist())
    except (zipfile.BadZipFile, ValueError, OverflowError, NotImplementedError):
        return None
