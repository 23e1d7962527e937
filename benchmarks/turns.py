"""Engines that take turns: each is loaded in a process of its own, of any Python, and computes only when it is asked.

What else runs on a machine changes from second to second, and so does the speed of its memory. So a figure here is a
ratio: in every round each engine computes the same case for a moment, one after the other and in changing order, and
the median is over rounds. `cpu` is the processor time of the engine's process, all its threads together: a machine
that is busy with other work changes it less than the time by the clock.

The program of an engine ends by `answer_turns`, which reads questions from stdin. Peers that need other versions of our
dependencies are in an environment of their own, `.venv-peers`, which `make peers` makes.
"""

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Self

from benchmarks.side_by_side import ROOT, environment, timed

PEERS_PYTHON = ROOT / ".venv-peers" / "bin" / "python"
TURN_S = 0.4
"""A turn lasts about as long, or one call."""
Turns = Mapping[str, list["Turn"]]


@dataclass(frozen=True)
class Turn:
    """A call of one engine: its milliseconds by the clock (the median of its turn) and of processors (the mean)."""

    ms: float
    cpu_ms: float


class Engine:
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
        """Returns what the engine makes of a case, untimed."""
        return self._ask({"case": case, "timed": False})

    def turn(self, case: str) -> Turn:
        return Turn(**self._ask({"case": case, "timed": True}))

    def _ask(self, question: Mapping[str, Any]) -> Any:
        assert self._process.stdin
        assert self._process.stdout
        try:
            self._process.stdin.write(json.dumps(question) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            pass  # its answer is missing, too
        if not (line := self._process.stdout.readline()):
            raise SystemExit(f"The process of {self.name} ended; what it said is above.")
        return json.loads(line)


def answer_turns(load: Callable[[], Callable[[str], Any]]) -> None:
    """Answers an `Engine`. `load` loads one and returns its answer to a case, in what JSON can hold."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print is for people
    answer = load()
    for line in sys.stdin:
        question = json.loads(line)
        case = question["case"]
        found = asdict(_turn(partial(answer, case))) if question["timed"] else answer(case)
        print(json.dumps(found), file=answers, flush=True)


def _turn(call: Callable[[], object]) -> Turn:
    start = time.process_time()
    taken = timed(call, warm_up=0, at_least=1, seconds=TURN_S)
    return Turn(statistics.median(taken), (time.process_time() - start) * 1000 / len(taken))


def in_turn(engines: list[Engine], case: str, rounds: int) -> Turns:
    """Returns the turns of each engine by name, one a round, after one that is not counted."""
    turns: dict[str, list[Turn]] = {engine.name: [] for engine in engines}
    for number in range(rounds + 1):
        for engine in engines if number % 2 else reversed(engines):
            turn = engine.turn(case)
            if number:
                turns[engine.name].append(turn)
    return turns


def times_faster(turns: Turns, ours: str, other: str) -> Turn:
    """Returns how many times as long as ours the other takes, by the clock and of processors: medians over rounds."""
    rounds = list(zip(turns[ours], turns[other], strict=True))
    return Turn(
        statistics.median(theirs.ms / own.ms for own, theirs in rounds),
        statistics.median(theirs.cpu_ms / own.cpu_ms for own, theirs in rounds),
    )


def summary(turns: Turns, baseline: str, goals: tuple[tuple[str, str, float], ...]) -> dict[str, Any]:
    """Returns each engine's medians with its speed-up over the baseline, and those goals whose engines have run.

    A goal is (ours, the other, how many times as fast).
    """
    engines = {}
    for name, taken in turns.items():
        faster = times_faster(turns, name, baseline)
        engines[name] = {
            "ms": statistics.median(turn.ms for turn in taken),
            "cpu_ms": statistics.median(turn.cpu_ms for turn in taken),
            "times": faster.ms,
            "cpu_times": faster.cpu_ms,
        }
    judged = []
    for ours, other, goal in goals:
        if ours in turns and other in turns:
            faster = times_faster(turns, ours, other)
            judged.append({"ours": ours, "beside": other, "goal": goal, "times": faster.ms, "cpu_times": faster.cpu_ms})
    return {"engines": engines, "goals": judged}


def table(title: str, found: Mapping[str, Any]) -> str:
    """Returns a summary for people: medians in milliseconds, with the speed-ups over the baseline, and the goals."""
    lines = [f"{title:32}{'ms':>10}{'×':>7}{'CPU ms':>10}{'×':>7}"]
    for name, row in found["engines"].items():
        lines.append(f"{name:32}{row['ms']:10.2f}{row['times']:7.2f}{row['cpu_ms']:10.2f}{row['cpu_times']:7.2f}")
    for goal in found["goals"]:
        met = "met    " if goal["times"] >= goal["goal"] else "NOT met"
        lines.append(
            f"{met} {goal['ours']} ≥ {goal['goal']:g} × {goal['beside']}: "
            f"{goal['times']:.2f}, of CPU {goal['cpu_times']:.2f}"
        )
    return "\n".join(lines)


def write_tokenizer(folder: Path, size: int, special: Mapping[str, int]) -> None:
    """Writes a tokenizer of one word per token, which CTranslate2's converter takes the vocabulary from.

    `special` has token ids by transformers' names, such as `pad_token`.
    """
    from tokenizers import Tokenizer, models, pre_tokenizers

    names = {token: f"<{name.removesuffix('_token')}>" for name, token in special.items()}
    words = {names.get(token, word(token)): token for token in range(size)}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token=names[special["unk_token"]]))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.add_special_tokens(list(names.values()))
    tokenizer.save(str(folder / "tokenizer.json"))
    said = {name: names[token] for name, token in special.items()}
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "PreTrainedTokenizerFast", **said}))


def word(token: int) -> str:
    return f"w{token}"
