"""A program ends with its own exit code, or with one sentence and the exit code of what went wrong."""

import errno
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from workloads import ROOT, NoVerdict
from workloads.program import LONGEST_MESSAGE, exit_code

Capture = pytest.CaptureFixture[str]


def raising(error: BaseException) -> int:
    def main() -> int:
        raise error

    return exit_code(main)


@pytest.mark.parametrize(
    ("error", "code", "told"),
    [
        (NoVerdict("No verdict: nothing was measured."), 4, "No verdict: nothing was measured."),
        (KeyboardInterrupt(), 130, "Interrupted."),
        (
            OSError(errno.ENOSPC, "any words"),
            3,
            "A file or standard output cannot be written: No space left on device. Free some space, then try again.",
        ),
        (
            PermissionError(errno.EACCES, "any words", "/runs"),
            2,
            "/runs cannot be read or written: Permission denied. Mend that, or name another place.",
        ),
        (
            OSError(errno.EMFILE, "any words"),
            3,
            "Too many open files: raise the limit of this process with `ulimit -n`, then try again.",
        ),
        (MemoryError(), 3, "There is not enough memory on this machine for this. Free some, then try again."),
    ],
    ids=str,
)
def test_what_the_machine_or_its_files_cause_is_a_sentence(
    error: BaseException, code: int, told: str, capsys: Capture
) -> None:
    assert raising(error) == code
    assert capsys.readouterr() == ("", f"{told}\n")


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (AssertionError(), "AssertionError"),
        (ValueError("one line.\nand another"), "ValueError: one line"),
        (TypeError("x" * 2000), f"TypeError: {'x' * LONGEST_MESSAGE}"),
        (BrokenPipeError(errno.EPIPE, "of a socket"), "BrokenPipeError: [Errno 32] of a socket"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_nothing_foresees_is_one_short_sentence(
    error: Exception,
    told: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    # capfd: whether standard output has a reader is asked of its descriptor
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(sys, "argv", ["/somewhere/model_build/__main__.py"])
    assert raising(error) == 70
    (log,) = tmp_path.iterdir()
    assert log.name.startswith("model_build-")
    assert capfd.readouterr() == ("", f"Unforeseen {told}. The log is {log}.\n")


def test_without_room_for_a_log_the_traceback_is_on_standard_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "nothing"))
    assert raising(KeyError("x")) == 70
    told = capsys.readouterr().err.splitlines()
    assert told[0] == "Traceback (most recent call last):"
    assert told[-1] == "Unforeseen KeyError: 'x'. No log can be written, so the traceback is above."


def run(statements: str, stdout: int) -> "subprocess.CompletedProcess[str]":
    """Runs the statements as a program whose output Python holds back until its end."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    program = f"import sys\nfrom workloads.program import exit_code\nsys.exit(exit_code(lambda: {statements}))"
    return subprocess.run(
        [sys.executable, "-c", program], env=environment, stdout=stdout, stderr=subprocess.PIPE, text=True, check=False
    )


def test_a_full_disk_behind_standard_output_is_told_at_the_end() -> None:
    with Path("/dev/full").open("wb") as full:
        done = run("print('a result') or 0", full.fileno())
    assert (done.returncode, done.stderr) == (
        3,
        "A file or standard output cannot be written: No space left on device. Free some space, then try again.\n",
    )


@pytest.mark.parametrize(
    "printing", ["print('a result') or 0", "__import__('rich.console').console.Console().print('a result') or 0"]
)
def test_a_reader_of_standard_output_that_has_gone_is_quiet(printing: str) -> None:
    """`… | head`."""
    reads, writes = os.pipe()
    os.close(reads)
    try:
        done = run(printing, writes)
    finally:
        os.close(writes)
    assert (done.returncode, done.stderr) == (141, "")


@pytest.mark.parametrize("start", [("-m", "model_build"), ("bin/model-build",)], ids=["module", "relative-script"])
def test_root_before_the_command_names_the_repository(tmp_path: Path, start: Sequence[str]) -> None:
    """A console command may be called by a path that does not lead to it from the repository."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "model-build").write_text("import sys; from model_build.__main__ import run; sys.exit(run())")
    command = [sys.executable, *start, "--root", str(tmp_path / "team"), "build", "mine", "--target", "cpu"]
    (tmp_path / "team").mkdir()
    for message in (
        f"--root: {tmp_path / 'team'} has no cdk.json.",
        "There is no workload 'mine'. Known workloads: none.",
    ):
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr.startswith(message)
        (tmp_path / "team" / "cdk.json").touch()
