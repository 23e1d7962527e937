"""The harness of the benchmarks that compare engines: engines take turns, figures are medians over rounds.

The speed of a machine changes from second to second, so a figure is a ratio within a round. In a round each engine
computes the same case for a moment, one after the other and in changing order. `cpu` is the processor time of the
engine's process with all its threads. Other work on the machine changes it less than the time by the clock.

Each engine is a process of its own, in which a benchmark runs itself with `--serve`. Engines of other projects need
other versions of our dependencies, so they run in the environments of `make peers`. An engine that is not installed,
cannot be built or gives wrong answers has no turns, and the tables print the reason.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, astuple, dataclass, field
from math import isnan
from pathlib import Path
from select import select
from typing import Any, NamedTuple, Self

from benchmarks.goals import Goal, cpu

ROOT = Path(__file__).parent.parent
TURN_S = 0.4
"""Length of a turn, unless one pass over its calls takes longer."""
PEER_LIMIT_S = 300
"""Time in which the model of another project has to be made, and an engine has to answer."""
BASELINE = "huggingface fp32"
COLUMNS = {"ms": 10, "times": 7, "cpu_ms": 10, "cpu_times": 7, "p99_ms": 10}
"""Figures of the tables with their widths."""
PACKAGES = ("numpy", "onnxruntime", "openvino", "torch", "transformers")
ENVIRONMENTS = {
    "optimum": ".venv-peers-optimum",
    "ctranslate2": ".venv-peers-optimum",
    "openvino": ".venv-peers-openvino",
    "zentorch": ".venv-peers-openvino",
}
"""The environment of each other project's engines, by the first word of their names."""
Answer = Callable[[str], Any]
"""Returns an engine's answer to a call, as JSON values."""
Load = Callable[[str, str, Path], Answer]
"""Loads the engine of a name and a group from a folder."""
Pairs = Sequence[tuple[str, str, float]]
"""Our engine, another engine, and how many times as fast ours should be."""


@dataclass(frozen=True)
class Turn:
    """One turn of an engine: milliseconds of a call by the clock, and of processor time (mean)."""

    ms: float
    cpu_ms: float
    mean_ms: float
    p99_ms: float


Turns = Mapping[str, Sequence[Turn]]


class Checked(NamedTuple):
    """An engine's answers beside the baseline's, or a note."""

    text: str
    right: bool = True


class Absent(NamedTuple):
    """Why an engine has no turns. `failed`: it was not built, ended, or gave wrong answers."""

    reason: str
    failed: bool = False


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """The turns of all engines on one case. `absent` has the engines without turns, with the reason."""

    title: str
    turns: Turns
    absent: Mapping[str, Absent] = field(default_factory=dict)
    answers: Mapping[str, Checked] = field(default_factory=dict)

    def document(self) -> dict[str, Any]:
        rows = {}
        for name in self.turns:
            faster = times_faster(self.turns, name, next(iter(self.turns)))
            row = {**asdict(medians(self.turns[name])), "times": faster.ms, "cpu_times": faster.cpu_ms}
            rows[name] = {key: None if isnan(value) else value for key, value in row.items()}
        absent = {name: each.reason for name, each in self.absent.items()}
        return {"engines": rows, "absent": absent, "answers": {name: each.text for name, each in self.answers.items()}}

    def table(self) -> str:
        """Returns medians in milliseconds, and speed-ups over the first engine."""
        lines = [f"{self.title:40}{'ms':>10}{'×':>7}{'CPU ms':>10}{'×':>7}{'P99 ms':>10}"]
        for name, row in self.document()["engines"].items():
            checked = self.answers[name].text if name in self.answers else ""
            figures = (f"{'-' if row[key] is None else f'{row[key]:.4g}':>{width}}" for key, width in COLUMNS.items())
            lines.append(f"{name:40}{''.join(figures)}  {checked}".rstrip())
        return "\n".join([*lines, *(f"{name:40}  {each.reason}" for name, each in self.absent.items())])


def compare_loads(unit: str, seen: Mapping[int, Turns], names: Iterable[str]) -> Iterator[Comparison]:
    """Yields the turns at each load, such as a number of users, with the rates. Prints each table."""
    names = list(names)
    for number, turns in seen.items():
        rates = {name: Checked(f"{1000 / medians(of).mean_ms:,.0f}/s") for name, of in turns.items()}
        absent = {name: Absent("not installed") for name in names if name not in turns}
        compared = Comparison(title=f"{number} {unit}", turns=turns, absent=absent, answers=rates)
        print(compared.table(), end="\n\n")
        yield compared


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

    def answer(self, calls: Sequence[str]) -> list[Any]:
        """Returns the engine's answers to the calls, untimed."""
        return list(self._call({"calls": calls, "timed": False}))

    def turn(self, calls: Sequence[str]) -> Turn:
        return Turn(**self._call({"calls": calls, "timed": True}))

    def _call(self, question: Mapping[str, Any]) -> Any:
        assert self._process.stdin
        assert self._process.stdout
        with suppress(BrokenPipeError):  # then there is no answer either
            self._process.stdin.write(json.dumps(question) + "\n")
            self._process.stdin.flush()
        if not select([self._process.stdout], [], [], PEER_LIMIT_S)[0]:
            raise EngineEnded(f"no answer in {PEER_LIMIT_S} s")
        if not (line := self._process.stdout.readline()):
            raise EngineEnded("ended")
        return json.loads(line)


class EngineEnded(Exception):
    """The process of an engine ended or hangs; its messages are on stderr."""


def answer_turns(load: Callable[[], Answer]) -> None:
    """Serves an `EngineProcess`. `load` loads one and returns its answer to a call."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # the output of libraries
    answer = load()
    for line in sys.stdin:
        question = json.loads(line)
        calls = question["calls"]
        reply = asdict(_turn(answer, calls)) if question["timed"] else [answer(call) for call in calls]
        print(json.dumps(reply), file=answers, flush=True)


def _turn(answer: Answer, calls: Sequence[str]) -> Turn:
    milliseconds: list[float] = []
    used, end = time.process_time(), time.perf_counter() + TURN_S
    while not milliseconds or time.perf_counter() < end:
        for call in calls:
            start = time.perf_counter()
            answer(call)
            milliseconds.append((time.perf_counter() - start) * 1000)
    cpu_ms = (time.process_time() - used) * 1000 / len(milliseconds)
    slowest = sorted(milliseconds)[int(0.99 * len(milliseconds))]
    return Turn(statistics.median(milliseconds), cpu_ms, statistics.mean(milliseconds), slowest)


def in_turn(names: Iterable[str], take: Callable[[str], Turn], rounds: int, *, warm_up: bool = True) -> Turns:
    """Returns the turns of each engine by name, one a round and in changing order. A warm-up round does not count."""
    turns: dict[str, list[Turn]] = {name: [] for name in names}
    for number in range(1 - warm_up, rounds + 1):
        for name in turns if number % 2 else reversed(turns):
            turn = take(name)
            if number:
                turns[name].append(turn)
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
    rounds = zip(map(astuple, turns[ours]), map(astuple, turns[other]), strict=True)
    ratios = [[theirs / own for own, theirs in zip(*pair, strict=True)] for pair in rounds]
    return Turn(*map(statistics.median, zip(*ratios, strict=True)))


def medians(turns: Sequence[Turn]) -> Turn:
    return Turn(*map(statistics.median, zip(*map(astuple, turns), strict=True)))


def pair_goals(compared: Comparison, pairs: Pairs, figure: str = "ms") -> Iterator[Goal]:
    """Yields a goal for each pair of engines that this case offers. `figure` is the one of `Turn` that is compared."""
    for ours, other, limit in pairs:
        cell = f"{compared.title}: {ours} over {other}{'' if figure == 'ms' else f', {figure}'}"
        missing = {name: compared.absent[name] for name in (ours, other) if name in compared.absent}
        if ours in compared.turns and other in compared.turns:
            faster = times_faster(compared.turns, ours, other)
            yield Goal(cell=cell, limit=limit, figure=getattr(faster, figure), note=cpu_note(faster))
        elif missing:
            note = ", ".join(f"{name}: {each.reason}" for name, each in missing.items())
            yield Goal(cell=cell, limit=limit, note=note, failed=ours in missing and missing[ours].failed)


def python_of(name: str) -> Path:
    """Returns the Python that runs an engine."""
    folder = ENVIRONMENTS.get(name.split()[0])
    return ROOT / folder / "bin" / "python" if folder else Path(sys.executable)


def unavailable(name: str) -> Absent | None:
    """Returns why an engine cannot run on this machine, or None."""
    if not python_of(name).exists():
        return Absent("not installed")
    return Absent("needs an AMD processor") if name.startswith("zentorch") and "AMD" not in cpu() else None


def make(program: Path, name: str, *arguments: str, threads: int) -> Absent | None:
    """Runs `program --make NAME ARGUMENTS`, peers for at most `PEER_LIMIT_S`. Returns why it failed, or None."""
    command: list[str | Path] = [python_of(name), program, "--make", name, *arguments]
    limit_s = PEER_LIMIT_S if name.split()[0] in ENVIRONMENTS else None
    try:
        subprocess.run(command, env=environment(threads), check=True, stdout=sys.stderr, timeout=limit_s)
    except subprocess.TimeoutExpired:
        return Absent(f"not built in {PEER_LIMIT_S} s", failed=True)
    except subprocess.CalledProcessError:
        return Absent("not built", failed=True)
    return None


def compare(
    program: Path,
    group: str,
    names: Iterable[str],
    cases: Mapping[str, Sequence[str]],
    check: Callable[[str, Mapping[str, list[Any]]], Mapping[str, Checked]],
    *,
    rounds: int,
    threads: int,
) -> Iterator[Comparison]:
    """Compares engines on a model of `program`. Yields each case with its turns, and prints its table.

    `cases` has the calls of each case. `check` gets a case and the answers of all engines to its calls. An engine that
    answers None does not offer the case.
    """
    with tempfile.TemporaryDirectory(prefix=f"{program.stem}_") as scratch, ExitStack() as stack:
        if failure := make(program, "checkpoint", group, scratch, threads=threads):
            raise SystemExit(f"The checkpoint of {group} is {failure.reason}. Its messages are above.")
        absent: dict[str, Absent] = {}
        engines: dict[str, EngineProcess] = {}
        for name in names:
            if reason := unavailable(name) or make(program, name, group, scratch, threads=threads):
                absent[name] = reason
            else:
                process = EngineProcess(program, name, group, scratch, threads=threads, python=python_of(name))
                engines[name] = stack.enter_context(process)
        for case, calls in cases.items():
            answers: dict[str, list[Any]] = {}
            left_out: dict[str, Absent] = {}
            for name in list(engines):
                try:
                    answers[name] = engines[name].answer(calls)
                except EngineEnded as error:
                    absent[name] = Absent(str(error), failed=True)
                    del engines[name]
            for name in [name for name, own in answers.items() if None in own]:
                left_out[name] = Absent("does not offer this")
                del answers[name]
            checked = check(case, answers)
            for name, each in checked.items():
                if not each.right:
                    left_out[name] = Absent(f"wrong answers: {each.text}", failed=True)
            right = [name for name in answers if name not in left_out]
            turns = in_turn(right, lambda name: engines[name].turn(calls), rounds)  # noqa: B023 - called at once
            compared = Comparison(title=f"{group}, {case}", turns=turns, absent={**absent, **left_out}, answers=checked)
            print(compared.table(), end="\n\n", flush=True)
            yield compared


def cpu_note(faster: Turn) -> str:
    return "" if isnan(faster.cpu_ms) else f"CPU {faster.cpu_ms:.3g}"


def options(description: str, **numbers: tuple[int, str]) -> argparse.Namespace:
    """Parses the command line of a benchmark. Each option has its default and its help."""
    return parser(description, **numbers).parse_args()


def parser(description: str | None, **numbers: tuple[int, str]) -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, (default, text) in numbers.items():
        made.add_argument(f"--{name}", type=int, default=default, help=f"{text} (default {default})")
    return made
