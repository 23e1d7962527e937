"""Runs the benchmarks and prints one table of every cell with its goal.

  python benchmarks/run.py                          all of `make bench`; hours on a quiet machine
  python benchmarks/run.py --smallest               the same in the smallest settings, which show that they run
  python benchmarks/run.py encoders text2text/latency

Exits with 1 if a goal is missed, and with 4 if none is missed but some are not run: an engine of another project is not
installed (`make peers`), or a benchmark ended without its goals.
"""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from benchmarks import goals, harness
from benchmarks.goals import Goal

SMALLEST = {
    "encoders": "--rounds 1 --group distilbert",
    "text2text/latency": "--rounds 1 --group spellcheck",
    "batch": "--rounds 1",
    "serving": "--rounds 1",
    "changes": "--changes canary killed task-replaced",
    "searches/capacity": "--seeds 1",
    "searches/prove": "--seeds 1",
    "searches/unseen_days": "",
    "generator/compare": "--rounds 1 --seconds 1",
}
"""The benchmarks of `make bench` with the options of `--smallest`."""


def main(arguments: Sequence[str] | None = None) -> int:
    parser = harness.parser(__doc__)
    parser.add_argument("benchmark", nargs="*", help=f"of {', '.join(SMALLEST)} (default: all)")
    parser.add_argument("--smallest", action="store_true", help="one round or seed, and a single model")
    options = parser.parse_args(arguments)
    if unknown := sorted({*options.benchmark} - {*SMALLEST}):
        parser.error(f"unknown benchmark {unknown[0]}. Choose from {', '.join(SMALLEST)}.")
    judged: list[Goal] = []
    for name in options.benchmark or SMALLEST:
        judged += run(name, SMALLEST[name].split() if options.smallest else [])
    return goals.finish("run", (), {"smallest": options.smallest}, judged)


def run(name: str, arguments: Sequence[str]) -> list[Goal]:
    """Runs a benchmark and prints its output. Returns its goals, or one that is not run if it ended without them."""
    print(f"# python benchmarks/{name}.py {' '.join(arguments)}".rstrip(), flush=True)
    last = ""
    command: list[str | Path] = [sys.executable, Path(__file__).parent / f"{name}.py", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        for line in process.stdout:
            print(last, end="", flush=True)
            last = line
    try:
        documents = json.loads(last)["goals"]
    except (ValueError, TypeError, KeyError):
        print(last)
        return [Goal(cell=name, limit=1, note=f"ended with {process.returncode} and without goals")]
    print()
    return [Goal.of({**each, "cell": f"{name}: {each['cell']}"}) for each in documents]


if __name__ == "__main__":
    sys.exit(main())
