"""Reads .tar.gz archives that may be damaged or hostile. Unpacks them completely or not at all.

Programs that run before the rest of the code is unpacked import this module too: it uses only the standard library and
Python 3.8. Of `tarfile` it uses only the parser of headers. Links are refused and contents are written here, so faults
of `tarfile`'s extraction (CVE-2025-4517) do not apply.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import tarfile
import tempfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, Literal

BLOCK_BYTES, READ_BYTES, PIECE_BYTES = tarfile.BLOCKSIZE, 1 << 17, 1 << 20
MAX_EXTENDED_BYTES = 1 << 20
"""Largest long name or pax header. It is held in memory."""
MAX_NAME_LENGTH, MAX_DEPTH = 1024, 64
Kind = Literal["file", "folder", "symlink", "hardlink", "device"]
KINDS: dict[bytes, Kind] = {
    **{tarfile.REGTYPE: "file", tarfile.AREGTYPE: "file", tarfile.CONTTYPE: "file", tarfile.DIRTYPE: "folder"},
    **{tarfile.SYMTYPE: "symlink", tarfile.LNKTYPE: "hardlink"},
    **{tarfile.CHRTYPE: "device", tarfile.BLKTYPE: "device", tarfile.FIFOTYPE: "device"},
}
ONLY_PLAIN = "only plain files and folders are unpacked"
LONG_FIELDS = {tarfile.GNUTYPE_LONGNAME: "path", tarfile.GNUTYPE_LONGLINK: "linkpath"}
PAX_TYPES = (tarfile.XHDTYPE, tarfile.XGLTYPE)
PAX_RECORD = re.compile(rb"([1-9][0-9]{0,6}) ([^=\n]+)=")
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
        files = [path for path in Path(scratch).rglob("*") if path.is_file()]
        return {path.relative_to(scratch).as_posix(): path.read_bytes() for path in files}


def entries(archive: BinaryIO, sha256: str | None = None, limits: Limits = LIMITS) -> Iterator[Entry]:
    """Yields all members, also links and names that lead out of the folder, for reports. Raises `ArchiveRefused`.

    An entry's content can be read until the next entry is requested.
    """
    tar = _Tar(archive, limits)
    extended: dict[str, str] = {}
    for _ in range(limits.entries + 1):
        if (header := tar.header()) is None:
            break
        if header.type not in KINDS:
            records = tar.records(header)
            if not extended.keys().isdisjoint(records):
                raise ArchiveRefused("two extended headers describe one entry")
            extended.update(records)
            continue
        entry = Entry(tar, header, extended)
        extended = {}
        yield entry
        entry.skip()
    else:
        raise ArchiveRefused(f"it has more than {limits.entries:,} headers")
    if extended:
        raise ArchiveRefused("it ends after an extended header")
    tar.finish(sha256)


class Entry:
    """A member of the archive as its headers describe it. `kind` is a value of `KINDS`."""

    def __init__(self, tar: _Tar, header: tarfile.TarInfo, extended: dict[str, str]) -> None:
        self.name = extended.get("path", header.name)
        self.target = extended.get("linkpath", header.linkname)
        self.kind = KINDS[header.type]
        self.size = self._left = int(extended.get("size", header.size))
        self._tar = tar
        self._mode = 0o777 if header.mode & 0o100 else 0o666  # less the umask
        if self.size and self.kind != "file":
            raise ArchiveRefused(f"{quoted(self.name)} has content and is not a file")

    def read(self, most: int = -1) -> bytes:
        """Returns the next bytes of the content: all, or at most `most`."""
        return b"".join(self.blocks(self._left if most < 0 else min(most, self._left)))

    def blocks(self, count: int) -> Iterator[memoryview]:
        """Yields the next `count` bytes of the content. Each piece is valid until the next one is requested."""
        self._left -= count
        return self._tar.blocks(count, quoted(self.name))

    def skip(self) -> None:
        """Skips the rest of the content and its padding to a whole block."""
        for _ in self.blocks(self._left + -self.size % BLOCK_BYTES):
            pass

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


class _Tar:
    """Inflates the archive in pieces, one of which is in memory, and parses headers."""

    def __init__(self, source: BinaryIO, limits: Limits) -> None:
        self._source, self._limits, self._left = source, limits, limits.bytes
        self._digest = hashlib.sha256()
        self._streams = 0
        self._gzip: Any = None
        self._packed = b""
        self._piece = memoryview(b"")

    def header(self) -> tarfile.TarInfo | None:
        """Returns the next header; None at the end, which some programs do not mark."""
        self._piece = self._piece or memoryview(self._inflate())
        block = b"".join(self.blocks(BLOCK_BYTES, "a tar header")) if self._piece else b""
        if not any(block):
            return None
        try:
            header = tarfile.TarInfo.frombuf(block, "utf-8", "strict")
        except (tarfile.HeaderError, ValueError) as error:
            raise ArchiveRefused(f"a tar header is damaged ({error})") from None
        if header.size < 0:
            raise ArchiveRefused("a tar header is damaged (negative size)")
        if header.type not in (*KINDS, *LONG_FIELDS, *PAX_TYPES):
            raise ArchiveRefused(f"{quoted(header.name)} has tar's type {header.type!r}; {ONLY_PLAIN}")
        return header

    def records(self, header: tarfile.TarInfo) -> dict[str, str]:
        """Reads an extended header. Returns the path, link target and size that it sets for the next entry."""
        if header.size > MAX_EXTENDED_BYTES:
            raise ArchiveRefused(f"an extended tar header has {header.size:,} bytes")
        padded = b"".join(self.blocks(header.size + -header.size % BLOCK_BYTES, "an extended header"))
        content = padded[: header.size]
        try:
            if header.type in LONG_FIELDS:
                return {LONG_FIELDS[header.type]: content.partition(b"\0")[0].decode()}
            pairs = list(_pax_records(content))
        except UnicodeDecodeError:
            raise ArchiveRefused("an extended tar header is not UTF-8") from None
        records = dict(pairs)
        if len(records) < len(pairs) or (records and header.type == tarfile.XGLTYPE):
            raise ArchiveRefused("a pax header sets the path or the size twice, or for every entry")
        return records

    def blocks(self, count: int, what: str) -> Iterator[memoryview]:
        """Yields the next `count` bytes."""
        while count:
            self._piece = self._piece or memoryview(self._inflate())
            if not self._piece:
                raise ArchiveRefused(f"it ends in the middle of {what}")
            block, self._piece = self._piece[:count], self._piece[count:]
            count -= len(block)
            yield block

    def finish(self, sha256: str | None) -> None:
        """Reads to the end of the file, which checks gzip's checksum, and compares the sha256 if it is known."""
        rest = bytes(self._piece)
        while rest:
            if rest.count(0) < len(rest):
                raise ArchiveRefused("data follows the end of its tar")
            rest = self._inflate()
        if sha256 and (actual := self._digest.hexdigest()) != sha256:
            raise ArchiveRefused(f"its sha256 is {actual}, not {sha256}: it is damaged, or another archive")

    def _inflate(self) -> bytes:
        """Returns the next piece; empty at the end of the file. One gzip stream may follow another."""
        piece = b""
        while not piece:
            if not self._packed:
                self._packed = self._source.read(READ_BYTES)
                self._digest.update(self._packed)
            if self._gzip is None and not self._packed and self._streams:
                return b""
            if self._gzip is None:
                if not self._packed.startswith(b"\x1f\x8b"):
                    raise ArchiveRefused("data follows its gzip stream" if self._streams else "it is not gzip")
                self._streams += 1
                if self._streams > self._limits.entries:
                    raise ArchiveRefused(f"it has more than {self._limits.entries:,} gzip streams")
                self._gzip = zlib.decompressobj(wbits=16 + zlib.MAX_WBITS)
            if not self._packed:
                raise ArchiveRefused("its gzip stream ends early")
            try:
                piece = self._gzip.decompress(self._packed, min(PIECE_BYTES, self._left + 1))
            except zlib.error as error:
                raise ArchiveRefused(f"its gzip stream is damaged ({error})") from None
            self._packed = self._gzip.unused_data if self._gzip.eof else self._gzip.unconsumed_tail
            self._gzip = None if self._gzip.eof else self._gzip
        self._left -= len(piece)
        if self._left < 0:
            raise ArchiveRefused(f"it unpacks to more than {self._limits.bytes:,} bytes")
        return piece


def _pax_records(content: bytes) -> Iterator[tuple[str, str]]:
    """Yields the records that matter. A record is its length in bytes, a key and a value."""
    start = 0
    while start < len(content):
        record = PAX_RECORD.match(content, start)
        end = start + int(record[1]) if record else 0
        if record is None or not record.end() < end <= len(content) or content[end - 1 : end] != b"\n":
            raise ArchiveRefused("a pax header is damaged")
        key, value = record[2].decode(), content[record.end() : end - 1]
        if key.startswith(("GNU.sparse.", "hdrcharset")) or (
            key == "size" and not re.fullmatch(rb"[0-9]{1,19}", value)
        ):
            raise ArchiveRefused(f"a pax header has {quoted(key)} of {value[:40]!r}; {ONLY_PLAIN}")
        if key in ("path", "linkpath", "size"):
            yield key, value.decode()
        start = end


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
