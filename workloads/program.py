"""Ends a program in good order: with its own exit code, or with one sentence for whatever went wrong in it.

    sys.exit(exit_code(main))

The exit codes are those of docs/commands.md. An error that no sentence was written for is 70, and its traceback is in a
log that only its owner can read. SIGTERM ends a program as Ctrl-C does.
"""

import argparse
import contextlib
import difflib
import errno
import os
import select
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from workloads.errors import Interrupted, ProjectError, Unavailable, UsageError

READER_GONE = 141
"""The exit code of a program that SIGPIPE ended: `| head` has read what it wanted."""
LONGEST_MESSAGE = 300
"""Characters of an unforeseen error's own message that are shown; the log has all of it."""

# By errno. The disk or the machine is out of resources (exit code 3), or a file may not be used so (2).
NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
NO_HANDLES = {errno.EMFILE, errno.ENFILE}
NOT_ALLOWED = {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG, errno.ELOOP}

CONTROL_CHARACTERS = {code: f"\\x{code:02x}" for code in (*range(0x20), *range(0x7F, 0xA0)) if chr(code) not in "\n\t"}


class _CommandParser(argparse.ArgumentParser):
    """Parser of a subcommand: a wrong option prints the subcommand's own usage, and the option that is meant."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        options, unknown = super().parse_known_args(args, namespace)
        if unknown:
            known = [option for action in self._actions for option in action.option_strings]
            near = difflib.get_close_matches(unknown[0].partition("=")[0], known, n=1)
            hint = f". Did you mean {near[0]}?" if near else ""
            self.error(f"unrecognized arguments: {' '.join(unknown)}{hint}")
        return options, unknown


CommandParser: type[argparse.ArgumentParser] = _CommandParser


class Unforeseen(ProjectError):
    """A fault of this program or of a library that no sentence was written for. `log` has the traceback."""

    exit_code = 70

    def __init__(self, error: BaseException, log: Path | None) -> None:
        where = "No log can be written, so the traceback is above." if log is None else f"The log is {log}."
        super().__init__(f"Unforeseen {_named(error)}. {where}")


def exit_code(main: Callable[[], int]) -> int:
    """Runs `main` and returns its exit code, or that of the error, which it prints to standard error."""
    try:
        _start_in_root()
        with _interrupted_by_signals():
            return _flushed(main)
    except SystemExit as ended:
        if isinstance(ended.__context__, BrokenPipeError):  # so ends a console of rich, which has closed stdout
            return READER_GONE
        raise
    except BrokenPipeError as error:
        if _reader_gone():
            return READER_GONE
        problem: ProjectError = logged(error)
    except KeyboardInterrupt:
        problem = Interrupted("Interrupted.")
    except ProjectError as error:
        problem = error
    except BaseException as error:  # a library in Rust that panics raises no Exception
        problem = foreseen(error) or logged(error)
    _tell(str(problem))
    _drop_what_cannot_be_written()
    return problem.exit_code


def _start_in_root() -> None:
    """Starts the program again in DIR for `--root DIR` before the command, like `git -C`. Raises `UsageError`."""
    if sys.argv[1:2] != ["--root"]:
        return
    root = Path(*sys.argv[2:3])
    if not (root / "cdk.json").is_file():
        raise UsageError(f"--root: {root} has no cdk.json. Name the folder of a repository.")
    at = sys.orig_argv.index("--root")
    # A console command is a file, whose path may be relative to the folder that is left here.
    start = [str(Path(each).absolute()) if each == sys.argv[0] else each for each in sys.orig_argv[1:at]]
    os.chdir(root)
    os.execv(sys.executable, [sys.executable, *start, *sys.orig_argv[at + 2 :]])


def printable(text: str) -> str:
    """Returns `text` with control characters as \\x.. escapes, except newline and tab.

    A message may quote a server, whose escape codes would otherwise control the terminal.
    """
    return text.translate(CONTROL_CHARACTERS)


@contextlib.contextmanager
def _interrupted_by_signals() -> Iterator[None]:
    """SIGTERM, which `docker stop` and a cancelled CI job send, raises KeyboardInterrupt as Ctrl-C does."""
    numbers = [each for each in (signal.SIGINT, signal.SIGTERM) if signal.getsignal(each) is signal.SIG_DFL]
    for number in numbers:
        signal.signal(number, signal.default_int_handler)
    try:
        yield
    finally:
        for number in numbers:
            signal.signal(number, signal.SIG_DFL)


def foreseen(error: BaseException) -> ProjectError | None:
    """Returns the sentence for an error that the machine or its files are the cause of, or None."""
    if isinstance(error, MemoryError):
        return Unavailable("There is not enough memory on this machine for this. Free some, then try again.")
    if not isinstance(error, OSError):
        return None
    file, reason = error.filename, os.strerror(error.errno) if error.errno else str(error)
    if error.errno in NO_ROOM:
        where = "A file or standard output" if file is None else file
        return Unavailable(f"{where} cannot be written: {reason}. Free some space, then try again.")
    if error.errno in NO_HANDLES:
        return Unavailable(f"{reason}: raise the limit of this process with `ulimit -n`, then try again.")
    if error.errno in NOT_ALLOWED and file is not None:
        return UsageError(f"{file} cannot be read or written: {reason}. Mend that, or name another place.")
    return None


def write_traceback(error: BaseException, log: Path) -> None:
    """Adds the error's traceback to `log`, which only its owner can read if it is made now."""
    import shlex
    import traceback

    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    with os.fdopen(descriptor, "a", encoding="utf-8", errors="backslashreplace") as file:
        print(f"$ {shlex.join(sys.orig_argv)}", file=file)
        traceback.print_exception(error, file=file)


def _flushed(main: Callable[[], int]) -> int:
    """Flushes standard output, too: the interpreter's own flush, at its end, would fail with exit code 120."""
    try:
        code = main()
    except SystemExit:
        _flush()
        raise
    _flush()
    return code


def _flush() -> None:
    if sys.stdout is not None:
        sys.stdout.flush()


def _reader_gone() -> bool:
    """Tells whether stdout has lost its reader, and if so sends the rest of the output to /dev/null."""
    if sys.stdout is None:
        return False
    stdout = sys.stdout.fileno()
    errors = select.poll()
    errors.register(stdout, 0)
    gone = any(event & select.POLLERR for _, event in errors.poll(0))
    if gone:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stdout)
    return gone


def _drop_what_cannot_be_written() -> None:
    """Sends to /dev/null what standard output still holds and does not take."""
    try:
        _flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def logged(error: BaseException) -> Unforeseen:
    """Returns the error for a traceback that is now in a new file, which only its owner can read.

    It is on standard error where no file can be made.
    """
    import tempfile
    import traceback

    started = Path(sys.argv[0])
    program = started.parent.name if started.stem == "__main__" else started.stem
    try:
        descriptor, name = tempfile.mkstemp(prefix=f"{program}-", suffix=".log")
        os.close(descriptor)
        write_traceback(error, Path(name))
    except OSError:
        traceback.print_exception(error)
        return Unforeseen(error, None)
    return Unforeseen(error, Path(name))


def _named(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    told = lines[0][:LONGEST_MESSAGE].rstrip(".") if lines else ""
    return f"{type(error).__name__}: {told}" if told else type(error).__name__


def _tell(sentence: str) -> None:
    if sys.stderr is not None:
        with contextlib.suppress(OSError, ValueError):
            print(printable(sentence), file=sys.stderr, flush=True)
