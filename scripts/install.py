"""`python scripts/install.py WHAT COMMAND...`: runs an installation and shows that it goes on.

On a terminal one line tells the time and how many packages have come; elsewhere there is a line at the beginning and
another at the end. What the command prints goes to build/setup.log, and its end is shown if it fails. Needs nothing but
the standard library: it runs before anything is installed.
"""

import subprocess
import sys
import time
from pathlib import Path
from threading import Thread
from typing import IO

LOG = Path("build") / "setup.log"
TAIL_LINES = 15
NOISE = "WARNING: Location "
"""pip's line for each package that one of several indexes does not have."""


class Packages:
    """Counts the packages that pip says it fetches."""

    def __init__(self) -> None:
        self.count = 0

    def read(self, output: IO[str], log: IO[str]) -> None:
        for line in output:
            self.count += line.startswith(("Collecting ", "Processing ", "Requirement already satisfied"))
            if not line.startswith(NOISE):
                log.write(line)
                log.flush()


def main(what: str, *command: str) -> int:
    LOG.parent.mkdir(exist_ok=True)
    began, packages, terminal = time.monotonic(), Packages(), sys.stdout.isatty()
    print(f"Installing {what} (a few minutes the first time)", end="" if terminal else "\n", flush=True)
    with LOG.open("a", encoding="utf-8") as log:
        log.write(f"$ {' '.join(command)}\n")
        log.flush()
        try:
            with subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
            ) as process:
                assert process.stdout is not None
                reader = Thread(target=packages.read, args=(process.stdout, log))
                reader.start()
                while reader.is_alive():
                    reader.join(timeout=0.5)
                    if terminal:
                        print(f"\r\033[KInstalling {what}: {_so_far(began, packages)}", end="", flush=True)
        except KeyboardInterrupt:
            print("\nInterrupted; the same command goes on from here.")
            return 130
    if terminal:
        print("\r\033[K", end="")
    if process.returncode:
        print("\n".join(LOG.read_text("utf-8", "replace").splitlines()[-TAIL_LINES:]))
        print(f"Installing {what} failed. All that it printed: {LOG}")
        return process.returncode
    print(f"Installed {what}: {_so_far(began, packages)}")
    return 0


def _so_far(began: float, packages: Packages) -> str:
    counted = f"{packages.count} packages, " if packages.count else ""
    return f"{counted}{time.monotonic() - began:.0f} s"


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
