"""`python -m scripts.fuzz [--minutes N]`: the fuzz tests with many more examples and new seeds, until the time is over.

Prints the seed of each round: `FUZZ_FACTOR=20 pytest tests/fuzz --hypothesis-profile new-examples
--hypothesis-seed SEED` repeats it. Stops at the first failure. Exit code: 1 where a round was not green.
"""

import argparse
import os
import random
import subprocess
import sys
import time

from tests.fuzz import FACTOR
from workloads import ROOT

EXAMPLES_FACTOR = 20
NEW_EXAMPLES = ("--hypothesis-profile", "new-examples")
"""Without it the seed has no effect: tests/conftest.py has the same examples in each run."""


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m scripts.fuzz", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10, help="no round starts after this time (default: 10)")
    minutes: float = parser.parse_args(arguments).minutes
    began, rounds = time.monotonic(), 0
    while (elapsed := time.monotonic() - began) < 60 * minutes:
        rounds, seed = rounds + 1, random.randrange(2**32)
        print(f"Round {rounds}, seed {seed}, after {elapsed / 60:.1f} of {minutes:g} minutes", flush=True)
        if _round(seed):
            options = f"{' '.join(NEW_EXAMPLES)} --hypothesis-seed {seed}"
            print(f"FAILED. Again: {FACTOR}={EXAMPLES_FACTOR} pytest tests/fuzz {options}")
            return 1
    print(f"{rounds} rounds in {(time.monotonic() - began) / 60:.1f} minutes: no crash, no hang, no unbounded memory.")
    return 0


def _round(seed: int) -> int:
    command = [sys.executable, "-m", "pytest", "tests/fuzz", "-q", "--numprocesses", "2", "--dist", "loadfile"]
    return subprocess.run(
        [*command, *NEW_EXAMPLES, "--hypothesis-seed", str(seed)],
        cwd=ROOT,
        env={**os.environ, FACTOR: str(EXAMPLES_FACTOR)},
        check=False,
    ).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
