"""Asks a server requests of chosen lengths, one at a time, alone and beside a load of payloads; then payloads whose
lengths shift, by many users at once.

In: a `Server`, rows of payloads and their tokenizer. Out: `Measured`, a sample for each answer, and the kinds of
payloads. The first round of a survey warms up and does not count; each round goes through all requests in an order of
its own, so that a machine that is slow for a while is so for all lengths. Latency is the caller's, from the request's
first byte to the answer's last.
"""

import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from inference_recommender.capacity.closed_loop import Limit
from inference_recommender.capacity.flow_equivalent import Records
from inference_recommender.client.kserve import Body, decode
from inference_recommender.lengths.asking import Post, beside_load
from inference_recommender.lengths.result import Measured
from inference_recommender.lengths.served import Server
from inference_recommender.lengths.shifts import Bounds, Kind, Shift, kind, shifts
from inference_recommender.lengths.surface import Sample
from inference_recommender.lengths.throughput import driven, step_seconds, user_levels
from inference_recommender.lengths.tokens import PayloadTokenizer, token_counts
from inference_recommender.payloads import payload_archive, request_body
from workloads import Row

STEP = 1.6
"""Beyond the payloads' longest, each length is so many times the one before."""
ROWS_OF_A_LENGTH = 5
LOADED = 0.5
"""The load beside the survey, as a share of what one request after another would be."""
TURNS = 3
"""Every kind of payloads is driven so often, the second time backwards: what slows the machine down for a while slows
no kind alone."""
COUNTED = 64
"""So many rows of a kind are asked for their answers' lengths."""


def input_levels(counts: Sequence[int], most: int) -> tuple[int, ...]:
    """Returns the input lengths of the grid, ascending: the payloads' own, and on to the most that the model takes."""
    found, beyond = token_counts(counts), float(max(counts))
    levels = {min(counts), found.p50, found.p90, found.maximum}
    while (beyond := beyond * STEP) < most / 1.2:
        levels.add(round(beyond))
    return tuple(sorted({min(each, most) for each in levels} | {most}))


def output_levels(counts: Sequence[int], most: int) -> tuple[int, ...]:
    """Returns the answer lengths of the grid, ascending."""
    found = token_counts(counts)
    levels = {min(counts), found.p50, found.maximum, (found.maximum + most) // 2}
    return tuple(sorted({min(each, most) for each in levels} | {most}))


@dataclass(frozen=True, kw_only=True, slots=True)
class Survey:
    """Asks rows and counts what comes back."""

    post: Post
    tokenizer: PayloadTokenizer
    answer: str | None
    """The output with a model's text; None where it writes none."""
    clock_s: Callable[[], float] = time.perf_counter

    def ask(self, rows: Sequence[Row], *, rounds: int, output_tokens: int | None = None) -> tuple[Sample, ...]:
        """Asks every row `rounds` times and once before, which does not count. `output_tokens` is what each answer is
        forced to have; None: they are counted.
        """
        inputs = self.tokenizer.count(rows)
        order, found = list(range(len(rows))), list[Sample]()
        shuffled = random.Random(0)
        for number in range(rounds + 1):
            shuffled.shuffle(order)
            for place in order:
                latency_ms, text = self._timed(rows[place])
                if number == 0:
                    continue
                if output_tokens is None:
                    written = 0 if text is None else self.tokenizer.count_texts([text])[0]
                else:
                    written = output_tokens
                found.append(Sample(input_tokens=inputs[place], output_tokens=written, latency_ms=latency_ms))
        return tuple(found)

    def _timed(self, row: Row) -> tuple[float, str | None]:
        request = request_body(row)
        began = self.clock_s()
        content = self.post(request)
        latency_ms = (self.clock_s() - began) * 1000
        if self.answer is None:
            return latency_ms, None
        return latency_ms, decode(Body(content=content), (self.answer,))[self.answer].flat[0].decode("utf-8", "replace")


@dataclass(frozen=True, kw_only=True, slots=True)
class Asked:
    """The requests of a survey, and how many."""

    payloads: Sequence[Row]
    others: Shift | None
    """The payloads of --payloads."""
    requests: int
    """For each pair of lengths."""
    load_invocations_per_minute: float | None
    """None: the share `LOADED` of what one payload after another makes."""
    archive: Path
    """The requests of the payloads, which the load is of; what is sent besides is kept beside it."""
    at_once: int
    """Rows that the server computes at once: a full batch of each copy of the model."""
    limit: Limit


def measure(survey: Survey, server: Server, asked: Asked, bounds: Bounds, say: Callable[[str], None]) -> Measured:
    """Asks all that the result needs. Raises `Unavailable`, `Refused` or `InferenceFailed`."""
    payloads, rounds = asked.payloads, -(-asked.requests // ROWS_OF_A_LENGTH)
    say(f"Asking {server.name} {len(payloads)} payloads")
    as_they_are = survey.ask(payloads, rounds=1)
    levels = input_levels(survey.tokenizer.count(payloads), bounds.inputs)
    rows = [row for level in levels for row in _rows(survey.tokenizer, payloads, level)]
    say(f"Input lengths: {', '.join(map(str, levels))}")
    grid = survey.ask(rows, rounds=rounds)
    mean_ms = sum(each.latency_ms for each in as_they_are) / len(as_they_are)
    load = asked.load_invocations_per_minute or LOADED * 60_000 / mean_ms
    say(f"The same beside {load:,.0f} payloads/min")
    with beside_load(asked.archive, asked.archive.parent / "load", load, url=server.url, endpoint=server.endpoint):
        under_load = survey.ask(rows, rounds=rounds)
    longest = max(each.input_tokens for each in grid)
    step_s = step_seconds(asked.at_once, median(each.latency_ms for each in grid if each.input_tokens == longest))
    kinds = _kinds(survey, server, asked, as_they_are, bounds, step_s, say)
    return Measured(
        payloads=as_they_are,
        grid=grid,
        forced=tuple(_forced(survey, server, rows, rounds, as_they_are, bounds, say)),
        under_load=under_load,
        load_invocations_per_minute=load,
        kinds=kinds,
    )


def _kinds(
    survey: Survey,
    server: Server,
    asked: Asked,
    as_they_are: Sequence[Sample],
    bounds: Bounds,
    step_s: int,
    say: Callable[[str], None],
) -> tuple[Kind, ...]:
    """Drives the server with the payloads and each shift of them, in turns."""
    of_answers = [each.output_tokens for each in as_they_are]
    every = [*shifts(survey.tokenizer, asked.payloads, of_answers, bounds), *([asked.others] if asked.others else ())]
    forces = server.force is not None
    outputs: list[Sequence[int]] = [() for _ in every]
    if bounds.outputs:
        outputs = [of_answers, *(_answers(survey, each, forces=forces) for each in every[1:])]
    turns = _turns(server, every, asked.archive.parent / "kinds", user_levels(asked.at_once), step_s, say)
    return tuple(
        kind(each.name, survey.tokenizer.count(each.rows), written, seen, asked.limit)
        for each, written, seen in zip(every, outputs, turns, strict=True)
    )


def _turns(
    server: Server,
    every: Sequence[Shift],
    folder: Path,
    users: Sequence[int],
    step_s: int,
    say: Callable[[str], None],
) -> Sequence[Sequence[Records]]:
    """Returns what each number of users had, by kind and turn."""
    folder.mkdir(parents=True, exist_ok=True)
    for place, each in enumerate(every):
        (folder / f"{place}.tar.gz").write_bytes(payload_archive(each.rows))
    found: list[list[Records]] = [[] for _ in every]
    forced: int | None = None
    for turn in range(TURNS):
        say(f"Payloads by up to {users[-1]} users, turn {turn + 1} of {TURNS}: {len(every) * len(users) * step_s} s")
        for place in range(len(every)) if turn % 2 == 0 else reversed(range(len(every))):
            if server.force is not None and forced != every[place].output_tokens:
                forced = every[place].output_tokens
                server.force(forced)
            found[place].append(driven(server, folder / f"{place}.tar.gz", folder / f"{place}-{turn}", users, step_s))
    if server.force is not None and forced is not None:
        server.force(None)
    return found


def _answers(survey: Survey, shift: Shift, *, forces: bool) -> Sequence[int]:
    """Returns the tokens of some answers to a kind of payloads."""
    if forces and shift.output_tokens is not None:
        return (shift.output_tokens,)
    some = shift.rows[:: max(len(shift.rows) // COUNTED, 1)]
    return [each.output_tokens for each in survey.ask(some, rounds=1)]


def _forced(
    survey: Survey,
    server: Server,
    rows: Sequence[Row],
    rounds: int,
    as_they_are: Sequence[Sample],
    bounds: Bounds,
    say: Callable[[str], None],
) -> Iterator[Sample]:
    """Yields the grid again with answers of each chosen length; nothing where the server takes none. The lengths are
    gone through twice, the second time backwards: what slows the machine down for a while slows no length alone.
    """
    if server.force is None or not bounds.outputs:
        return
    levels = output_levels([each.output_tokens for each in as_they_are], bounds.outputs)
    for level in (*levels, *reversed(levels)):
        say(f"Answers of {level} tokens")
        server.force(level)
        yield from survey.ask(rows, rounds=-(-rounds // 2), output_tokens=level)


def _rows(tokenizer: PayloadTokenizer, payloads: Sequence[Row], level: int) -> Iterator[Row]:
    """Yields some requests of a length, each begun with another payload."""
    step = max(len(payloads) // ROWS_OF_A_LENGTH, 1)
    for place in range(ROWS_OF_A_LENGTH):
        yield tokenizer.resized(payloads, place * step, level)
