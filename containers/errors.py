"""The errors of the programs that run in containers, one class for each exit code, and how such a program ends.

The messages are written where they are raised: where, what, the value got, what is allowed, what to do next.
"""

import os
import sys
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path

UNFORESEEN = 70
INTERRUPTED = 130
READER_GONE = 141
"""The exit code of a program that SIGPIPE ended."""
FRAMES = 4
"""Innermost calls that the sentence about an unforeseen error names: the log goes with its container."""
LONGEST_MESSAGE = 300


class ContainerError(Exception):
    """A wrong setting, argument or input file."""

    exit_code = 2


class RowsUnaccounted(ContainerError):
    """Rows of a batch's input that are not in its output, or more rows than the input has."""

    exit_code = 1


class Unavailable(ContainerError):
    """A model, a device, a worker, a library or a storage that is not there or refuses."""

    exit_code = 3


def exit_code_of(main: Callable[[], int]) -> int:
    """Runs `main` and returns its exit code. An error that escapes it is told in one sentence on standard error."""
    try:
        code = main()
    except ContainerError as error:
        problem, code = str(error), error.exit_code
    except OSError as error:
        problem, code = f"{error}.", Unavailable.exit_code
    except MemoryError:
        problem, code = "There is not enough memory: give the container more, or less to do.", Unavailable.exit_code
    except KeyboardInterrupt:
        problem, code = "Interrupted.", INTERRUPTED
    except Exception as error:
        problem, code = unforeseen(error), UNFORESEEN
    else:
        return _flushed() or code
    print(problem, file=sys.stderr, flush=True)
    _flushed()
    return code


def unforeseen(error: Exception) -> str:
    """Writes the traceback to a file that only its owner can read, and returns the sentence that names it."""
    told = (str(error).strip().splitlines() or [""])[0][:LONGEST_MESSAGE]
    calls = traceback.extract_tb(error.__traceback__)[-FRAMES:]
    path = " > ".join(f"{Path(call.filename).name}:{call.lineno}" for call in calls)
    log = _log("".join(traceback.format_exception(type(error), error, error.__traceback__)))
    where = "No log can be written" if log is None else f"The log is {log}"
    return f"Unforeseen {type(error).__name__}: {told} (at {path}). {where}."


def _log(text: str) -> "str | None":
    started = Path(sys.argv[0])
    program = started.parent.name if started.stem == "__main__" else started.stem
    try:
        descriptor, name = tempfile.mkstemp(prefix=f"{program}-", suffix=".log")
        with os.fdopen(descriptor, "w", encoding="utf-8", errors="backslashreplace") as log:
            log.write(text)
    except OSError:
        return None
    return name


def _flushed() -> int:
    """Flushes standard output, and returns the exit code of a success where it takes all: the interpreter's own flush,
    at its end, would fail with 120.
    """
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        code = READER_GONE
    except OSError as error:
        print(f"Standard output: {error}.", file=sys.stderr)
        code = Unavailable.exit_code
    else:
        return 0
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return code
