"""A service that answers requests in virtual time and whose true capacity is known, for searches and proofs.

Requests wait in one queue. A free one of `workers` takes a batch from its head, as Triton's dynamic batcher does: all
that waits, at most `max_batch`, as soon as that many wait or the oldest request has waited for `queue_delay_ms`. A
batch takes

    (fixed_ms + per_unit_ms * sum of its requests' lengths) * (1 + contention * (other busy workers)) * noise * drift

- lengths are random: four in five of `BIMODAL` are 1 and the others 4; those of `EXPONENTIAL` have mean 1;
- noise is log-normal for each batch, of mean 1 and deviation `jitter`; `slow_share` of them take `slow_factor` times;
- drift is other work on the machine: the exponential of an Ornstein-Uhlenbeck process (`drift`, `drift_s`);
- a service just started is `cold_factor` times slower, which decays exponentially with `cold_s`;
- at one instant in `stall_every_s`, a Poisson process, all workers stop for `stall_ms`, exponential if `stalls_vary`.

The capacity of `MM1`, an M/M/1 queue, under a limit L is mu + ln(1 - q) / L. Long runs give the others. All is seeded.
"""

from bisect import bisect_right, insort
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from heapq import heapreplace
from math import exp, inf, log, sqrt

import numpy as np
import numpy.typing as npt

from inference_recommender.capacity.arrivals import arrival_times
from inference_recommender.capacity.probe import ProbeRecords
from workloads import POISSON, ArrivalProcess

Floats = npt.NDArray[np.float64]
Lengths = Callable[[np.random.Generator, int], Floats]

DRAWN_AT_ONCE = 1024
DRIFT_STEP_S = 0.5
WARM_AFTER = 20
"""Multiples of `cold_s` after which a service is warm."""
FIRST_PHASE_S = 30.0
"""Seconds left out of a long run: an idle service's queue fills up in them."""
TO_LOOK, CLOSE = 100_000, 1.02
AROUND = (0.955, 0.97, 0.985, 1.0, 1.01, 1.02, 1.03)


def BIMODAL(random: np.random.Generator, count: int) -> Floats:  # noqa: N802 - a constant that is a function
    return np.where(random.random(count) < 0.8, 1.0, 4.0)


def EXPONENTIAL(random: np.random.Generator, count: int) -> Floats:  # noqa: N802
    return random.exponential(1.0, count)


@dataclass(frozen=True, kw_only=True, slots=True)
class Service:
    """The parameters of a service; the module's docstring says what they do."""

    workers: int = 1
    max_batch: int = 8
    queue_delay_ms: float = 0.0
    fixed_ms: float = 4.0
    per_unit_ms: float = 0.5
    lengths: Lengths = BIMODAL
    contention: float = 0.0
    jitter: float = 0.0
    slow_share: float = 0.0
    slow_factor: float = 1.0
    drift: float = 0.0
    drift_s: float = 20.0
    stall_ms: float = 0.0
    stall_every_s: float = 10.0
    stalls_vary: bool = False
    cold_factor: float = 1.0
    cold_s: float = 1.0


BATCHING = Service()
STALLING = Service(stall_ms=40.0)
COLD = Service(stall_ms=40.0, cold_factor=5.0, cold_s=4.0)
MM1 = Service(max_batch=1, fixed_ms=0.0, per_unit_ms=4.0, lengths=EXPONENTIAL)
NOISY = Service(
    fixed_ms=1.6,
    per_unit_ms=0.7,
    jitter=0.25,
    slow_share=0.003,
    slow_factor=5.0,
    drift=0.03,
    stall_ms=12.0,
    stall_every_s=1.0,
    stalls_vary=True,
    cold_factor=3.0,
    cold_s=2.0,
)
"""Like a Triton that corrects spelling on a few shared cores: batches, stalls, and a machine with other work."""
SERVICES = {"batching": BATCHING, "stalling": STALLING, "M/M/1": MM1, "noisy": NOISY}


def mm1_capacity_per_minute(service: Service, percentile: float, limit_ms: float) -> float:
    """Returns the capacity of an M/M/1 queue, exactly."""
    return 60_000 * (1 / service.per_unit_ms + log(1 - percentile / 100) / limit_ms)


@dataclass(frozen=True, kw_only=True, slots=True)
class Requests:
    """Times in seconds since the beginning of a run, an entry per request in order of sending."""

    sent_s: Floats
    finished_s: Floats

    @property
    def latencies_ms(self) -> Floats:
        return (self.finished_s - self.sent_s) * 1000


class SimulatedService:
    """A service that was started at time 0 of its clock; each run begins when the one before has been answered."""

    def __init__(self, service: Service, seed: int, arrivals: ArrivalProcess = POISSON) -> None:
        self.service, self.arrivals = service, arrivals
        self.now_s = 0.0
        self.requests = 0
        """Number of requests answered in all runs."""
        self._random = np.random.default_rng(seed)
        self._noise: list[float] = []
        self._drift = Drift(service, self._random)
        self._stalls = Stalls(service, self._random)

    def open_loop(self, rate_per_minute: float, duration_s: float) -> Requests:
        """Sends arrivals for `duration_s`; all of them are answered, the last ones after its end."""
        rate_per_s = rate_per_minute / 60
        if self.arrivals == POISSON:  # the draws of the published figures
            sent = np.sort(self._random.uniform(0, duration_s, self._random.poisson(rate_per_s * duration_s)))
        else:
            sent = arrival_times(self.arrivals, rate_per_s, duration_s, self._random)
        return self.scheduled(sent, duration_s)

    def scheduled(self, sent_s: Floats, duration_s: float) -> Requests:
        """Sends requests at the times given, in ascending order; the next run begins after `duration_s` or later."""
        begin = self.now_s
        arrived = (sent_s + begin).tolist()
        finished = self._serve(arrived, inf, None)
        self.now_s = max(begin + duration_s, float(finished.max(initial=0.0)))
        return Requests(sent_s=sent_s, finished_s=finished - begin)

    def closed_loop(self, joins_s: Sequence[float], duration_s: float, think_ms: float = 0.0) -> Requests:
        """Lets users join at `joins_s` (ascending), who send again `think_ms` after each answer until the end; open
        requests are left out.
        """
        begin, end = self.now_s, self.now_s + duration_s
        arrived = [begin + join for join in joins_s]
        finished = self._serve(arrived, end, think_ms / 1000)
        self.now_s = end
        sent, in_time = np.array(arrived[: len(finished)]), finished <= end
        return Requests(sent_s=sent[in_time] - begin, finished_s=finished[in_time] - begin)

    def probe(self, rate_per_minute: float, duration_s: float) -> ProbeRecords:
        """Runs `open_loop` as the probe of a capacity search."""
        run = self.open_loop(rate_per_minute, duration_s)
        return ProbeRecords(duration_s=duration_s, intended_s=run.sent_s, latencies_ms=run.latencies_ms)

    def _serve(self, arrived: list[float], end: float, think_s: float | None) -> Floats:
        """Returns when each request is done, batch by batch, up to the first batch that would start after `end`.

        `arrived` ascends. With `think_s`, each answer adds an arrival that many seconds later.
        """
        service, stalls, most = self.service, self._stalls, self.service.max_batch
        delay_s = service.queue_delay_ms / 1000
        noisy, drifting = bool(service.jitter or service.slow_share), bool(service.drift)
        free = [0.0] * service.workers
        work: list[float] = [0.0]
        finished: list[float] = []
        sizes: list[int] = []
        first = 0
        while first < len(arrived):
            start = arrived[first] if arrived[first] > free[0] else free[0]
            if delay_s:
                filled = arrived[first + most - 1] if first + most - 1 < len(arrived) else inf
                start = max(start, min(arrived[first] + delay_s, filled))
            if start >= stalls.next_s:
                start = stalls.after(start)
            last = bisect_right(arrived, start, first + 1, min(first + most, len(arrived)))
            if start > end:
                break
            while len(work) <= last:
                lengths = service.lengths(self._random, max(DRAWN_AT_ONCE, len(arrived) - len(work)))
                work.extend((np.cumsum(lengths) + work[-1]).tolist())
            duration = (service.fixed_ms + service.per_unit_ms * (work[last] - work[first])) / 1000
            if service.contention:
                duration *= 1 + service.contention * sum(other > start for other in free)
            if noisy:
                duration *= self._next_noise()
            if drifting:
                duration *= self._drift.at(start)
            if service.cold_factor != 1.0 and start < WARM_AFTER * service.cold_s:
                duration *= 1 + (service.cold_factor - 1) * exp(-start / service.cold_s)
            done = start + duration
            if done > stalls.next_s:
                done = stalls.until_done(done)
            heapreplace(free, done)
            finished.append(done)
            sizes.append(last - first)
            if think_s is not None:
                for _ in range(first, last):
                    insort(arrived, done + think_s, last)
            first = last
        self.requests += first
        return np.repeat(np.array(finished), np.array(sizes, dtype=np.intp))

    def _next_noise(self) -> float:
        if not self._noise:
            service, random = self.service, self._random
            drawn = np.exp(random.normal(-(service.jitter**2) / 2, service.jitter, DRAWN_AT_ONCE))
            drawn[random.random(DRAWN_AT_ONCE) < service.slow_share] *= service.slow_factor
            self._noise = drawn.tolist()
        return self._noise.pop()


class Drift:
    """How slow the machine is; it is asked at times that never go back."""

    def __init__(self, service: Service, random: np.random.Generator) -> None:
        self._deviation = service.drift
        self._kept = exp(-DRIFT_STEP_S / service.drift_s)
        self._random = random
        self._until_s = DRIFT_STEP_S
        self._log = float(random.normal(0.0, service.drift)) if service.drift else 0.0
        self._factor = exp(self._log)

    def at(self, now_s: float) -> float:
        """Returns the factor that batches take longer by."""
        if now_s >= self._until_s:
            steps = int((now_s - self._until_s) / DRIFT_STEP_S) + 1
            kept = self._kept**steps
            self._log = kept * self._log + float(self._random.normal(0.0, self._deviation * sqrt(1 - kept * kept)))
            self._until_s += steps * DRIFT_STEP_S
            self._factor = exp(self._log)
        return self._factor


class Stalls:
    """The times in which no worker does anything; batches ask in order of their start."""

    def __init__(self, service: Service, random: np.random.Generator) -> None:
        self._times = self._draw(service, random)
        self._known = deque[tuple[float, float]]()
        """Beginning and end of stalls from the first that is not known to be over."""
        self.next_s = self._nth(0)[0]

    def after(self, start: float) -> float:
        """Returns `start`, or the end of the stalls that it is in."""
        while self._nth(0)[0] <= start:
            start = max(start, self._known.popleft()[1])
        self.next_s = self._known[0][0]
        return start

    def until_done(self, done: float) -> float:
        """Returns when a batch is done that has begun, and would be done at `done` without stalls."""
        place = 0
        while (stall := self._nth(place))[0] < done:
            done += stall[1] - stall[0]
            place += 1
        return done

    def _nth(self, place: int) -> tuple[float, float]:
        while place >= len(self._known):
            self._known.append(next(self._times))
        return self._known[place]

    def _draw(self, service: Service, random: np.random.Generator) -> Iterator[tuple[float, float]]:
        until_s = 0.0
        while service.stall_ms:
            begins = until_s + random.exponential(service.stall_every_s, DRAWN_AT_ONCE // 16).cumsum()
            lasts = random.exponential(size=len(begins)) if service.stalls_vary else np.ones(len(begins))
            yield from zip(begins.tolist(), (begins + service.stall_ms / 1000 * lasts).tolist(), strict=True)
            until_s = float(begins[-1])
        yield inf, inf


def true_capacity_per_minute(
    service: Service,
    percentile: float,
    limit_ms: float,
    requests: int = 4_000_000,
    seed: int = 0,
    arrivals: ArrivalProcess = POISSON,
) -> float:
    """Returns the rate at which the long run's percentile is the limit, of a warm service.

    A bisection by runs of `TO_LOOK` requests finds a rate within `CLOSE`. A parabola through the logarithms of the
    shares of late requests in long runs, at `AROUND` times that rate and of `requests` in all, is then solved for the
    share allowed.
    """
    warm, allowed = replace(service, cold_factor=1.0), 1 - percentile / 100

    def late_share(rate: float, count: float, seed: int) -> float:
        run = SimulatedService(warm, seed, arrivals).open_loop(rate, FIRST_PHASE_S + count / (rate / 60))
        late = run.latencies_ms[run.sent_s > FIRST_PHASE_S] > limit_ms
        return float((late.sum() + 0.5) / (len(late) + 1))

    low = high = 600.0
    while late_share(low, TO_LOOK, seed) >= allowed:
        low, high = low / 2, low
    while late_share(high, TO_LOOK, seed) < allowed:
        low, high = high, 2 * high
    while high / low > CLOSE:
        middle = sqrt(low * high)
        low, high = (middle, high) if late_share(middle, TO_LOOK, seed) < allowed else (low, middle)
    rates = sqrt(low * high) * np.array(AROUND)
    shares = [late_share(rate, requests / len(AROUND), seed + 1 + place) for place, rate in enumerate(rates)]
    for degree in (2, 1):  # noise may leave a parabola without a root
        roots = np.polynomial.Polynomial.fit(np.log(rates), np.log(shares) - log(allowed), degree).roots()
        if len(real := roots[np.isreal(roots)].real):
            break
    return exp(float(real[np.argmin(np.abs(real - log(sqrt(low * high))))]))
