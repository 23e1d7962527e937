"""Estimates the behaviour with open arrivals from the periods of a closed-loop test: the flow-equivalent server. Pure.

Users of a closed loop slow down with the service, callers in production do not. Chandy, Herzog and Woo (IBM Journal of
Research and Development 19, 1975) replace a service by a queue whose rate of completions X(n) is the throughput of n
closed-loop users. With Poisson arrivals at a rate λ it is a birth-death process. An arrival finds n requests with

    p(n) / p(n - 1) = (λ / X(n)) ^ ((λ + X(n)) / (λ + J · X(n)))          X(n) = X(N) beyond the N users
    J = 1 + (I - 1) · λ / X(N)

I is the index of dispersion of the completions: the variance of their number over its mean, 1 for a Poisson process.
For other arrivals the ratio λ / X(n) is that of the same queue with exponential services (`MarkovArrivals.queue`), and
the exponent is (A · λ + X(n)) / (A · λ + J · X(n)) with their index of dispersion A.
With I ≠ 1 the queue decays in heavy traffic as the diffusion with the completions' variance (Newell, Applications of
Queueing Theory, 1982). I grows with the time over which it is counted. It is taken at the relaxation time of the queue,
(λ + I · X) / (X - λ)² (Whitt and You, Operations Research 66, 2018). So stalls and batches count.
Requests that come together are answered together. Over a time t that is short beside N / X(N), the latency of N users,
their completions come in batches, so I has (1 - 1 / A) · (X(N) / X(1) - 1) · exp(-t · X(N) / N) more if A > 1. This
term is ours: benchmarks/searches/estimate.py judges it.

An arrival that finds n < N requests takes as long as a request beside n other users. One that finds more waits until
N - 1 are left: an exponential time of the rate λ · (1 / r - 1) with the tail's ratio r (distributional Little's law:
Keilson and Servi, Operations Research Letters 7, 1988). For exponential services this is exact.

The interval has the error of the periods (their bootstrap at each number of users) and of the model.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import copysign, exp, hypot, inf, log
from statistics import NormalDist

import numpy as np

from inference_recommender.capacity.arrivals import MINUTE_S, SeenQueue, markov_arrivals
from inference_recommender.capacity.probe import Capacity
from inference_recommender.capacity.statistics import CONFIDENCE, Floats, Indices, Limit, isotonic
from inference_recommender.capacity.time_series import Series, series_findings
from workloads import POISSON, ArrivalProcess

Z = np.linspace(-4.0, 4.0, 161)
"""Normal scores at which a distribution of latencies is kept: from the 0.003th to the 99.997th percentile."""
WEIGHTS = np.exp(-(Z**2) / 2) / np.exp(-(Z**2) / 2).sum()
SHARES = np.array([NormalDist().cdf(z) for z in Z])
SATURATED = 0.9
"""Numbers of users with this share of the highest throughput count as equal, because the highest of several noisy rates
is biased. Their periods show the variance of a busy service."""
FEWEST_PERIODS, BRIEF_S = 5, 1.0
"""Fewer periods count as a Poisson process. The variance of longer periods builds up with time."""
MODEL_ERROR = 0.15
"""The model's share of the interval: its error on simulated services (test_flow_equivalent.py)."""
BURST_ERROR = 0.75
"""The same for other arrivals than Poisson, as a share of the logarithm of what they cost (benchmarks/searches). A test
without bursts does not show all that they cost, so a fleet is sized by `less_burst_error`."""
MOST_USERS = 10_000
"""Runs with more closed-loop users at one service are not valid."""
RESAMPLES, HALVINGS, ROUNDS = 50, 24, 20
"""After the halvings a rate or a latency is known to a ten-millionth of the range."""
STALLED = 0.2
"""A period with a larger share of its time in stalls of the machine is not clean."""
FEWEST_CLEAN, CLEAN_USERS = 1 / 3, 0.7
"""Only clean periods enter the estimate if this share of the periods is clean, up to this share of the most users."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Dispersion:
    """The variance of the number of completions over its mean, counted over a time."""

    over_s: float
    index: float

    def at(self, seconds: float) -> float:
        """Returns the index over `seconds`. The excess over a Poisson process builds up with time."""
        if self.index <= 1 or self.over_s <= BRIEF_S:
            return self.index
        return 1 + (self.index - 1) * min(seconds / self.over_s, 1.0)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class FlowEquivalentServer:
    """A queue with the throughput (per minute) and latencies of closed-loop users; arrays have a row for 1, …, N."""

    completions: Floats
    """X(n), never falling."""
    latencies_ms: Floats
    """Shape (N, len(Z)): the latency at each normal score of `Z`."""
    dispersion: Dispersion = Dispersion(over_s=1.0, index=1.0)
    arrivals: ArrivalProcess = POISSON

    @property
    def most(self) -> float:
        """The rate that no queue of arrivals can reach: what most users had."""
        return float(self.completions[-1])

    def late_share(self, rate: float, latency_ms: float, beside: Floats | None = None) -> float:
        """Returns the share of open arrivals at `rate` that take longer than `latency_ms`. `beside`: `_late_beside`."""
        if rate >= self.most:
            return 1.0
        found, waiting, wait_rates_per_ms = self._found(rate)
        left_ms = np.maximum(latency_ms - self.latencies_ms[-1], 0.0)
        late = self._late_beside(latency_ms) if beside is None else beside
        return float(found @ late + waiting @ np.exp(-np.outer(wait_rates_per_ms, left_ms)) @ WEIGHTS)

    def latency_ms(self, rate: float, percentile: float) -> float:
        """Returns the percentile of the latency of open arrivals at `rate`; infinite where the queue has no end."""
        if rate >= self.most:
            return inf
        allowed = 1 - percentile / 100
        low, high = float(self.latencies_ms[0, 0]), float(self.latencies_ms[-1, -1])
        while self.late_share(rate, high) > allowed:
            high *= 2
        return _bisected(low, high, lambda latency_ms: self.late_share(rate, latency_ms) > allowed)[1]

    def highest_rate(self, limit: Limit) -> float:
        """Returns the highest rate of open arrivals within the limit; 0 where none is, `most` without a limit."""
        limit_ms = limit.latency_ms
        if limit_ms is None:
            return self.most
        beside = self._late_beside(limit_ms)
        low, _ = _bisected(0.0, self.most, lambda rate: self.late_share(rate, limit_ms, beside) <= limit.allowed)
        return low if low > self.most * 1e-6 else 0.0

    def _found(self, rate: float) -> tuple[Floats, Floats, Floats]:
        """Returns the shares of arrivals that find 0 to N - 1 requests, and of those that find more with the rates of
        their waits, an entry for each geometric part of the queue.
        """
        queue, (of_arrivals, of_queue) = self._queue(rate), self._indices(rate)
        exponents = (of_arrivals * rate + self.completions) / (of_arrivals * rate + of_queue * self.completions)
        logs = np.concatenate([[0.0], np.cumsum(exponents * np.log(queue.steps))])
        ratios = queue.decays ** exponents[-1]
        weights = np.exp(logs - logs.max())
        waiting = queue.shares * weights[-1] / (1 - ratios)
        total = weights[:-1].sum() + waiting.sum()
        return weights[:-1] / total, waiting / total, self.most * queue.decays * (1 / ratios - 1) / 60_000

    def _queue(self, rate: float) -> SeenQueue:
        if self.arrivals == POISSON:
            steps = rate / self.completions
            return SeenQueue(steps=steps, shares=np.ones(1), decays=steps[-1:])
        return markov_arrivals(self.arrivals, rate, MINUTE_S).queue(self.completions)

    def _indices(self, rate: float) -> tuple[float, float]:
        """Returns A and J, of the indices of dispersion over the relaxation time of the queue."""
        most, of_arrivals, index = self.most, 1.0, self.dispersion.at(0.0)
        chain = None if self.arrivals == POISSON else markov_arrivals(self.arrivals, rate, MINUTE_S)
        for _ in range(ROUNDS):
            before = np.array([of_arrivals, index])
            minutes = float((of_arrivals * rate + index * most) / (most - rate) ** 2)
            of_arrivals = chain.dispersion(minutes) if chain else 1.0
            index = self.dispersion.at(minutes * 60) + self._of_batches(of_arrivals, minutes)
            if bool((np.abs(before - (of_arrivals, index)) < 0.01 * before).all()):
                break
        return of_arrivals, 1 + (index - 1) * rate / most

    def _of_batches(self, of_arrivals: float, minutes: float) -> float:
        """Returns what batches of requests that came together add to the index of dispersion over a time."""
        batch, latency = self.most / self.completions[0], len(self.completions) / self.most
        return float((1 - 1 / max(of_arrivals, 1.0)) * (batch - 1) * exp(-minutes / latency))

    def _late_beside(self, latency_ms: float) -> Floats:
        """Returns the share of requests over `latency_ms` at each number of users."""
        return np.array([1 - np.interp(latency_ms, row, SHARES, left=0.0, right=1.0) for row in self.latencies_ms])


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class SettledPeriods:
    """The settled periods of a closed-loop run; arrays have an entry per period."""

    users: Floats
    completed: Floats
    """Requests in the period."""
    latencies_ms: Floats
    """Shape (periods, len(Z))."""
    period_s: float

    def server(self) -> FlowEquivalentServer:
        levels = np.unique(self.users)
        of_level = np.searchsorted(levels, self.users)
        periods = np.bincount(of_level).astype(np.float64)
        means = isotonic(np.bincount(of_level, weights=self.completed) / periods, periods)
        busy = means >= SATURATED * means[-1]
        means[busy] = np.average(means[busy], weights=periods[busy])
        latencies = np.stack([_mixture(self.latencies_ms[of_level == level]) for level in range(len(levels))])
        every = np.arange(1.0, levels[-1] + 1)
        # Without a period of one user, its throughput is interpolated from 0.
        known_users = levels if levels[0] <= 1 else np.concatenate([[0.0], levels])
        known_means = means if levels[0] <= 1 else np.concatenate([[0.0], means])
        return FlowEquivalentServer(
            completions=np.interp(every, known_users, known_means) * 60 / self.period_s,
            latencies_ms=np.exp(np.stack([np.interp(every, levels, column) for column in np.log(latencies).T], axis=1)),
            dispersion=self._dispersion(means, of_level),
        )

    def estimate(self, limit: Limit, arrivals: ArrivalProcess = POISSON) -> Capacity:
        """Estimates the capacity for open arrivals. The interval has the error of the periods and `MODEL_ERROR`."""
        assert limit.latency_ms is not None
        server = self.server()
        rate = server.highest_rate(limit)
        resampled = [each.server().highest_rate(limit) for each in self._resampled()]
        low, high = np.percentile(resampled, [50 * (1 - CONFIDENCE), 50 * (1 + CONFIDENCE)])
        error, at_least = MODEL_ERROR, None
        if arrivals != POISSON:
            server = replace(server, arrivals=arrivals)
            share = server.highest_rate(limit) / max(rate, 1e-9)
            rate, low, high = rate * share, low * share, high * share
            error = hypot(MODEL_ERROR, BURST_ERROR * log(max(share, 1e-9)))
            at_least = less_burst_error(rate, share)
        return Capacity(
            basis="estimate",
            percentile=limit.name,
            limit_ms=limit.latency_ms,
            invocations_per_minute=rate,
            interval=(_end(rate, min(float(low), rate), -error), _end(rate, max(float(high), rate), error)),
            at_least=at_least,
            latency_ms=server.latency_ms(rate or server.most * 1e-6, limit.percentile),
        )

    def _dispersion(self, means: Floats, of_level: Indices) -> Dispersion:
        """Takes the variance of periods around the mean of their level, if possible where the service is busy."""
        expected = means[of_level]
        for chosen in (expected >= SATURATED * means[-1], np.ones(len(expected), dtype=np.bool_)):
            degrees = int(chosen.sum()) - len(np.unique(expected[chosen]))
            if degrees >= FEWEST_PERIODS:
                squares = (self.completed[chosen] - expected[chosen]) ** 2 / expected[chosen]
                return Dispersion(over_s=self.period_s, index=float(squares.sum()) / degrees)
        return Dispersion(over_s=self.period_s, index=1.0)

    def _resampled(self) -> "Iterator[SettledPeriods]":
        random = np.random.default_rng(0)
        members = [np.flatnonzero(self.users == level) for level in np.unique(self.users)]
        for _ in range(RESAMPLES):
            chosen = np.concatenate([random.choice(one, size=len(one)) for one in members])
            columns = {name: getattr(self, name)[chosen] for name in ("users", "completed", "latencies_ms")}
            yield replace(self, **columns)


def less_burst_error(rate: float, share: float) -> float:
    """Returns the rate of an estimate for bursty arrivals less its error. `share` is its part of Poisson's estimate."""
    return rate * float(min(share, 1.0) ** BURST_ERROR)


def _bisected(low: float, high: float, is_low: Callable[[float], bool]) -> tuple[float, float]:
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if is_low(middle) else (low, middle)
    return low, high


def _end(rate: float, by_periods: float, error: float) -> float:
    """Returns an end of the interval with the model's error beside that of the periods; the low one if `error` < 0."""
    if not (rate and by_periods):
        return by_periods
    return rate * exp(copysign(hypot(log(by_periods / rate), error), error))


def settled_periods(series: Series, latencies: Mapping[str, Sequence[float | None]]) -> SettledPeriods | None:
    """Returns the settled periods of a series of closed-loop users, with the percentiles of `latencies` by name, such
    as `series.latency_ms`; None where no period has users, requests and the percentiles.
    """
    names = sorted(latencies, key=lambda name: float(name[1:]))
    if not names:
        return None
    warm_up = series_findings(series, Limit(percentile=float(names[-1][1:]), latency_ms=None)).warm_up_s or 0.0
    whole = slice(1, -1) if len(series.seconds) > 2 else slice(None)
    stalled = [seconds or 0.0 for seconds in series.stalled_s] or [0.0] * len(series.seconds)
    columns = (stalled, series.users, series.invocations, *(latencies[name] for name in names))
    rows = [
        row
        for second, *row in zip(series.seconds[whole], *(column[whole] for column in columns), strict=True)
        if None not in row and row[1] >= 1 and row[2] > 0 and second >= warm_up + series.seconds[whole][0]
    ]
    known = np.array(rows, dtype=np.float64).reshape(-1, 3 + len(names))
    known = known[np.isfinite(known).all(axis=1) & (known[:, 1] <= MOST_USERS)]
    if not len(known):
        return None
    clean = known[:, 0] <= STALLED * series.period_s
    if clean.mean() >= FEWEST_CLEAN and known[clean, 1].max() >= CLEAN_USERS * known[:, 1].max():
        known = known[clean]
    known = known[:, 1:]
    scores = [NormalDist().inv_cdf(float(name[1:]) / 100) for name in names]
    return SettledPeriods(
        users=np.round(known[:, 0]),
        completed=known[:, 1],
        latencies_ms=np.stack([_distribution(scores, row) for row in np.maximum(known[:, 2:], 1e-3)]),
        period_s=float(series.period_s),
    )


def model_latencies(series: Series, name: str) -> Mapping[str, Sequence[float | None]]:
    """Returns the model latency by percentile: the one called `name` ("p99") as the endpoint's own metric has it, the
    others as the client's, in the same proportion; nothing where the metric has none.
    """
    if name not in series.model_latency_ms:
        return {}
    known, columns = series.model_latency_ms[name], series.latency_ms
    clients = columns.get(name, known)
    shares = [model / client if model and client else None for model, client in zip(known, clients, strict=True)]
    lower = {
        other: tuple(value and share and value * share for value, share in zip(column, shares, strict=True))
        for other, column in columns.items()
        if float(other[1:]) < float(name[1:])
    }
    return {**lower, name: known}


def _distribution(scores: Sequence[float], latencies_ms: Floats) -> Floats:
    """Returns the latency at each score of `Z`, by straight lines in the logarithm of the latency."""
    logs = np.maximum.accumulate(np.log(latencies_ms))
    if len(logs) == 1:
        return np.full(len(Z), float(np.exp(logs[0])))
    values: Floats = np.interp(Z, scores, logs)
    for beyond, near, next_to in ((scores[-1] < Z, -1, -2), (scores[0] > Z, 0, 1)):
        slope = (logs[near] - logs[next_to]) / (scores[near] - scores[next_to])
        values[beyond] = logs[near] + slope * (Z[beyond] - scores[near])
    latencies: Floats = np.exp(values)
    return latencies


def _mixture(latencies_ms: Floats) -> Floats:
    """Returns the distribution of requests that may be of any of the rows."""
    order = np.argsort(latencies_ms, axis=None)
    weights = np.tile(WEIGHTS, len(latencies_ms))[order] / len(latencies_ms)
    below = np.cumsum(weights) - weights / 2
    mixed: Floats = np.interp(SHARES, below, latencies_ms.ravel()[order])
    return mixed
