"""Files that are whole or not there, whatever ends the program or fills the disk while they are written; their names as
one types them.
"""

import contextlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

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
