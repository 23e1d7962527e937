"""The harness of the benchmarks: engines take turns, figures are medians over rounds, goals decide the exit code.

The speed of a machine changes from second to second, so a figure is a ratio within a round. In a round each engine
computes the same case for a moment, one after the other and in changing order. `cpu` is the processor time of the
engine's process with all its threads. Other work on the machine changes it less than the time by the clock.

Each engine is a process of its own, in which a benchmark runs itself with `--serve`.
"""

import importlib.metadata
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Self

ROOT = Path(__file__).parent.parent
TURN_S = 0.4
"""Length of a turn, unless one call takes longer."""
BASELINE = "huggingface fp32"
Turns = Mapping[str, list["Turn"]]
Goals = tuple[tuple[str, str, float], ...]
"""Our engine, another engine, and how many times as fast ours should be."""
Answer = Callable[[str], Any]


@dataclass(frozen=True)
class Turn:
    """One turn of an engine: milliseconds of a call by the clock (median) and of processor time (mean)."""

    ms: float
    cpu_ms: float


class EngineProcess:
    """The process of an engine."""

    def __init__(self, program: Path, *arguments: str, threads: int, python: Path) -> None:
        self.name = arguments[0]
        print(" ".join(["…", *arguments]), file=sys.stderr)
        self._process = subprocess.Popen(
            [python, program, "--serve", *arguments],
            env=environment(threads),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._process.kill()
        self._process.communicate()

    def answer(self, case: str) -> Any:
        """Returns the engine's answer to a case, untimed."""
        return self._call({"case": case, "timed": False})

    def turn(self, case: str) -> Turn:
        return Turn(**self._call({"case": case, "timed": True}))

    def _call(self, question: Mapping[str, Any]) -> Any:
        assert self._process.stdin
        assert self._process.stdout
        try:
            self._process.stdin.write(json.dumps(question) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            pass  # then there is no answer either
        if not (line := self._process.stdout.readline()):
            raise SystemExit(f"The process of {self.name} ended. Its messages are above.")
        return json.loads(line)


def answer_turns(load: Callable[[], Answer]) -> None:
    """Serves an `EngineProcess`. `load` loads one and returns its answer to a case, as JSON values."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # the output of libraries
    answer = load()
    for line in sys.stdin:
        question = json.loads(line)
        case = question["case"]
        reply = asdict(_turn(partial(answer, case))) if question["timed"] else answer(case)
        print(json.dumps(reply), file=answers, flush=True)


def _turn(call: Callable[[], object]) -> Turn:
    start = time.process_time()
    milliseconds = timed(call, TURN_S)
    return Turn(statistics.median(milliseconds), (time.process_time() - start) * 1000 / len(milliseconds))


def timed(call: Callable[[], object], seconds: float, at_least: int = 1) -> list[float]:
    """Returns the milliseconds of each call, for `seconds` and `at_least` this often."""
    milliseconds: list[float] = []
    end = time.perf_counter() + seconds
    while len(milliseconds) < at_least or time.perf_counter() < end:
        start = time.perf_counter()
        call()
        milliseconds.append((time.perf_counter() - start) * 1000)
    return milliseconds


def in_turn(engines: Sequence[EngineProcess], case: str, rounds: int) -> Turns:
    """Returns the turns of each engine by name, one a round, after a round that does not count."""
    turns: dict[str, list[Turn]] = {engine.name: [] for engine in engines}
    for number in range(rounds + 1):
        for engine in engines if number % 2 else reversed(engines):
            turn = engine.turn(case)
            if number:
                turns[engine.name].append(turn)
    return turns


def run_json(program: Path, *arguments: str, threads: int) -> Any:
    """Runs `program` and returns the JSON document on the last line of its output."""
    print(" ".join(["…", *arguments]), file=sys.stderr)
    command = [sys.executable, str(program), *arguments]
    done = subprocess.run(command, env=environment(threads), stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def environment(threads: int) -> dict[str, str]:
    """Returns the environment of an engine's process."""
    return {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "OMP_NUM_THREADS": str(threads),
        "OMP_WAIT_POLICY": "PASSIVE",  # threads that spin while they wait slow other processes
        "TRANSFORMERS_VERBOSITY": "error",
        "HF_HUB_OFFLINE": "1",
    }


def times_faster(turns: Turns, ours: str, other: str) -> Turn:
    """Returns how many times as long as ours the other takes: medians over rounds."""
    rounds = list(zip(turns[ours], turns[other], strict=True))
    return Turn(
        statistics.median(theirs.ms / own.ms for own, theirs in rounds),
        statistics.median(theirs.cpu_ms / own.cpu_ms for own, theirs in rounds),
    )


def median_ms(turns: Sequence[Turn]) -> float:
    return statistics.median(turn.ms for turn in turns)


def summary(turns: Turns, baseline: str, goals: Goals) -> dict[str, Any]:
    """Returns each engine's medians and speed-up over the baseline, and the goals of engines that ran."""
    engines = {}
    for name, rounds in turns.items():
        faster = times_faster(turns, name, baseline)
        engines[name] = {
            "ms": median_ms(rounds),
            "cpu_ms": statistics.median(turn.cpu_ms for turn in rounds),
            "times": faster.ms,
            "cpu_times": faster.cpu_ms,
        }
    judged = []
    for ours, other, goal in goals:
        if ours in turns and other in turns:
            faster = times_faster(turns, ours, other)
            words = f"{ours} ≥ {goal:g} × {other}"
            judged.append({"goal": words, "got": faster.ms, "of_cpu": faster.cpu_ms, "met": faster.ms >= goal})
    return {"engines": engines, "goals": judged}


def table(title: str, result: Mapping[str, Any]) -> str:
    """Returns a summary as text: medians in milliseconds, speed-ups over the baseline, and the goals."""
    lines = [f"{title:32}{'ms':>10}{'×':>7}{'CPU ms':>10}{'×':>7}"]
    for name, row in result["engines"].items():
        lines.append(f"{name:32}{row['ms']:10.2f}{row['times']:7.2f}{row['cpu_ms']:10.2f}{row['cpu_times']:7.2f}")
    return "\n".join([*lines, *goal_lines(result["goals"])])


def goal_lines(goals: Iterable[Mapping[str, Any]]) -> list[str]:
    return [
        f"{'met    ' if goal['met'] else 'NOT met'} {goal['goal']}: {goal['got']:.3g}"
        + (f", of CPU {goal['of_cpu']:.3g}" if "of_cpu" in goal else "")
        for goal in goals
    ]


def finish(
    benchmark: str, packages: Iterable[str], document: Mapping[str, Any], goals: Iterable[Mapping[str, Any]]
) -> int:
    """Prints the JSON document on the last line. Returns 1 if a goal was missed, else 0."""
    print(json.dumps({"benchmark": benchmark, **machine(packages), **document}))
    return int(not all(goal["met"] for goal in goals))


def machine(packages: Iterable[str] = ()) -> dict[str, Any]:
    """Describes the machine and the versions of `packages`. None means that a package is not installed."""
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "load_average": os.getloadavg()[0],
        "python": platform.python_version(),
        "versions": {package: _version(package) for package in packages},
    }


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _cpu() -> str:
    lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    parts = (line.partition(":") for line in lines)
    fields = {name.strip(): value.strip() for name, colon, value in parts if colon}
    if "model name" not in fields:
        return platform.machine()
    widest = next((name for name in ("avx512_vnni", "avx512f", "avx2") if name in fields.get("flags", "").split()), "")
    return f"{fields['model name']} family {fields['cpu family']} {widest}".strip()
