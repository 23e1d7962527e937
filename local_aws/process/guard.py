"""Runs one command so that no process of it outlives us: `python -I -S guard.py PID_FD GRACE_S REMOVE COMMAND…`.

The guard ends the command and every descendant, orphans included, when it gets SIGTERM, when the command itself ends,
or when its standard input closes, which the kernel does however the account dies. PR_SET_PDEATHSIG alone is not enough:
it fires when the *thread* that forked ends, and it does not reach Triton's Python stubs.
The guard then removes the files that match the glob patterns of REMOVE (separated by `:`). It writes the command's
process id to PID_FD and ends with the command's exit status (128 + N for signal N). It runs on Linux.
"""

import contextlib
import ctypes
import os
import selectors
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36


def main(arguments: list[str]) -> int:
    pid_fd, grace_s, remove, command = int(arguments[0]), float(arguments[1]), arguments[2], arguments[3:]
    os.umask(0o077)  # files of the command are for their owner only
    libc = ctypes.CDLL(None)
    libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)  # Makes the command's orphans our children, so that we can end them.
    wake = _wake_on(signal.SIGCHLD, signal.SIGTERM, signal.SIGINT)
    child = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        start_new_session=True,
        preexec_fn=lambda: libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0),
    )
    os.write(pid_fd, str(child.pid).encode())
    os.close(pid_fd)
    _wait(child, wake)
    status = _end(child, grace_s)
    _end_orphans(grace_s)
    _remove(remove)
    return 128 - status if status < 0 else status


_stop_requested = False


def _wake_on(*signals: signal.Signals) -> int:
    read, write = os.pipe()
    os.set_blocking(read, False)
    os.set_blocking(write, False)
    signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    for number in signals:
        signal.signal(number, _note)
    return read


def _note(number: int, frame: object) -> None:
    global _stop_requested
    _stop_requested |= number != signal.SIGCHLD


def _wait(child: "subprocess.Popen[bytes]", wake: int) -> None:
    with selectors.DefaultSelector() as selector:
        selector.register(0, selectors.EVENT_READ)
        selector.register(wake, selectors.EVENT_READ)
        while child.poll() is None and not _stop_requested:
            for key, _ in selector.select():
                if not os.read(key.fd, 4096) and key.fd == 0:
                    return


def _end(child: "subprocess.Popen[bytes]", grace_s: float) -> int:
    with contextlib.suppress(ProcessLookupError):
        if child.poll() is None:
            os.killpg(child.pid, signal.SIGTERM)
    with contextlib.suppress(subprocess.TimeoutExpired):
        child.wait(grace_s)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    return child.wait()


def _end_orphans(grace_s: float) -> None:
    """Sends SIGTERM first, so that a guard among them can end its own command."""
    deadline, asked = time.monotonic() + grace_s, set[str]()
    while orphans := Path("/proc/self/task", str(os.getpid()), "children").read_text().split():
        for pid in orphans:
            with contextlib.suppress(ProcessLookupError):
                if time.monotonic() > deadline:
                    os.kill(int(pid), signal.SIGKILL)
                elif pid not in asked:
                    os.kill(int(pid), signal.SIGTERM)
        asked.update(orphans)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG) != (0, 0):
                pass
        time.sleep(0.005)


def _remove(patterns: str) -> None:
    root = Path("/")
    for path in [path for pattern in patterns.split(":") if pattern for path in root.glob(pattern.lstrip("/"))]:
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
