"""The errors of the programs in containers, one class per exit code, and how such a program begins and ends."""

import argparse
import os
import sys
import tempfile
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

UNFORESEEN = 70
INTERRUPTED = 130
FRAMES = 4  # Innermost calls in the sentence about an internal error: the log is lost with its container
LONGEST_MESSAGE = 300


class ContainerError(Exception):
    """A wrong setting, argument or input file."""

    exit_code = 2


class RowsUnaccounted(ContainerError):
    """The output of a batch lacks rows of its input, or has more."""

    exit_code = 1


class Unavailable(ContainerError):
    """A model, device, worker, library or storage is missing or fails."""

    exit_code = 3


def parser_of(program: str, description: "str | None") -> argparse.ArgumentParser:
    """Returns the parser of `python -m program`. Its help keeps the lines of the description."""
    layout = argparse.RawDescriptionHelpFormatter
    return argparse.ArgumentParser(prog=f"python -m {program}", description=description, formatter_class=layout)


def exit_code_of(main: Callable[[], int]) -> int:
    """Runs `main` and returns its exit code. Prints an error as one sentence on standard error."""
    try:
        code = main()
        sys.stdout.flush()
        return code
    except ContainerError as error:
        problem, code = str(error), error.exit_code
    except OSError as error:
        problem, code = f"{error}.", Unavailable.exit_code
        with suppress(OSError):  # if it was standard output, the interpreter must not flush it again
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except MemoryError:
        problem, code = "Out of memory. Give the container more, or less work.", Unavailable.exit_code
    except KeyboardInterrupt:
        problem, code = "Interrupted.", INTERRUPTED
    except Exception as error:
        problem, code = unforeseen(error), UNFORESEEN
    print(problem, file=sys.stderr, flush=True)
    return code


def unforeseen(error: Exception) -> str:
    """Writes the traceback to a file that only its owner can read, and returns a sentence with its name."""
    message = (str(error).strip().splitlines() or [""])[0][:LONGEST_MESSAGE]
    calls = traceback.extract_tb(error.__traceback__)[-FRAMES:]
    path = " > ".join(f"{Path(call.filename).name}:{call.lineno}" for call in calls)
    started = Path(sys.argv[0])
    program = started.parent.name if started.stem == "__main__" else started.stem
    try:
        descriptor, name = tempfile.mkstemp(prefix=f"{program}-", suffix=".log")
        with os.fdopen(descriptor, "w", encoding="utf-8", errors="backslashreplace") as log:
            log.write("".join(traceback.format_exception(type(error), error, error.__traceback__)))
        where = f"The log is {name}"
    except OSError:
        where = "No log can be written"
    return f"Unforeseen {type(error).__name__}: {message} (at {path}). {where}."
