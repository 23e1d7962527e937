"""Arrival processes: times of requests at a mean rate, and the Markov chain that a queue sees. Pure.

Gamma and Weibull processes have independent gaps. A Markov-modulated process has two rates, which take turns after
exponential times of the same mean. An on-off process has bursts and pauses of exponential length, and arrives as a
Poisson process in a burst. A replay has the gaps of recorded time stamps, scaled to the rate.

A Markovian arrival process (Neuts, Journal of Applied Probability 16, 1979) has the rates `quiet` between its phases
without an arrival and `arriving` with one. Modulated processes are such processes. Gaps with a CV above 1 are a mixture
of exponential ones with the same moments (Gauss quadrature: Golub and Welsch, Mathematics of Computation 23, 1969).
Gaps with a CV below 1 are a mixture of Erlang ones with two equal moments (Tijms, Stochastic Models, 1994, 358).
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil, gamma, sqrt

import numpy as np

from inference_recommender.capacity.statistics import Floats
from workloads import POISSON, ArrivalProcess, UsageError
from workloads.objective import PROCESS_KEYS

MIXED = 8
"""Exponential gaps in a mixture. Its first fifteen moments are those of the process."""
MINUTE_S = 60.0
CONVERGED = 1e-13
FEWEST = 1e-12
"""Shares below this count as zero."""
LEAST_CV, MOST_CV, MOST_DISPERSION, LEAST_DISPERSION = 0.2, 8.0, 1000.0, 1e-3
"""Bounds of what a fit tries."""
PER_KEY = 0.02
"""A process with one more parameter has to be nearer by this distance."""
FIT_GAPS, FIT_WINDOWS, FIT_LENGTHS, FIT_STEPS = 5, 30, 12, 60
"""Shortest window in gaps, longest as a part of the recording, number of windows, and processes tried of each kind."""


@dataclass(frozen=True, slots=True, eq=False)
class MarkovArrivals:
    """A Markovian arrival process; rates are in the unit of the rate that made it."""

    quiet: Floats
    """Shape (phases, phases). Its diagonal makes the rows of quiet + arriving sum to 0."""
    arriving: Floats

    def in_phases(self) -> Floats:
        """Returns the share of the time in each phase."""
        whole = (self.quiet + self.arriving).T.copy()
        whole[-1] = 1.0
        return np.linalg.solve(whole, np.eye(len(whole))[-1])

    def dispersion(self, over: float) -> float:
        """Returns the index of dispersion of the count over a time: its variance over its mean."""
        shares, ones = self.in_phases(), np.ones(len(self.quiet))
        rate = float(shares @ self.arriving @ ones)
        values, right = np.linalg.eig(self.quiet + self.arriving)
        left = (shares @ self.arriving @ right) * (np.linalg.inv(right) @ self.arriving @ ones)
        total = 0.0
        for value, weight in zip(values, left, strict=True):
            if abs(value) > rate * 1e-9 and abs(value) * over > 1e-9:
                total += float((weight * (np.expm1(value * over) / value - over) / value).real)
        return 1 + 2 * total / (rate * over)

    def queue(self, served: Floats) -> "SeenQueue":
        """Returns the queue that arrivals find at a service which completes `served[n - 1]` requests with n in it.

        A quasi-birth-death process, solved by linear level reduction (Gaver, Jacobs and Latouche, Advances in Applied
        Probability 16, 1984). Beyond the last entry the rate is the last one.
        """
        ones, identity, last = np.ones(len(self.quiet)), np.eye(len(self.quiet)), float(served[-1])
        ratio = self._ratio(last)
        up = [ratio]
        for rate in served[-2::-1]:
            last, before = float(rate), last
            up.append(self.arriving @ np.linalg.inv(last * identity - self.quiet - before * up[-1]))
        balance = (self.quiet + last * up[-1]).T.copy()
        balance[-1] = 1.0
        level = np.linalg.solve(balance, identity[-1])
        level /= level @ self.arriving @ ones
        steps: list[float] = []
        for step in reversed(up):
            level = level @ step
            steps.append(float(level @ self.arriving @ ones))
            level /= steps[-1]
        values, right = np.linalg.eig(ratio)
        shares = ((level @ right) * (np.linalg.inv(right) @ self.arriving @ ones)).real
        kept = shares > FEWEST
        return SeenQueue(steps=np.array(steps), shares=shares[kept], decays=values.real[kept])

    def _ratio(self, served: float) -> Floats:
        """Returns the matrix R between levels of one rate, by logarithmic reduction (Latouche and Ramaswami, Journal of
        Applied Probability 30, 1993).
        """
        identity = np.eye(len(self.quiet))
        inside = np.linalg.inv(served * identity - self.quiet)
        higher, lower = inside @ self.arriving, inside * served
        first, so_far = lower, higher
        while np.abs(so_far).max() > CONVERGED:
            inverse = np.linalg.inv(identity - higher @ lower - lower @ higher)
            higher, lower = inverse @ higher @ higher, inverse @ lower @ lower
            first, so_far = first + so_far @ lower, so_far @ higher
        return self.arriving @ np.linalg.inv(served * identity - self.quiet - self.arriving @ first)


@dataclass(frozen=True, slots=True, eq=False)
class SeenQueue:
    """The requests that arrivals find at a service."""

    steps: Floats
    """The share of arrivals that find n over those that find n - 1, for n from 1 to the number of rates."""
    shares: Floats
    """The parts of the last of these shares that decay geometrically, each in its own ratio."""
    decays: Floats


def markov_arrivals(process: ArrivalProcess, rate: float, unit_s: float = 1.0) -> MarkovArrivals:
    """Returns a process at a mean rate for each `unit_s` seconds. A replay has no such process: fit one."""
    if process.process in ("gamma", "weibull"):
        chain = _mixed_gaps(process) if (process.cv or 1.0) > 1 else _regular_gaps(process.cv or 1.0)
        return MarkovArrivals(chain.quiet * rate, chain.arriving * rate)
    assert process.process != "replay", "a replay is fitted first"
    if process.process == "poisson":
        return MarkovArrivals(np.array([[-rate]]), np.array([[rate]]))
    rates, means_s = _modulation(process, rate / unit_s)
    leaves = [unit_s / each for each in means_s]
    arriving = np.diag(rates) * unit_s
    return MarkovArrivals(np.array([[-leaves[0], leaves[0]], [leaves[1], -leaves[1]]]) - arriving, arriving)


def memory_s(process: ArrivalProcess) -> float:
    """Returns the mean seconds of a burst and its pause, after which arrivals are nearly independent; else 0."""
    return (process.burst_s or 0.0) + (process.pause_s or process.burst_s or 0.0)


def _modulation(process: ArrivalProcess, per_s: float) -> tuple[tuple[float, float], tuple[float, float]]:
    """Returns the two rates a second, and the mean seconds of each.

    The index of dispersion of rates r1 and r2 of mean length t is 1 + t (r1 - r2)² / 4 / mean rate (Fischer and
    Meier-Hellstern, Performance Evaluation 18, 1993). Where it needs a negative rate, bursts are longer.
    """
    burst_s = process.burst_s or 0.0
    if process.process == "on-off":
        pause_s = process.pause_s or 0.0
        return (per_s * (burst_s + pause_s) / burst_s, 0.0), (burst_s, pause_s)
    excess = (process.dispersion or 1.0) - 1
    burst_s = max(burst_s, excess / per_s)
    half = sqrt(excess * per_s / burst_s)
    return (per_s + half, max(per_s - half, 0.0)), (burst_s, burst_s)


def _mixed_gaps(process: ArrivalProcess) -> MarkovArrivals:
    """Returns gaps of mean 1 as a mixture of exponential ones, which have the process's moments over k!."""
    moment = _moments(process)
    moments = [moment(k) / gamma(k + 1) for k in range(2 * MIXED + 1)]
    upper = np.linalg.cholesky(np.array([moments[k : k + MIXED + 1] for k in range(MIXED + 1)])).T
    ratios = np.append(0.0, np.diag(upper, 1)[:MIXED] / np.diag(upper)[:MIXED])
    beside = np.diag(upper)[1:MIXED] / np.diag(upper)[: MIXED - 1]
    means, vectors = np.linalg.eigh(np.diag(np.diff(ratios)) + np.diag(beside, 1) + np.diag(beside, -1))
    leaves = 1 / np.maximum(means, 1e-9)
    return MarkovArrivals(-np.diag(leaves), np.outer(leaves, vectors[0] ** 2))


def _regular_gaps(cv: float) -> MarkovArrivals:
    """Returns gaps of mean 1 that have k or, with some probability, k - 1 exponential stages."""
    stages = ceil(1 / cv**2 - 1e-9)
    fewer = (stages * cv**2 - sqrt(stages * (1 + cv**2) - (stages * cv) ** 2)) / (1 + cv**2) if stages > 1 else 0.0
    leaves = stages - fewer
    quiet = leaves * (np.diag(np.ones(stages - 1), 1) - np.eye(stages))
    arriving = np.zeros((stages, stages))
    arriving[-1, :2] = leaves * np.array([1 - fewer, fewer])[:stages]
    return MarkovArrivals(quiet, arriving)


def _moments(process: ArrivalProcess) -> Callable[[int], float]:
    """Returns the moments of the gaps, of mean 1."""
    if process.process == "gamma":
        shape = 1 / (process.cv or 1.0) ** 2
        return lambda k: float(np.prod((shape + np.arange(k)) / shape))
    shape = weibull_shape(process.cv or 1.0)
    return lambda k: gamma(1 + k / shape) / gamma(1 + 1 / shape) ** k


def weibull_shape(cv: float) -> float:
    """Returns the shape of a Weibull distribution with that coefficient of variation."""
    from scipy.optimize import brentq  # takes a while to import, and other processes do without

    return float(brentq(lambda shape: gamma(1 + 2 / shape) / gamma(1 + 1 / shape) ** 2 - 1 - cv**2, 0.1, 10.0))


def arrival_times(
    process: ArrivalProcess,
    rate_per_s: float,
    duration_s: float,
    random: np.random.Generator,
    stamps_s: Floats | None = None,
) -> Floats:
    """Returns the seconds at which requests arrive before `duration_s`, ascending. A replay needs its `stamps_s`."""
    if process.process == "replay":
        assert stamps_s is not None
        return replayed(stamps_s, rate_per_s, duration_s, random)[0]
    if process.process in ("markov-modulated", "on-off"):
        return _modulated(process, rate_per_s, duration_s, random)
    expected = rate_per_s * duration_s
    times = np.zeros(0)
    while not len(times) or times[-1] < duration_s:
        # Five standard deviations above the expected number: one draw is nearly always enough.
        gaps = _gaps(process, random, int(expected + 5 * (process.cv or 1.0) * sqrt(expected) + 16)) / rate_per_s
        times = np.concatenate([times, (times[-1] if len(times) else 0.0) + np.cumsum(gaps)])
    return times[times < duration_s]


def _gaps(process: ArrivalProcess, random: np.random.Generator, count: int) -> Floats:
    """Returns independent gaps of mean 1."""
    cv = process.cv or 1.0
    if process.process == "gamma":
        return random.gamma(1 / cv**2, cv**2, count)
    if process.process == "weibull":
        shape = weibull_shape(cv)
        return random.weibull(shape, count) / gamma(1 + 1 / shape)
    return random.exponential(1.0, count)


def _modulated(process: ArrivalProcess, rate_per_s: float, duration_s: float, random: np.random.Generator) -> Floats:
    rates, means_s = _modulation(process, rate_per_s)
    phase = int(random.random() >= means_s[0] / sum(means_s))
    start_s, parts = 0.0, []
    while start_s < duration_s:
        length_s = random.exponential(means_s[phase])
        part = random.uniform(start_s, start_s + length_s, random.poisson(rates[phase] * length_s))
        parts.append(np.sort(part))
        start_s, phase = start_s + length_s, 1 - phase
    times = np.concatenate(parts)
    return times[times < duration_s]


def replayed(stamps_s: Floats, rate_per_s: float, duration_s: float, random: np.random.Generator) -> tuple[Floats, int]:
    """Returns a stretch of the stamps from a random moment on, and the index of its first one.

    Raises `UsageError` if the stamps are too short.
    """
    length_s = check_length(stamps_s, rate_per_s, duration_s)
    times: Floats = (stamps_s - stamps_s[0]) * (length_s / (stamps_s[-1] - stamps_s[0]))
    times = times - random.uniform(0.0, length_s - duration_s)
    first, last = np.searchsorted(times, [0.0, duration_s])
    return times[first:last], int(first)


def check_length(stamps_s: Floats, rate_per_s: float, duration_s: float) -> float:
    """Returns the seconds that recorded arrivals last at a rate. Raises `UsageError` if `duration_s` is longer."""
    length_s = (len(stamps_s) - 1) / rate_per_s
    if length_s < duration_s:
        raise UsageError(
            f"The recorded arrivals last {length_s:,.0f} s at {rate_per_s * 60:,.0f} requests/min, but "
            f"{duration_s:,.0f} s are to be sent. Record for longer, or send for a shorter time."
        )
    return length_s


@dataclass(frozen=True, kw_only=True, slots=True)
class Fit:
    """The arrival process that fits recorded time stamps."""

    process: ArrivalProcess
    rate_per_s: float
    cv: float
    """Coefficient of variation of the gaps."""
    windows_s: tuple[float, ...]
    dispersion: tuple[float, ...]
    """Index of dispersion of the stamps' count in windows of each length."""
    fitted: tuple[float, ...]
    """The same of the process."""
    distance: float
    """Root mean square of the logarithms of their ratios."""


def fit(stamps_s: Floats) -> Fit:
    """Fits the process whose index of dispersion is nearest to that of the stamps in windows of many lengths."""
    length_s, gaps = float(stamps_s[-1] - stamps_s[0]), np.diff(stamps_s)
    rate, cv = len(gaps) / length_s, float(gaps.std() / gaps.mean())
    windows_s = np.geomspace(FIT_GAPS / rate, max(length_s / FIT_WINDOWS, 2 * FIT_GAPS / rate), FIT_LENGTHS)
    counted = [_dispersion(stamps_s - stamps_s[0], window, length_s) for window in windows_s]
    seen = np.maximum(counted, LEAST_DISPERSION)

    def judged(process: ArrivalProcess) -> Fit:
        chain = markov_arrivals(process, rate)
        fitted = np.array([chain.dispersion(window) for window in windows_s])
        return Fit(
            process=process,
            rate_per_s=rate,
            cv=cv,
            windows_s=tuple(windows_s.tolist()),
            dispersion=tuple(seen.tolist()),
            fitted=tuple(fitted.tolist()),
            distance=float(np.sqrt(np.mean(np.log(fitted / seen) ** 2))),
        )

    tried = [POISSON]
    for name in ("gamma", "weibull"):
        tried += [ArrivalProcess(process=name, cv=float(each)) for each in np.geomspace(LEAST_CV, MOST_CV, FIT_STEPS)]
    for burst_s in np.geomspace(windows_s[0], windows_s[-1], FIT_STEPS):
        grown = 1 - (1 - np.exp(-2 * windows_s / burst_s)) / (2 * windows_s / burst_s)
        excess = float((grown / seen**2 * (seen - 1)).sum() / (grown**2 / seen**2).sum())
        if excess > 0:
            dispersion = min(1 + excess, MOST_DISPERSION)
            tried.append(ArrivalProcess(process="markov-modulated", dispersion=dispersion, burst_s=float(burst_s)))
    return min(map(judged, tried), key=lambda each: each.distance + PER_KEY * len(PROCESS_KEYS[each.process.process]))


def _dispersion(times_s: Floats, window_s: float, length_s: float) -> float:
    counts = np.bincount((times_s / window_s).astype(np.intp))[: int(length_s / window_s)]
    return float(counts.var() / counts.mean())
