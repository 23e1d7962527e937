"""`python scripts/install.py WHAT COMMAND...`: runs an installation and shows its progress.

Output of the command goes to build/setup.log; the end of the log is shown if the command fails. Standard library only:
this runs before anything is installed.
"""

import subprocess
import sys
import time
from pathlib import Path

LOG = Path("build") / "setup.log"
TAIL_LINES = 15


def main(what: str, *command: str) -> int:
    LOG.parent.mkdir(exist_ok=True)
    began, terminal = time.monotonic(), sys.stdout.isatty()
    print(f"Installing {what} (a few minutes the first time)", end="" if terminal else "\n", flush=True)
    with LOG.open("a", encoding="utf-8") as log:
        print(f"$ {' '.join(command)}", file=log, flush=True)
        with subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT) as process:
            try:
                while process.poll() is None:
                    time.sleep(0.5)
                    if terminal:
                        print(f"\r\033[KInstalling {what}: {time.monotonic() - began:.0f} s", end="", flush=True)
            except KeyboardInterrupt:
                print("\nInterrupted. Run the same command again to continue.")
                return 130
    print("\r\033[K" if terminal else "", end="")
    if process.returncode:
        print("\n".join(LOG.read_text("utf-8", "replace").splitlines()[-TAIL_LINES:]))
        print(f"Installing {what} failed. All output: {LOG}")
        return process.returncode
    print(f"Installed {what}: {time.monotonic() - began:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
