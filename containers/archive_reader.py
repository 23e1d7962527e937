"""Reads .tar.gz archives that may be damaged or hostile, and unpacks them whole or not at all.

Every room reads archives with this module, also programs that run before anything else of ours is unpacked: it is
uploaded beside them. So it imports the standard library alone, and keeps to Python 3.8.

What is read are plain files and folders with relative names, once each: no links, devices or sparse files, so that no
name can lead anywhere else. The stream is read to its very end, past gzip's checksum, within `Limits`, and compared
with the archive's sha256 where the caller knows it. Formats are ustar, pax and GNU's long names. Owners, times and
other metadata are not taken.

Python's own tarfile is not used: links longer than a path may be got out of its filter (CVE-2025-4517), it takes a
damaged header for the end of the archive, and which faults of it are mended depends on the image's Python.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import tempfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Literal

BLOCK_BYTES = 512
READ_BYTES, INFLATED_BYTES = 1 << 17, 1 << 20
MAX_EXTENDED_BYTES = 1 << 20
"""The longest long name or pax header: it is held in memory."""
MAX_NAME_BYTES, MAX_PART_BYTES, MAX_DEPTH = 1024, 255, 64

Kind = Literal["file", "folder", "symlink", "hardlink", "device"]
KINDS: dict[bytes, Kind] = {
    **{b"0": "file", b"\0": "file", b"7": "file", b"5": "folder"},
    **{b"1": "hardlink", b"2": "symlink", b"3": "device", b"4": "device", b"6": "device"},
}
IN_WORDS = {"symlink": "a symbolic link", "hardlink": "a hard link", "device": "a device or a pipe"}
EXTENDED = {b"x": "pax", b"g": "global pax", b"L": "name", b"K": "target"}
ONLY_PLAIN = "only plain files and folders are unpacked"
NAMED = re.compile(r"(?:.*/)?([0-9a-f]{64})\.tar\.gz", re.DOTALL)
OCTAL = re.compile(rb" *([0-7]*)[ \0]*")
PAX_RECORD = re.compile(rb"([1-9][0-9]{0,6}) ([^=\n]+)=")


class ArchiveRefused(Exception):
    """An archive that is damaged, too large or not to be trusted. The message goes on after the archive's name."""


@dataclass(frozen=True)
class Limits:
    """The most that an archive may be."""

    entries: int = 100_000
    """Files and folders, also those that only a file's name tells of. So many headers and gzip streams are the most."""
    bytes: int = 32 << 30
    """All that is inflated: contents, headers and padding."""


LIMITS = Limits()

BESIDE = {f"{__package__}/{name}": Path(__file__).with_name(name) for name in ("__init__.py", Path(__file__).name)}
"""The files that a program needs in its own folder to import this module, by their names there."""


def named_sha256(location: str) -> str | None:
    """Returns the sha256 that an archive is named by, as CDK names its assets in S3; None for any other name."""
    named = NAMED.fullmatch(location)
    return named[1] if named else None


def unpack(archive: BinaryIO, folder: Path, sha256: str | None = None, limits: Limits = LIMITS) -> None:
    """Unpacks into `folder`, which is not there or empty. Raises `ArchiveRefused`, or OSError from reading or the disk.

    A folder that is not there appears whole or not at all. One that is there may be a mount point, which cannot be
    replaced: its entries appear one by one, after the whole archive was found good.
    """
    there = folder.is_dir()
    if there and any(folder.iterdir()):
        raise OSError(errno.ENOTEMPTY, "the folder to unpack to is not empty", str(folder))
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".unpacking-", dir=folder if there else folder.parent) as private:
        made = Path(private, "made")
        made.mkdir()
        for name, entry in _plain(entries(archive, sha256, limits), limits):
            _make(f"{made}/{name}", entry)
        if not there:
            made.rename(folder)
            return
        for path in sorted(made.iterdir()):
            path.rename(folder / path.name)


def read_files(archive: BinaryIO, sha256: str | None = None, limits: Limits = LIMITS) -> dict[str, bytes]:
    """Returns the content of every file by its name. Raises `ArchiveRefused`."""
    found = _plain(entries(archive, sha256, limits), limits)
    return {name: entry.read() for name, entry in found if entry is not None}


def entries(archive: BinaryIO, sha256: str | None = None, limits: Limits = LIMITS) -> Iterator[Entry]:
    """Yields what the archive says that it holds, also links and names that lead out of it. Raises `ArchiveRefused`.

    For those who report and unpack nothing. An entry's content can be read until the next entry is asked for.
    """
    tar = _Tar(archive, limits, hashlib.sha256() if sha256 else None)
    extended = _Extended()
    for _ in range(limits.entries + 1):
        if (block := tar.header()) is None:
            break
        if (type_ := block[156:157]) in EXTENDED:
            extended.add(EXTENDED[type_], tar.content(_number(block[124:136])))
            continue
        entry = Entry(tar, block, extended)
        extended = _Extended()
        yield entry
        entry.skip()
    else:
        raise ArchiveRefused(f"it has more than {limits.entries:,} headers")
    if extended.found:
        raise ArchiveRefused("it ends behind an extended header")
    tar.finish(sha256)


class Entry:
    """A member of the archive as its headers describe it."""

    __slots__ = ("_left", "_tar", "executable", "kind", "name", "size", "target")

    def __init__(self, tar: _Tar, block: bytes, extended: _Extended) -> None:
        self._tar = tar
        self.name = extended.name or _stored_name(block)
        self.target = extended.target or _text(block[157:257])
        self.size = self._left = _number(block[124:136]) if extended.size is None else extended.size
        self.executable = bool(_number(block[100:108]) & 0o100)
        type_ = block[156:157]
        if type_ not in KINDS:
            raise ArchiveRefused(f"{quoted(self.name)} is a member of tar's type {type_!r}; {ONLY_PLAIN}")
        old_folder = type_ == b"\0" and self.name.endswith("/")  # from before tar had a type for folders
        self.kind: Kind = "folder" if old_folder else KINDS[type_]
        if self.size and self.kind != "file":
            raise ArchiveRefused(f"{quoted(self.name)} is no file, and has content")

    def read(self, most: int = -1) -> bytes:
        """Returns the next bytes of the content: all, or at most so many."""
        return b"".join(self.blocks(self._left if most < 0 else min(most, self._left)))

    def skip(self) -> None:
        """Passes what is left of the content, and the padding to a whole block."""
        for _ in self.blocks(self._left):
            pass
        padding = -self.size % BLOCK_BYTES
        if len(self._tar.exactly(padding)) < padding:
            raise ArchiveRefused(f"it ends in the middle of {quoted(self.name)}")

    def blocks(self, count: int) -> Iterator[memoryview]:
        """Yields the next `count` bytes of the content, in pieces that hold until the next is asked for."""
        while count:
            block = self._tar.take(count)
            if not block:
                raise ArchiveRefused(f"it ends in the middle of {quoted(self.name)}")
            count -= len(block)
            self._left -= len(block)
            yield block

    def write(self, path: str) -> None:
        """Writes the content to a new file."""
        mode = 0o777 if self.executable else 0o666  # less the umask
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode), "wb") as file:
            for block in self.blocks(self._left):
                file.write(block)


@dataclass
class _Extended:
    """The values that the headers before a member say in place of its own."""

    name: str | None = None
    target: str | None = None
    size: int | None = None
    found: list[str] = field(default_factory=list)

    def add(self, what: str, content: bytes) -> None:
        if what == "global pax":
            self._add_records(dict(_pax_records(content)), everywhere=True)
            return
        if what in self.found or (self.found and "pax" in {what, *self.found}):
            raise ArchiveRefused(f"two extended headers belong to one entry ({' and '.join([*self.found, what])})")
        self.found.append(what)
        if what == "name":
            self.name = _text(content)
        elif what == "target":
            self.target = _text(content)
        else:
            self._add_records(dict(_pax_records(content)), everywhere=False)

    def _add_records(self, records: dict[str, bytes], everywhere: bool) -> None:
        sparse = sorted(key for key in records if key.startswith("GNU.sparse."))
        if sparse or records.get("hdrcharset", b"ISO-IR 10646 2000 UTF-8") != b"ISO-IR 10646 2000 UTF-8":
            raise ArchiveRefused(f"a pax header has {sparse[0] if sparse else 'hdrcharset'}; {ONLY_PLAIN}")
        if everywhere and not records.keys().isdisjoint(("path", "linkpath", "size")):
            raise ArchiveRefused("a global pax header names the path or the size of every entry")
        if b"\0" in records.get("path", b"") + records.get("linkpath", b""):
            raise ArchiveRefused("a pax header has a name with a NUL byte")
        if "path" in records:
            self.name = _text(records["path"])
        if "linkpath" in records:
            self.target = _text(records["linkpath"])
        if "size" in records:
            if not re.fullmatch(rb"[0-9]{1,19}", records["size"]):
                raise ArchiveRefused(f"a pax header has a size that is no number: {records['size'][:40]!r}")
            self.size = int(records["size"])


class _Tar:
    """The bytes of the tar, inflated as they are asked for. Memory holds one piece of them."""

    def __init__(self, source: BinaryIO, limits: Limits, digest: Any) -> None:
        self._source, self._limits, self._digest = source, limits, digest
        self._streams = 0
        self._gzip: Any = None
        self._packed = b""
        self._inflated = memoryview(b"")
        self._left = limits.bytes

    def take(self, most: int) -> memoryview:
        """Returns the next bytes, at most so many; none at the end."""
        if not self._inflated:
            self._inflated = memoryview(self._inflate())
        taken, self._inflated = self._inflated[:most], self._inflated[most:]
        return taken

    def exactly(self, count: int) -> bytes:
        """Returns the next `count` bytes, fewer only at the end."""
        taken = bytes(self.take(count)) if count else b""
        while len(taken) < count and (more := self.take(count - len(taken))):
            taken += more
        return taken

    def header(self) -> bytes | None:
        """Returns the next block, whose checksum is right; None at the end, which some tars do not mark."""
        block = self.exactly(BLOCK_BYTES)
        if not block or block == bytes(BLOCK_BYTES):
            return None
        if len(block) < BLOCK_BYTES:
            raise ArchiveRefused("it ends in the middle of a tar header")
        # The checksum's own field counts as spaces.
        if sum(block) - sum(block[148:156]) + 8 * ord(" ") != _number(block[148:156]):
            raise ArchiveRefused("a tar header is damaged: its checksum is wrong")
        return block

    def content(self, size: int) -> bytes:
        """Returns the content of an extended header."""
        if size > MAX_EXTENDED_BYTES:
            raise ArchiveRefused(f"an extended tar header has {size:,} bytes")
        content, padding = self.exactly(size), self.exactly(-size % BLOCK_BYTES)
        if (len(content) + len(padding)) % BLOCK_BYTES or len(content) < size:
            raise ArchiveRefused("it ends in the middle of an extended header")
        return content

    def finish(self, sha256: str | None) -> None:
        """Reads to the end of the stream, where gzip's checksum is, and compares the archive's own."""
        while rest := bytes(self.take(INFLATED_BYTES)):
            if rest.count(0) != len(rest):
                raise ArchiveRefused("there is data behind its end")
        if sha256 and (actual := self._digest.hexdigest()) != sha256:
            raise ArchiveRefused(f"its sha256 is {actual}, not {sha256}: it is damaged, or another archive")

    def _inflate(self) -> bytes:
        inflated = b""
        while not inflated and (self._gzip or self._begin_stream()):
            if not self._packed and not self._read():
                raise ArchiveRefused("its gzip stream ends early")
            try:
                inflated = self._gzip.decompress(self._packed, min(INFLATED_BYTES, self._left + 1))
            except zlib.error as error:
                raise ArchiveRefused(f"its gzip stream is damaged ({error})") from None
            ended = self._gzip.eof
            self._packed = self._gzip.unused_data if ended else self._gzip.unconsumed_tail
            self._gzip = None if ended else self._gzip
        self._left -= len(inflated)
        if self._left < 0:
            raise ArchiveRefused(f"it unpacks to more than {self._limits.bytes:,} bytes")
        return inflated

    def _begin_stream(self) -> bool:
        """Begins the next gzip stream; one may follow another. Returns whether there is one."""
        if not self._packed and not self._read():
            if not self._streams:
                raise ArchiveRefused("it is empty")
            return False
        if not b"\x1f\x8b".startswith(self._packed[:2]):
            raise ArchiveRefused("there is data behind its gzip stream" if self._streams else "it is not gzip")
        self._streams += 1
        if self._streams > self._limits.entries:
            raise ArchiveRefused(f"it has more than {self._limits.entries:,} gzip streams")
        self._gzip = zlib.decompressobj(wbits=16 + zlib.MAX_WBITS)
        return True

    def _read(self) -> bool:
        self._packed = self._source.read(READ_BYTES)
        if self._digest:
            self._digest.update(self._packed)
        return bool(self._packed)


def _plain(found: Iterator[Entry], limits: Limits) -> Iterator[tuple[str, Entry | None]]:
    """Yields each file with its normalised name, and before it None for each folder that is to be there."""
    kinds: dict[str, str] = {"": "folder"}
    for entry in found:
        if entry.kind in IN_WORDS:
            raise ArchiveRefused(f"{quoted(entry.name)} is {IN_WORDS[entry.kind]}; {ONLY_PLAIN}")
        if entry.kind == "file" and entry.name.endswith("/"):
            raise ArchiveRefused(f"{quoted(entry.name)} is a file with the name of a folder")
        name = _relative(entry.name)
        above = name.rpartition("/")[0]
        missing = []
        while above not in kinds:
            missing.append(above)
            above = above.rpartition("/")[0]
        if kinds[above] == "file":
            raise ArchiveRefused(f"{quoted(entry.name)} lies in a file")
        for folder in reversed(missing):
            kinds[folder] = "folder"
            yield folder, None
        if (was := kinds.get(name)) and not was == entry.kind == "folder":
            raise ArchiveRefused(f"{quoted(entry.name)} is there twice")
        if not was:
            kinds[name] = entry.kind
            yield name, entry if entry.kind == "file" else None
        if len(kinds) > limits.entries + 1:
            raise ArchiveRefused(f"it has more than {limits.entries:,} files and folders")


def _relative(stored: str) -> str:
    """Returns the name without the ./ and the slashes that tar writes; "" for the archive's own folder."""
    parts = [part for part in stored.split("/") if part not in ("", ".")]
    if not stored or stored.startswith("/") or ".." in parts:
        raise ArchiveRefused(f"{quoted(stored)} could lead out of the folder")
    try:
        lengths = [len(part.encode()) for part in parts]
    except UnicodeEncodeError:
        raise ArchiveRefused(f"{quoted(stored)} is a name that is no UTF-8") from None
    if len(parts) > MAX_DEPTH or max(lengths, default=0) > MAX_PART_BYTES or sum(lengths) > MAX_NAME_BYTES:
        raise ArchiveRefused(f"{quoted(stored)} is a name that is too long or too deep")
    return "/".join(parts)


def _make(path: str, entry: Entry | None) -> None:
    try:
        if entry is None:
            Path(path).mkdir()
        else:
            entry.write(path)
    except FileExistsError:  # the disk takes two names for one, as with upper and lower case
        raise ArchiveRefused(f"{quoted(path.rpartition('/')[2])} is there twice on this disk") from None


def quoted(name: str) -> str:
    """Returns a name for messages: no longer than a line, without control characters."""
    return repr(name if len(name) <= 120 else f"{name[:60]}…{name[-60:]}")


def _stored_name(block: bytes) -> str:
    name = _text(block[:100])
    magic, prefix = block[257:263], _text(block[345:500])
    if magic not in (b"ustar\0", b"ustar ", bytes(6)):
        raise ArchiveRefused("a tar header is of no known format")
    # GNU's own format, whose magic ends with a space, keeps other things in the prefix's place.
    return f"{prefix}/{name}" if prefix and magic == b"ustar\0" else name


def _text(stored: bytes) -> str:
    return stored.partition(b"\0")[0].decode("utf-8", "surrogateescape")


def _number(stored: bytes) -> int:
    """Reads octal digits, or GNU's base 256, which begins with the byte 0x80."""
    if octal := OCTAL.fullmatch(stored):
        return int(octal[1] or b"0", 8)
    if stored[0] == 0x80:
        return int.from_bytes(stored[1:], "big")
    raise ArchiveRefused("a tar header is damaged: a number in it is none")


def _pax_records(content: bytes) -> Iterator[tuple[str, bytes]]:
    """Yields the records of a pax header: the length of the record in bytes, a key and a value."""
    keys = set()
    start = 0
    while start < len(content):
        record = PAX_RECORD.match(content, start)
        end = start + int(record[1]) if record else 0
        if record is None or not record.end() < end <= len(content) or content[end - 1 : end] != b"\n":
            raise ArchiveRefused("a pax header is damaged")
        key = record[2].decode("utf-8", "replace")
        if key in keys:
            raise ArchiveRefused(f"a pax header has {quoted(key)} twice")
        keys.add(key)
        yield key, content[record.end() : end - 1]
        start = end
