"""The harness of the benchmarks: engines take turns, figures are medians over rounds, goals decide the exit code.

The speed of a machine changes from second to second, so a figure is a ratio within a round. In a round each engine
computes the same case for a moment, one after the other and in changing order. `cpu` is the processor time of the
engine's process with all its threads. Other work on the machine changes it less than the time by the clock.

Each engine is a process of its own, in which a benchmark runs itself with `--serve`. Optimum and CTranslate2 need other
versions of our dependencies, so they run in `.venv-peers`, which `make peers` makes. Without it they are left out.
"""

import argparse
import importlib.metadata
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Self

ROOT = Path(__file__).parent.parent
PEERS_PYTHON = ROOT / ".venv-peers" / "bin" / "python"
TURN_S = 0.4
"""Length of a turn, unless one call takes longer."""
BASELINE = "huggingface fp32"
PACKAGES = ("ctranslate2", "numpy", "onnxruntime", "torch", "transformers")
Turns = Mapping[str, list["Turn"]]
Goals = tuple[tuple[str, str, float], ...]
"""Our engine, another engine, and how many times as fast ours should be."""
Answer = Callable[[str], Any]
Load = Callable[[str, str, Path], Answer]
"""Loads the engine of a name and a group from a folder."""


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
        with suppress(BrokenPipeError):  # then there is no answer either
            self._process.stdin.write(json.dumps(question) + "\n")
            self._process.stdin.flush()
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
    milliseconds: list[float] = []
    used, end = time.process_time(), time.perf_counter() + TURN_S
    while not milliseconds or time.perf_counter() < end:
        start = time.perf_counter()
        call()
        milliseconds.append((time.perf_counter() - start) * 1000)
    return Turn(statistics.median(milliseconds), (time.process_time() - used) * 1000 / len(milliseconds))


def in_turn(engines: Sequence[EngineProcess], case: str, rounds: int) -> Turns:
    """Returns the turns of each engine by name, one a round, after a round that does not count."""
    turns: dict[str, list[Turn]] = {engine.name: [] for engine in engines}
    for number in range(rounds + 1):
        for engine in engines if number % 2 else reversed(engines):
            turn = engine.turn(case)
            if number:
                turns[engine.name].append(turn)
    return turns


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


def summary(title: str, turns: Turns, baseline: str, goals: Goals) -> dict[str, Any]:
    """Returns each engine's medians and speed-up over the baseline, and the goals of engines that ran."""
    engines, judged = {}, []
    for name, rounds in turns.items():
        faster, cpu_ms = times_faster(turns, name, baseline), statistics.median(turn.cpu_ms for turn in rounds)
        engines[name] = {"ms": median_ms(rounds), "cpu_ms": cpu_ms, "times": faster.ms, "cpu_times": faster.cpu_ms}
    for ours, other, goal in goals:
        if ours in turns and other in turns:
            faster = times_faster(turns, ours, other)
            words = f"{title}: {ours} ≥ {goal:g} × {other}"
            judged.append({"goal": words, "got": faster.ms, "of_cpu": faster.cpu_ms, "met": faster.ms >= goal})
    return {"engines": engines, "goals": judged}


def table(title: str, result: Mapping[str, Any]) -> str:
    """Returns a summary as text: medians in milliseconds and speed-ups over the baseline."""
    lines = [f"{title:32}{'ms':>10}{'×':>7}{'CPU ms':>10}{'×':>7}"]
    for name, row in result["engines"].items():
        lines.append(f"{name:32}{row['ms']:10.2f}{row['times']:7.2f}{row['cpu_ms']:10.2f}{row['cpu_times']:7.2f}")
    return "\n".join(lines)


def options(description: str, **numbers: tuple[int, str]) -> argparse.Namespace:
    """Parses the command line of a benchmark. Each option has its default and its help."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, (default, text) in numbers.items():
        parser.add_argument(f"--{name}", type=int, default=default, help=f"{text} (default {default})")
    return parser.parse_args()


def finish(
    benchmark: str, packages: Iterable[str], document: Mapping[str, Any], goals: Sequence[Mapping[str, Any]]
) -> int:
    """Prints the goals, and the JSON document on the last line. Returns 1 if a goal was missed, else 0."""
    for goal in goals:
        cpu = f", of CPU {goal['of_cpu']:.3g}" if "of_cpu" in goal else ""
        print(f"{'met    ' if goal['met'] else 'NOT met'} {goal['goal']}: {goal['got']:.3g}{cpu}")
    print(json.dumps({"benchmark": benchmark, **machine(packages), **document, "goals": goals}))
    return int(not all(goal["met"] for goal in goals))


def machine(packages: Iterable[str] = ()) -> dict[str, Any]:
    """Describes the machine and the versions of `packages`. None means that a package is not installed."""
    installed = {each.name: each.version for each in importlib.metadata.distributions()}
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "load_average": os.getloadavg()[0],
        "python": platform.python_version(),
        "versions": {package: installed.get(package) for package in packages},
    }


def _cpu() -> str:
    lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    fields = {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    flags = fields.get("flags", "").split()
    widest = next((name for name in ("avx512_vnni", "avx512f", "avx2") if name in flags), "")
    return f"{fields.get('model name', platform.machine())} family {fields.get('cpu family', '-')} {widest}".strip()


@contextmanager
def started(
    program: Path, names: Sequence[str], *arguments: str, threads: int, peers: Path = PEERS_PYTHON
) -> Iterator[list[EngineProcess]]:
    """Starts an engine for each name. Those of other projects run in the peers' environment."""
    pythons = {name: python_of(name, peers) for name in names}
    with ExitStack() as stack:
        engines = [EngineProcess(program, name, *arguments, threads=threads, python=pythons[name]) for name in names]
        yield [stack.enter_context(engine) for engine in engines]


def is_peer(name: str) -> bool:
    return name.startswith(("optimum", "ctranslate2"))


def python_of(name: str, peers: Path = PEERS_PYTHON) -> Path:
    return peers if is_peer(name) else Path(sys.executable)


def present(names: Iterable[str]) -> list[str]:
    """Returns the engines that can run here. The baseline is always the first."""
    chosen = [BASELINE, *(name for name in names if name != BASELINE)]
    absent = [name for name in chosen if is_peer(name) and not PEERS_PYTHON.exists()]
    if absent:
        print(f"Left out, because there is no {PEERS_PYTHON}: {', '.join(absent)}.", file=sys.stderr)
    return [name for name in chosen if name not in absent]


def make(program: Path, name: str, *arguments: str, threads: int) -> bool:
    """Runs `program --make NAME ARGUMENTS`, peers for at most five minutes. Returns whether it succeeded."""
    command: list[str | Path] = [python_of(name), program, "--make", name, *arguments]
    limit_s = 300 if is_peer(name) else None
    try:
        subprocess.run(command, env=environment(threads), check=True, stdout=sys.stderr, timeout=limit_s)
    except subprocess.TimeoutExpired:
        print(f"{name} is left out: it was not made in five minutes.", file=sys.stderr)
        return False
    return True


def compare(
    benchmark: Path,
    groups: Sequence[str],
    cases: Sequence[str],
    names: Iterable[str],
    goals: Goals,
    check: Callable[[str, str, Mapping[str, Any]], Mapping[str, Any]],
    *,
    rounds: int,
    threads: int,
    offers: Callable[[str, str], bool] = lambda group, name: True,
) -> int:
    """Compares engines on the models `groups`, prints a table for each case, and returns the exit code.

    `check` gets group, case and all answers. It raises SystemExit if one is wrong, and returns what the result adds.
    """
    results, judged = {}, []
    with tempfile.TemporaryDirectory(prefix=f"{benchmark.stem}_") as scratch:
        for group in groups:
            arguments = group, str(Path(scratch) / group)
            make(benchmark, "checkpoint", *arguments, threads=threads)
            chosen = [
                name
                for name in present(names)
                if offers(group, name) and (name == BASELINE or make(benchmark, name, *arguments, threads=threads))
            ]
            with started(benchmark, chosen, *arguments, threads=threads) as engines:
                for case in cases:
                    checked = check(group, case, {engine.name: engine.answer(case) for engine in engines})
                    title = f"{group}, {case}"
                    result = {**summary(title, in_turn(engines, case, rounds), BASELINE, goals), **checked}
                    print(table(title, result), end="\n\n", flush=True)
                    results[title] = result
                    judged += result["goals"]
    return finish(benchmark.stem, PACKAGES, {"threads": threads, "cases": results}, judged)
