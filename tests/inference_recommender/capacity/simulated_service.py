"""A batching service in simulated time, whose capacity is known: the estimators are tested against it.

The model. One server. Whenever it is free it takes up to `max_batch` of the waiting requests, in order of arrival, as a
dynamic batcher without delay does. A batch takes

    (fixed_ms + per_unit_ms * sum of its requests' lengths) * (1 + (cold_factor - 1) * exp(-t / cold_s))

with t the time since the service was started: it is `cold_factor` times slower at first. Lengths are drawn one by one:
four in five of `BIMODAL` are 1 and the others 4; those of `EXPONENTIAL` have mean 1. Stalls (garbage
collection, a neighbour on the machine) begin at the instants of a Poisson process, one in `stall_every_s` on average;
the server does nothing for `stall_ms`, busy or not. Warm and without end, it can serve at most

    saturation = max_batch / (fixed_ms + per_unit_ms * max_batch * mean length) * (1 - stall_ms / stall_every_s / 1000)

Arrivals are a Poisson process (open loop), or users who each send again the moment they are answered (closed loop).

Known answers. With max_batch 1, fixed_ms 0, EXPONENTIAL lengths, no stalls and no cold start it is the M/M/1 queue,
whose time in system is exponential with rate mu - lambda: the percentile q is -ln(1 - q) / (mu - lambda), and so the
capacity under a limit L is mu + ln(1 - q) / L, exactly. Other capacities come from `long_run_capacity_per_minute`: runs
of millions of requests at fixed rates, evaluated with `np.percentile` alone, to the precision that it states.

Nothing sleeps: a second costs what its requests cost, about a microsecond each.
"""

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import exp, inf, log, sqrt

import numpy as np

from inference_recommender.capacity.search import Seen
from inference_recommender.capacity.statistics import Bools, Floats

Lengths = Callable[[np.random.Generator, int], Floats]


def BIMODAL(random: np.random.Generator, count: int) -> Floats:  # noqa: N802 - a constant that is a function
    return np.where(random.random(count) < 0.8, 1.0, 4.0)


def EXPONENTIAL(random: np.random.Generator, count: int) -> Floats:  # noqa: N802
    return random.exponential(1.0, count)


@dataclass(frozen=True, kw_only=True, slots=True)
class Model:
    max_batch: int = 8
    fixed_ms: float = 4.0
    per_unit_ms: float = 0.5
    lengths: Lengths = BIMODAL
    stall_ms: float = 0.0
    stall_every_s: float = 10.0
    cold_factor: float = 1.0
    cold_s: float = 1.0


BATCHING = Model()
STALLING = Model(stall_ms=40.0)
COLD = Model(stall_ms=40.0, cold_factor=5.0, cold_s=4.0)
MM1 = Model(max_batch=1, fixed_ms=0.0, per_unit_ms=4.0, lengths=EXPONENTIAL)


def mm1_capacity_per_minute(model: Model, percentile: float, limit_ms: float) -> float:
    return 60_000 * (1 / model.per_unit_ms + log(1 - percentile / 100) / limit_ms)


@dataclass(frozen=True, kw_only=True, slots=True)
class Requests:
    """One entry per request in order of finish; seconds since the beginning of the run."""

    finished_s: Floats
    latencies_ms: Floats

    @property
    def succeeded(self) -> Bools:
        return np.ones(len(self.finished_s), dtype=bool)


class SimulatedService:
    """A service that was started at time 0 of its clock; each run begins when the one before has been answered."""

    def __init__(self, model: Model, seed: int) -> None:
        self.model = model
        self.now_s = 0.0
        self._random = np.random.default_rng(seed)
        self._next_stall_s: float = self._until_stall() if model.stall_ms else inf

    def open_loop(self, rate_per_minute: float, duration_s: float) -> Requests:
        """Sends Poisson arrivals for `duration_s`; all of them are answered, the last ones after its end."""
        arrived = self._arrivals(rate_per_minute / 60, duration_s)
        begin, work = self.now_s, np.concatenate([[0.0], np.cumsum(self.model.lengths(self._random, len(arrived)))])
        finished = self._serve((begin + arrived).tolist(), work.tolist()) - begin
        self.now_s = begin + max(duration_s, float(finished[-1]) if len(finished) else 0.0)
        return Requests(finished_s=finished, latencies_ms=(finished - arrived) * 1000)

    def probe(self, rate_per_minute: float, duration_s: float) -> Seen:
        """Runs `open_loop` as the probe of a capacity search."""
        run = self.open_loop(rate_per_minute, duration_s)
        intended = run.finished_s - run.latencies_ms / 1000
        return Seen(duration_s=duration_s, intended_s=intended, latencies_ms=run.latencies_ms)

    def closed_loop(self, joins_s: Sequence[float], duration_s: float) -> Requests:
        """Lets users join at `joins_s` (ascending) and stay until the end; requests then under way are left out."""
        model, waiting = self.model, deque[float]()
        joins = deque(self.now_s + join for join in joins_s)
        begin, end = self.now_s, self.now_s + duration_s
        sent: list[float] = []
        finished: list[float] = []
        free = begin
        while free < end and (waiting or joins):
            start = self._after_stalls(max(free, waiting[0] if waiting else joins[0]))
            while joins and joins[0] <= start:
                waiting.append(joins.popleft())
            batch = [waiting.popleft() for _ in range(min(model.max_batch, len(waiting)))]
            free = self._done(start, float(model.lengths(self._random, len(batch)).sum()))
            while joins and joins[0] <= free:
                waiting.append(joins.popleft())
            waiting.extend([free] * len(batch))
            sent += batch
            finished += [free] * len(batch)
        self.now_s = end
        in_time = np.array(finished) <= end
        at = np.array(finished)[in_time]
        return Requests(finished_s=at - begin, latencies_ms=(at - np.array(sent)[in_time]) * 1000)

    def _serve(self, arrived: list[float], work: list[float]) -> Floats:
        """Returns when each request is done, batch by batch. `work` is the running sum of the lengths from 0."""
        finished: list[float] = []
        sizes: list[int] = []
        first, count, free, most = 0, len(arrived), 0.0, self.model.max_batch
        while first < count:
            start = arrived[first] if arrived[first] > free else free
            if self._next_stall_s <= start:
                start = self._after_stalls(start)
            last = bisect_right(arrived, start, first + 1, min(first + most, count))
            free = self._done(start, work[last] - work[first])
            finished.append(free)
            sizes.append(last - first)
            first = last
        return np.repeat(np.array(finished), sizes)

    def _done(self, start: float, work: float) -> float:
        model = self.model
        duration = (model.fixed_ms + model.per_unit_ms * work) / 1000
        if model.cold_factor != 1.0 and start < 20 * model.cold_s:
            duration *= 1 + (model.cold_factor - 1) * exp(-start / model.cold_s)
        done = start + duration
        while self._next_stall_s < done:
            done += model.stall_ms / 1000
            self._next_stall_s += self._until_stall()
        return done

    def _after_stalls(self, start: float) -> float:
        """Returns when a batch that could begin at `start` begins: after stalls that began in idle time."""
        while self._next_stall_s <= start:
            start = max(start, self._next_stall_s + self.model.stall_ms / 1000)
            self._next_stall_s += self._until_stall()
        return start

    def _until_stall(self) -> float:
        return float(self._random.exponential(self.model.stall_every_s))

    def _arrivals(self, rate_per_s: float, duration_s: float) -> Floats:
        """Draws a Poisson process: a Poisson number of instants, each uniform in the time."""
        arrived: Floats = self._random.uniform(0, duration_s, self._random.poisson(rate_per_s * duration_s))
        arrived.sort()
        return arrived


def long_run_percentile_ms(
    model: Model, rate_per_minute: float, percentile: float, requests: int, seed: int
) -> tuple[float, float]:
    """Returns the percentile of a warm service at a fixed rate and its standard error, over ten runs."""
    warm = replace(model, cold_factor=1.0)
    runs = [
        SimulatedService(warm, seed + run).open_loop(rate_per_minute, requests / 10 / (rate_per_minute / 60))
        for run in range(10)
    ]
    percentiles = [float(np.percentile(run.latencies_ms, percentile)) for run in runs]
    return float(np.mean(percentiles)), float(np.std(percentiles, ddof=1) / np.sqrt(10))


def long_run_capacity_per_minute(
    model: Model, percentile: float, limit_ms: float, between: tuple[float, float], requests: int, seed: int
) -> float:
    """Returns the rate at which the percentile is the limit, by bisection of `long_run_percentile_ms` to 0.2 %."""
    low, high = between
    while high / low > 1.002:
        middle = sqrt(low * high)
        if long_run_percentile_ms(model, middle, percentile, requests, seed)[0] <= limit_ms:
            low = middle
        else:
            high = middle
    return sqrt(low * high)
