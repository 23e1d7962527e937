"""The errors of a checkpoint's files. Each names the file and its problem."""

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from workloads import ProjectError, UsageError


def broken(file: Path, problem: str) -> UsageError:
    """The error for a file that is missing, damaged or not of the kind a build can take."""
    return UsageError(f"{file}: {problem}")


def read_json(file: Path) -> dict[str, Any]:
    """Returns the object in a JSON file. Raises `UsageError`."""
    if file.exists() and not file.is_file():  # a FIFO would never end
        raise broken(file, "is not a regular file.")
    try:
        document = json.loads(file.read_text("utf-8"))
    except FileNotFoundError:
        raise broken(file, "does not exist. Copy the whole checkpoint again.") from None
    except ValueError as error:
        raise broken(file, f"is not valid JSON: {error}.") from None
    except RecursionError:
        raise broken(file, "is not valid JSON: it is nested too deeply.") from None
    if not isinstance(document, dict):
        raise broken(file, "is not a JSON object.")
    return document


@contextlib.contextmanager
def loading(file: Path) -> Iterator[None]:
    """Raises `UsageError` for whatever a library raises while it loads or runs `file`, or the checkpoint in a folder.

    Libraries tell of a damaged checkpoint by errors of every type; those of tokenizers that panics are no `Exception`.
    """
    try:
        yield
    except (ProjectError, KeyboardInterrupt, SystemExit, MemoryError, ModuleNotFoundError):
        raise
    except OSError as error:
        if error.errno:  # the machine's: a full disk, a file that may not be read
            raise
        raise _unloadable(file, error) from error
    except BaseException as error:
        raise _unloadable(file, error) from error


def _unloadable(file: Path, error: BaseException) -> UsageError:
    return broken(file, f"cannot be used ({type(error).__name__}: {first_line(error)}). Save or copy it again.")


def first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
