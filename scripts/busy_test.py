"""`python -m scripts.busy_test`: the tests of `make test` with three seeds, the last time beside four busy processes.

Prints the seed, the result and the time of each run. Exit code: 1 if a run fails.
"""

import os
import secrets
import subprocess
import sys
import time

from scripts.run_tests import pytest
from workloads import ROOT

BUSY_PROCESSES = (0, 0, 4)
"""The number of CPU-bound processes beside each run."""
LONGEST_RUN_S = 3600
BUSY = f"import signal\nsignal.alarm({LONGEST_RUN_S})\nwhile True: pass"


def main() -> int:
    results = [run(secrets.randbelow(10_000), busy) for busy in BUSY_PROCESSES]
    print(*results, sep="\n")
    return int(any("FAILED" in result for result in results))


def run(seed: int, busy_processes: int) -> str:
    """Runs the tests once and returns a line with the result."""
    busy = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(busy_processes)]
    environment = {**os.environ, "TEST_SEED": str(seed)}
    began = time.monotonic()
    try:
        code = subprocess.run([*pytest(), "-m", "not slow"], cwd=ROOT, env=environment, check=False).returncode
    finally:
        for process in busy:
            process.kill()
            process.wait()
    minutes, seconds = divmod(round(time.monotonic() - began), 60)
    result = "passed" if code == 0 else f"FAILED (exit code {code})"
    return f"TEST_SEED={seed} beside {busy_processes} busy processes: {result} in {minutes}:{seconds:02} min"


if __name__ == "__main__":
    sys.exit(main())
