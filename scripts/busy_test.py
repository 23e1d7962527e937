"""`python -m scripts.busy_test`: the tests of `make test`, three times, beside four processes that keep the cores busy.

Prints the result and the time of each run. Exit code: 1 where a run was not green.
"""

import subprocess
import sys
import time

from scripts.run_tests import pytest
from workloads import ROOT

RUNS = 3
BUSY_PROCESSES = 4
LONGEST_RUN_S = 3600
BUSY = f"import signal\nsignal.alarm({LONGEST_RUN_S})\nwhile True: pass"


def main() -> int:
    results = [run(number) for number in range(1, RUNS + 1)]
    print(*results, sep="\n")
    return int(any("FAILED" in result for result in results))


def run(number: int) -> str:
    """Runs the tests once beside the busy processes, and returns a line with the result."""
    busy = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(BUSY_PROCESSES)]
    began = time.monotonic()
    try:
        code = subprocess.run([*pytest(), "-m", "not slow"], cwd=ROOT, check=False).returncode
    finally:
        for process in busy:
            process.kill()
            process.wait()
    minutes, seconds = divmod(round(time.monotonic() - began), 60)
    result = "green" if code == 0 else f"FAILED (exit code {code})"
    return f"run {number} of {RUNS}, {BUSY_PROCESSES} busy processes beside it: {result} in {minutes}:{seconds:02} min"


if __name__ == "__main__":
    sys.exit(main())
