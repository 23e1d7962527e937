"""Atomic writes of files, text reading with a clear error, and paths relative to the working directory."""

import contextlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from workloads.errors import InvalidDocument

PRIVATE = 0o600
"""The mode of files that hold requests of real users, or a password: only their owner reads them."""


@contextmanager
def replacing(file: Path, mode: int = 0o666) -> Iterator[IO[bytes]]:
    """Yields a file that takes the place of `file` where the block ends well, and is on disk by then.

    Until then, and where the block fails, `file` is what it was before. Its folder is made if need be; `mode` is
    without what the umask takes. An `OSError` names `file`.
    """
    scratch = file.with_name(f".{file.name}.part")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        scratch.unlink(missing_ok=True)  # one that was left behind may have another mode
        descriptor = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        with os.fdopen(descriptor, "wb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        scratch.replace(file)
    except BaseException as error:
        with contextlib.suppress(OSError):
            scratch.unlink()
        if isinstance(error, OSError):
            error.filename, error.filename2 = str(file), None
        raise


def replace_text(file: Path, text: str, mode: int = 0o666) -> None:
    """Writes `text` as UTF-8 in the place of `file`; see `replacing`."""
    with replacing(file, mode) as stream:
        stream.write(text.encode())


def from_here(path: Path) -> Path:
    """Returns the path from the working folder, where it lies below it."""
    here = Path.cwd()
    return path.relative_to(here) if path.is_relative_to(here) else path


def text_lines(file: Path) -> list[str]:
    """Returns the lines of a UTF-8 file, without a byte order mark. Raises `InvalidDocument`, which names the line.

    Only a line feed ends a line: JSON may hold the other characters that Python would end one at.
    """
    try:
        data = file.read_bytes()
    except OSError as error:
        raise InvalidDocument(file, [f"cannot be read: {error}"]) from error
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise InvalidDocument(file, ["is UTF-16. Save it as UTF-8, as `iconv -f UTF-16 -t UTF-8` does."])
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        number, begin = data.count(b"\n", 0, error.start) + 1, data.rfind(b"\n", 0, error.start) + 1
        shown = data[max(begin, error.start - 10) : error.start + 10].split(b"\n")[0].decode("utf-8", "replace")
        place = file.with_name(f"{file.name}:{number}")
        problem = (
            f"is not UTF-8: byte 0x{data[error.start]:02x} in {shown!r}. Save the file as UTF-8, as `iconv -f "
            "WINDOWS-1252 -t UTF-8` does for one of Western Europe."
        )
        raise InvalidDocument(place, [problem]) from error
    return [line.removesuffix("\r") for line in text.split("\n")]
