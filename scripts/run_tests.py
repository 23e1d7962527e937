"""`python -m scripts.run_tests [PYTEST ARGUMENT...]`: the tests, with format, lint and types checked beside them.

`make test` and `make test-all` call this. The checks' output is shown when the tests are done. Exit code: that of the
tests, or 1 where they pass and a check does not; 130 after Ctrl-C, which ends both.
"""

import os
import signal
import subprocess
import sys
from pathlib import Path

from workloads import ROOT

# Three processes keep two cores busy, for many tests wait for a server as long as they compute. The tests of one file
# stay together, since they share servers and templates; tests/rooms.py says which process has which file. The order is
# that of tests/conftest.py: left to itself, xdist begins with the files of many tests.
SIDE_BY_SIDE = ("--numprocesses", "3", "--dist", "loadfile", "--no-loadscope-reorder")
CHECKS = ("make", "--no-print-directory", "lint")


def main(arguments: list[str]) -> int:
    # In a process group of its own, so that Ctrl-C reaches only the tests; the checks are ended below.
    checks = subprocess.Popen(
        CHECKS, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, process_group=0
    )
    try:
        tests = subprocess.run([*pytest(), *arguments], cwd=ROOT, check=False).returncode
        output = checks.communicate()[0]
    except KeyboardInterrupt:
        os.killpg(checks.pid, signal.SIGTERM)
        checks.wait()
        return 130
    print(f"\n{output.strip()}", flush=True)
    print(f"Tests: {_passed(tests)}. Format, lint and types: {_passed(checks.returncode)}.")
    return tests or int(checks.returncode != 0)


def pytest() -> list[str]:
    """The command that `make test` runs, without the choice of tests."""
    return [str(Path(sys.executable).with_name("python")), "-m", "pytest", *SIDE_BY_SIDE]


def _passed(code: int) -> str:
    return "passed" if code == 0 else f"FAILED (exit code {code})"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
