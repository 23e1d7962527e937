"""`cdk synth` of all stacks beside an empty Python CDK app with as many stacks: wall times in turn, ratio.

The empty app is what any Python CDK app pays: a Python process, jsii's Node.js process, aws-cdk-lib and the CLI. Ours
adds the workload files, the constructs and the validation. Both go through the same CLI with the same cdk.json, and
need no AWS, no torch and no Docker. CDK's own checks of the templates run in the empty app, as in any that says nothing
of them, and not in ours, where `make test` and a release make them: the empty app is timed without them, too, so that
both ratios can be read. The last line of stdout is one JSON document.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from side_by_side import ROOT, machine

GOAL = 1.5
EMPTY_APP = """
from aws_cdk import App, Stack

app = App(builtin_cloud_formation_validation={checked})
for name in {names!r}:
    Stack(app, name)
app.synth()
"""


def main() -> int:
    options = _options()
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        names = sorted(_synthesise(_ours(options.target), work / "ours")[1])
        commands = {"ours": _ours(options.target)}
        for name, checked in (("empty", True), ("empty, unchecked", False)):
            file = work / f"{'checked' if checked else 'unchecked'}.py"
            file.write_text(EMPTY_APP.format(names=names, checked=checked), "utf-8")
            commands[name] = ["--app", f"{sys.executable} {file}"]
        seconds: dict[str, list[float]] = {name: [] for name in commands}
        for number in range(options.rounds):
            # The order changes from round to round, so that the caches are not always warm for the same app.
            for name in list(commands)[:: 1 if number % 2 else -1]:
                taken, made = _synthesise(commands[name], work / name)
                assert sorted(made) == names, f"{name} made {made}, not {names}"
                seconds[name].append(taken)
                print(f"round {number + 1}, {name}: {taken:.2f} s", file=sys.stderr)
    result = _result(names, seconds)
    print(_table(result))
    print(json.dumps(result))
    return 0


def _ours(target: str) -> list[str]:
    return ["--app", f"{sys.executable} {ROOT / 'app.py'}", "-c", f"hosting-target={target}"]


def _synthesise(arguments: list[str], output: Path) -> tuple[float, list[str]]:
    """Returns the seconds of one `cdk synth`, and the stacks that it made."""
    for old in output.glob("*.template.json"):
        old.unlink()
    command = ["cdk", "synth", "--quiet", "--output", str(output), *arguments]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    start = time.perf_counter()
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    taken = time.perf_counter() - start
    if done.returncode:
        sys.exit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stderr}")
    return taken, [file.name.removesuffix(".template.json") for file in output.glob("*.template.json")]


def _result(names: list[str], seconds: dict[str, list[float]]) -> dict[str, Any]:
    medians = {name: statistics.median(times) for name, times in seconds.items()}
    ratios = [ours / empty for ours, empty in zip(seconds["ours"], seconds["empty"], strict=True)]
    return {
        "benchmark": "synth",
        "machine": machine(["aws-cdk-lib", "constructs", "cdk-nag"]),
        "stacks": names,
        "rounds": len(ratios),
        "seconds": seconds,
        "median_s": medians,
        "ratio": medians["ours"] / medians["empty"],
        "ratio_to_unchecked": medians["ours"] / medians["empty, unchecked"],
        "ratio_of_pairs": {"lowest": min(ratios), "median": statistics.median(ratios), "highest": max(ratios)},
        "goal": GOAL,
        "goal_met": medians["ours"] / medians["empty"] <= GOAL,
    }


def _table(result: dict[str, Any]) -> str:
    medians, pairs = result["median_s"], result["ratio_of_pairs"]
    return (
        f"{len(result['stacks'])} stacks, {result['rounds']} rounds, median of each\n"
        f"ours                         {medians['ours']:6.2f} s\n"
        f"empty app                    {medians['empty']:6.2f} s\n"
        f"ratio                        {result['ratio']:6.2f}    "
        f"(pairs {pairs['lowest']:.2f} to {pairs['highest']:.2f}; goal at most {GOAL})\n"
        f"empty app without the checks {medians['empty, unchecked']:6.2f} s\n"
        f"ratio to that                {result['ratio_to_unchecked']:6.2f}"
    )


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="cdk synth of all stacks beside an empty app with as many.")
    parser.add_argument("--rounds", type=int, default=5, help="default 5")
    parser.add_argument("--target", default="cpu", help="the target whose builds the stacks deploy; default cpu")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
