"""Reads .tar.gz archives that may be damaged or hostile. Unpacks them completely or not at all.

Programs that run before the rest of the code is unpacked import this module too: it uses only the standard library and
Python 3.8. `tarfile` reads the headers. Links are refused and contents are written here, so faults of `tarfile`'s
extraction (CVE-2025-4517) do not apply.
"""

from __future__ import annotations

import errno
import gzip
import hashlib
import os
import re
import tarfile
import tempfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from types import SimpleNamespace
from typing import Any, BinaryIO, Literal, cast

PIECE_BYTES = 1 << 20
MAX_HEADER_BYTES = 1 << 13
"""Limit for one entry with long names and pax records. `tarfile` may take quadratic time (CVE-2024-6232)."""
MAX_NAME_LENGTH, MAX_DEPTH = 1024, 64
Kind = Literal["file", "folder", "symlink", "hardlink", "device"]
KINDS: dict[bytes, Kind] = {
    **{tarfile.REGTYPE: "file", tarfile.AREGTYPE: "file", tarfile.CONTTYPE: "file", tarfile.DIRTYPE: "folder"},
    **{tarfile.SYMTYPE: "symlink", tarfile.LNKTYPE: "hardlink"},
    **{tarfile.CHRTYPE: "device", tarfile.BLKTYPE: "device", tarfile.FIFOTYPE: "device"},
}
ONLY_PLAIN = "only plain files and folders are unpacked"
SHA256_NAME = re.compile(r"(?:.*/)?([0-9a-f]{64})\.tar\.gz", re.DOTALL)
BESIDE = {f"{__package__}/{name}": Path(__file__).with_name(name) for name in ("__init__.py", Path(__file__).name)}
"""The files that a program needs in its own folder to import this module, by their names there."""


class ArchiveRefused(Exception):
    """The archive is damaged, too large or unsafe. The message follows the archive's name in a sentence."""


@dataclass(frozen=True)
class Limits:
    """`entries` limits files and folders, headers and gzip streams; `bytes` limits the whole tar."""

    entries: int = 100_000
    bytes: int = 32 << 30


LIMITS = Limits()


def named_sha256(location: str) -> str | None:
    """Returns the sha256 in the name of an archive that CDK uploaded as an asset; None for any other name."""
    named = SHA256_NAME.fullmatch(location)
    return named[1] if named else None


def unpack(archive: BinaryIO, folder: Path, sha256: str | None = None, limits: Limits = LIMITS) -> None:
    """Unpacks into `folder`, which must be missing or empty. Raises `ArchiveRefused`, or OSError from reading or disk.

    A missing folder appears complete or not at all. An existing one may be a mount point, which cannot be replaced: its
    entries appear one by one after the whole archive was checked.
    """
    exists = folder.is_dir()
    if exists and any(folder.iterdir()):
        raise OSError(errno.ENOTEMPTY, "the folder to unpack to is not empty", str(folder))
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".unpacking-", dir=folder if exists else folder.parent) as private:
        root = Path(private, "root")
        root.mkdir()
        names: set[PurePosixPath] = set()
        for entry in entries(archive, sha256, limits):
            name = _safe_name(entry)
            names.update((name, *name.parents))
            if len(names) > limits.entries + 1:  # with the archive's own folder
                raise ArchiveRefused(f"it has more than {limits.entries:,} files and folders")
            entry.create(root / name)
        if not exists:
            root.rename(folder)
            return
        for path in sorted(root.iterdir()):
            path.rename(folder / path.name)


def read_files(archive: BinaryIO, sha256: str | None = None, limits: Limits = LIMITS) -> dict[str, bytes]:
    """Unpacks to a temporary folder and returns the content of every file by its name. Raises `ArchiveRefused`."""
    with tempfile.TemporaryDirectory() as scratch:
        unpack(archive, Path(scratch), sha256, limits)
        paths = Path(scratch).rglob("*")
        return {path.relative_to(scratch).as_posix(): path.read_bytes() for path in paths if path.is_file()}


def entries(archive: BinaryIO, sha256: str | None = None, limits: Limits = LIMITS) -> Iterator[Entry]:
    """Yields all members, also links and names that lead out of the folder, for reports. Raises `ArchiveRefused`.

    An entry's content can be read until the next entry is requested.
    """
    stream = _Inflated(archive, limits)
    try:
        tar: Any = tarfile.TarFile(fileobj=cast(Any, stream), encoding="utf-8")
        for _ in range(limits.entries + 1):
            if (header := tar.next()) is None:
                break
            tar.members.clear()
            if tar.pax_headers.keys() & {"path", "linkpath", "size"}:
                raise ArchiveRefused("a pax header sets the path or the size for every entry")
            yield Entry(header, stream)
            stream.header_bytes = 0
        else:
            raise ArchiveRefused(f"it has more than {limits.entries:,} entries")
    except (tarfile.TarError, ValueError, LookupError, RecursionError) as error:
        raise ArchiveRefused(f"its tar is damaged ({error})") from None
    stream.finish(sha256)


class Entry:
    """A member of the archive as its headers describe it. `kind` is a value of `KINDS`."""

    def __init__(self, header: tarfile.TarInfo, stream: _Inflated) -> None:
        self.name, self.target = header.name, header.linkname
        f"{self.name}{self.target}".encode()  # raises ValueError if they are not UTF-8
        if header.issparse() or any(key.startswith("GNU.sparse.") for key in header.pax_headers):
            raise ArchiveRefused(f"{quoted(self.name)} is sparse; {ONLY_PLAIN}")
        if header.type not in KINDS:
            raise ArchiveRefused(f"{quoted(self.name)} has tar's type {header.type!r}; {ONLY_PLAIN}")
        self.kind = KINDS[header.type]
        self.size = self._left = header.size
        self._stream = stream
        self._mode = 0o777 if header.mode & 0o100 else 0o666  # less the umask
        if self.size < 0 or (self.size and self.kind != "file"):
            raise ArchiveRefused(f"{quoted(self.name)} is a {self.kind} of {self.size:,} bytes")

    def read(self, most: int = -1) -> bytes:
        """Returns the next bytes of the content: all, or at most `most`."""
        return b"".join(self.blocks(self._left if most < 0 else min(most, self._left)))

    def blocks(self, count: int) -> Iterator[bytes]:
        """Yields the next `count` bytes of the content."""
        self._left -= count
        return self._stream.blocks(count)

    def create(self, path: Path) -> None:
        """Creates the folder, or the file with its content."""
        try:
            (path if self.kind == "folder" else path.parent).mkdir(parents=True, exist_ok=True)
            if self.kind == "folder":
                return
            file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, self._mode)
        except OSError as error:
            if error.errno not in (errno.EEXIST, errno.ENOTDIR, errno.ENAMETOOLONG):
                raise
            raise ArchiveRefused(f"{quoted(self.name)} cannot be created ({error.strerror})") from None
        with os.fdopen(file, "wb") as stream:
            for block in self.blocks(self._left):
                stream.write(block)


class _Inflated:
    """The tar inside the gzip streams, a file that is only read forward. `tarfile` reads and seeks headers in it."""

    def __init__(self, archive: BinaryIO, limits: Limits) -> None:
        self._archive, self._limits, self._position, self._streams = archive, limits, 0, 0
        self._gzip: Any = gzip.GzipFile(fileobj=cast(Any, SimpleNamespace(read=self._packed)))
        self._sha256 = hashlib.sha256()
        self._last = b""
        self.header_bytes = 0  # read for the headers of one entry

    def tell(self) -> int:
        return self._position

    def seek(self, position: int) -> None:
        if position < self._position:
            raise ArchiveRefused("a size is negative")
        for _ in self.blocks(position - self._position):
            pass

    def read(self, count: int) -> bytes:
        """Reads part of a header."""
        self.header_bytes += count
        if self.header_bytes > MAX_HEADER_BYTES:
            raise ArchiveRefused(f"the headers of an entry have more than {MAX_HEADER_BYTES:,} bytes")
        self._last = self._inflate(count)
        return self._last

    def blocks(self, count: int) -> Iterator[bytes]:
        """Yields the next `count` bytes."""
        while count:
            if not (block := self._inflate(min(count, PIECE_BYTES))):
                raise ArchiveRefused("it ends in the middle of a file")
            count -= len(block)
            yield block

    def finish(self, sha256: str | None) -> None:
        """Reads to the end of the file, which checks gzip's checksum, and compares the sha256 if it is known."""
        if any(self._last):  # tarfile takes a damaged header for the end
            raise ArchiveRefused("a tar header is damaged")
        while rest := self._inflate(PIECE_BYTES):
            if any(rest):
                raise ArchiveRefused("data follows the end of its tar")
        if sha256 and (actual := self._sha256.hexdigest()) != sha256:
            raise ArchiveRefused(f"its sha256 is {actual}, not {sha256}: it is damaged, or another archive")

    def _packed(self, count: int) -> bytes:
        """Reads bytes for gzip."""
        packed = self._archive.read(count)
        self._sha256.update(packed)
        self._streams += packed.count(b"\x1f\x8b\x08")
        if self._streams > self._limits.entries:
            raise ArchiveRefused(f"it has more than {self._limits.entries:,} gzip streams")
        return packed

    def _inflate(self, count: int) -> bytes:
        try:
            piece: bytes = self._gzip.read(count)
        except EOFError:
            raise ArchiveRefused("its gzip stream ends early") from None
        except (gzip.BadGzipFile, zlib.error):
            raise ArchiveRefused("its gzip stream is damaged" if self._position else "it is not gzip") from None
        self._position += len(piece)
        if self._position > self._limits.bytes:
            raise ArchiveRefused(f"it unpacks to more than {self._limits.bytes:,} bytes")
        return piece


def _safe_name(entry: Entry) -> PurePosixPath:
    """Returns the name of a plain file or folder, without the ./ and the slashes that tar writes."""
    name = PurePosixPath(entry.name)
    if entry.kind not in ("file", "folder"):
        raise ArchiveRefused(f"{quoted(entry.name)} is a {entry.kind}; {ONLY_PLAIN}")
    if not entry.name or name.is_absolute() or ".." in name.parts or "\0" in entry.name:
        raise ArchiveRefused(f"{quoted(entry.name)} could lead out of the folder")
    if len(entry.name) > MAX_NAME_LENGTH or len(name.parts) > MAX_DEPTH:
        raise ArchiveRefused(f"{quoted(entry.name)} is a name that is too long or too deep")
    return name


def quoted(name: str) -> str:
    """Returns a name for messages: at most one line, without control characters."""
    return repr(name if len(name) <= 120 else f"{name[:60]}…{name[-60:]}")
