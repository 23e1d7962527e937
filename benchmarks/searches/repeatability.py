"""`python benchmarks/searches/repeatability.py`: the same job ten times on one machine, and how far its results differ.

Runs `run spellcheck --job advanced --traffic quick` against one local account: half of the runs without other work,
half beside a process that computes for random times. Prints each run's recommended rate and, for each half, the
goals.

Goals: in each half at least four of five rates within ±15 % of the half's median, and no two differ by more than
1.5 times. Exits with 1 if a goal is missed.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from math import inf
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).parents[2]))  # run as a file, Python finds only this folder
from benchmarks import goals, harness
from benchmarks.goals import Goal
from local_aws.process.local_account import LocalAccount
from workloads import ROOT

NEAR, APART = 0.15, 1.5
NEAR_SHARE = 0.8
OTHER_WORK = """
import random, time
draw = random.Random(0)
while True:
    end = time.monotonic() + draw.uniform(0.5, 8.0)
    while time.monotonic() < end:
        pass
    time.sleep(draw.uniform(0.5, 8.0))
"""
DEPLOY = (
    ("python", "-m", "model_build", "build", "spellcheck", "--target", "cpu"),
    ("cdk", "bootstrap", "--ci", "-c", "recommendation=ignore"),
    ("cdk", "deploy", "SpellcheckStack", "--require-approval", "never", "--ci", "-c", "recommendation=ignore"),
)


def main() -> int:
    half = harness.options(__doc__, runs=(10, "half of them beside other work")).runs // 2
    with (
        _recommendation_restored(),
        tempfile.TemporaryDirectory() as folder,
        LocalAccount.start(state=Path(folder) / "account", pace="quick") as account,
    ):
        environment = {**os.environ, **account.environment}
        for command in DEPLOY:
            subprocess.run(command, cwd=ROOT, env=environment, check=True, stdout=subprocess.DEVNULL)
        quiet = [_rate(environment, Path(folder), "quiet", number) for number in range(half)]
        with _other_work():
            busy = [_rate(environment, Path(folder), "other work", number) for number in range(half)]
    document = {"quiet": quiet, "other work": busy}
    judged = [goal for group, rates in document.items() for goal in judge(group, rates)]
    return goals.finish("searches/repeatability", (), document, judged)


@contextmanager
def _recommendation_restored() -> Iterator[None]:
    """Gives the workload its recommendation back, which each run replaces."""
    file = ROOT / "workloads" / "spellcheck" / "recommendation.json"
    before = file.read_bytes() if file.exists() else None
    try:
        yield
    finally:
        file.unlink(missing_ok=True)
        if before is not None:
            file.write_bytes(before)


def _rate(environment: Mapping[str, str], folder: Path, group: str, number: int) -> float | None:
    """Runs the job once. Returns the recommended rate, or None if the run came to no verdict."""
    began, name = time.monotonic(), f"spellcheck-{group.replace(' ', '-')}-{number}"
    command = [sys.executable, "-m", "inference_recommender", "run", "spellcheck", "--job", "advanced"]
    command += ["--traffic", "quick", "--name", name, "--runs", str(folder), "--json"]
    ran = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    chosen = json.loads(ran.stdout)["recommended"] if ran.returncode == 0 else None
    rate = chosen["max_invocations_per_minute"] if chosen else None
    words = f"{rate:10,.0f} /min, {chosen['instance_count']} instances, {chosen['capacity_basis']}" if chosen else "-"
    print(f"{group}  exit {ran.returncode}  {time.monotonic() - began:4.0f} s  {words}", flush=True)
    if ran.returncode:
        print(ran.stderr.strip().splitlines()[-1], flush=True)
    return rate


def judge(group: str, rates: list[float | None]) -> list[Goal]:
    """Judges how far the rates of a half differ. Runs without a verdict are no rates."""
    known = [rate for rate in rates if rate is not None]
    near = sum(abs(rate / median(known) - 1) <= NEAR for rate in known) / len(rates)
    apart = max(known) / min(known) if known else inf
    return [
        Goal(cell=f"{group}: share of runs within ±{NEAR:.0%} of the median", figure=near, limit=NEAR_SHARE),
        Goal(cell=f"{group}: highest over lowest", figure=apart, limit=APART, at_most=True),
    ]


@contextmanager
def _other_work() -> Iterator[None]:
    """Runs a process that keeps one core busy and pauses at random."""
    busy = subprocess.Popen([sys.executable, "-c", OTHER_WORK])
    try:
        yield
    finally:
        busy.kill()
        busy.wait()


if __name__ == "__main__":
    sys.exit(main())
