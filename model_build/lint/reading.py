"""Reads an archive or a folder into `Contents`. Whatever is wrong with the bytes becomes a sentence, never a traceback.

An archive is read once, from front to back, never unpacked and never held: of each file the first 64 bytes, of a
config.pbtxt up to a megabyte, of a PyTorch file its zip directory. The stream is read to gzip's checksum.
"""

import gzip
import io
import os
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

from typing_extensions import Self

from model_build.lint.contents import Contents, Kind, Member, join

HEAD_BYTES = 64
BLOCK_BYTES = 1 << 20
MAX_CONFIG_BYTES = 1 << 20
# A zip's directory is at its end: about a hundred bytes for each tensor.
MAX_ZIP_DIRECTORY_BYTES = 4 << 20
MAX_EXTENDED_HEADER_BYTES = 1 << 20
# tarfile keeps every header that it has seen.
MAX_MEMBERS = 200_000
PYTORCH_SUFFIXES = (".pt", ".pth", ".pt2", ".bin")
EXTENDED_HEADERS = (
    tarfile.XHDTYPE,
    tarfile.XGLTYPE,
    tarfile.SOLARIS_XHDTYPE,
    tarfile.GNUTYPE_LONGNAME,
    tarfile.GNUTYPE_LONGLINK,
)


def read(path: Path) -> Contents:
    """`path` must exist."""
    members: list[Member] = []
    try:
        for member in _folder(path) if path.is_dir() else _archive(path):
            members.append(member)
            if len(members) > MAX_MEMBERS:
                raise tarfile.ReadError(f"more than {MAX_MEMBERS:,} members")
    except (tarfile.TarError, EOFError, OSError, zlib.error, ValueError, OverflowError) as error:
        return Contents(members=tuple(members), unreadable=str(error) or type(error).__name__)
    return Contents(members=tuple(members))


class _CheckedHeader(tarfile.TarInfo):
    """tarfile takes a damaged header behind the first one for the end of the archive; here it is an error.

    A long name or pax header is read whole into memory, so its size is limited.
    """

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Self:
        try:
            header = super().frombuf(buf, encoding, errors)
        except tarfile.HeaderError as error:
            # Nothing, or nothing but zeros, is how an archive ends.
            if any(buf):
                raise tarfile.ReadError(f"a damaged tar header ({error})") from error
            raise
        if header.size < 0:
            raise tarfile.ReadError("a tar header with a negative size")
        if header.type in EXTENDED_HEADERS and header.size > MAX_EXTENDED_HEADER_BYTES:
            raise tarfile.ReadError(f"an extended tar header of {header.size:,} bytes")
        return header


class _Stream(gzip.GzipFile):
    """A stream that ends once: tarfile skips a member block by block, however many its header claims."""

    _ended = False

    def read(self, size: int | None = -1) -> bytes:
        data = super().read(size)
        if not data and self._ended:
            raise EOFError("the archive ends in the middle of a member")
        self._ended = not data
        return data


def _archive(path: Path) -> Iterator[Member]:
    with _Stream(path, "rb") as stream:
        with tarfile.open(fileobj=stream, mode="r|", bufsize=BLOCK_BYTES, tarinfo=_CheckedHeader) as tar:
            while (header := tar.next()) is not None:
                yield _member(tar, header)
        while stream.read1(BLOCK_BYTES):
            pass


def _member(tar: tarfile.TarFile, header: tarfile.TarInfo) -> Member:
    kind = _kind(header)
    if kind != "file":
        return Member(name=header.name, kind=kind, target=header.linkname)
    content = tar.extractfile(header)
    if content is None:
        raise tarfile.ReadError(f"'{header.name}' has no content")
    return _file(header.name, header.size, content, _read_past)


def _kind(header: tarfile.TarInfo) -> Kind:
    if header.isdir():
        return "folder"
    if header.issym():
        return "symlink"
    if header.islnk():
        return "hardlink"
    return "device" if header.isdev() else "file"


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


def _read_past(content: IO[bytes], count: int) -> None:
    """A member of a stream cannot seek."""
    while count > 0 and (block := content.read(min(count, BLOCK_BYTES))):
        count -= len(block)


def _file(name: str, size: int, content: IO[bytes], skip: Callable[[IO[bytes], int], object]) -> Member:
    head = content.read(HEAD_BYTES)
    text, zip_names = None, None
    if name.rsplit("/", 1)[-1] == "config.pbtxt" and size <= MAX_CONFIG_BYTES:
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
