"""Searches the highest rate of arrivals at which a service keeps a latency limit. Pure: a `Probe` is its one port.

Requests arrive in an open loop, as a Poisson process whatever the answers do, and latency counts from the intended
send, so that an overloaded service cannot slow down its own measurement (coordinated omission).

1. The start rate is kept up until the service has warmed up (`warm_up`).
2. Probes of a few seconds quadruple the rate (or quarter it) until one is over the limit and the one below is not.
3. The rate between is interpolated, rate and latency in logarithms, by regula falsi with the Illinois rule (Dowell and
   Jarratt, BIT 11, 1971), kept off the ends, until the bracket is narrow enough for a straight line.
4. Then a line is fitted to the late requests of all probes near the limit (`late_share_regression`), and probes are
   added a little below and a little above the rate at which it reaches what the percentile allows, until the capacity
   is known well enough. No single probe decides, so that probing often is no way to pass.
5. The capacity is that rate, or the lower one at which a percentile `MARGIN` over the limit can be excluded with 95 %
   confidence: noise makes the result smaller, never larger.

On simulated services of known capacity (tests/inference_recommender/capacity/test_search.py) the result is within 5 %
for at least 95 of a hundred seeds, and its true percentile is more than 10 % over the limit for at most 5; the interval
covers the truth for 86 to 96. It assumes that the service stays as fast as it is now, and knows no other machine.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from math import exp, log, sqrt

import numpy as np

from inference_recommender.capacity.closed_loop import CONFIDENCE, MARGIN, Limit
from inference_recommender.capacity.late_share_regression import RateAtLimit, late_share_regression
from inference_recommender.capacity.levels import Indices, per_block, warm_up_s
from inference_recommender.capacity.statistics import Floats

RESOLUTION = 0.03
"""Half the interval over the capacity, at which the search ends."""
ACCEPTABLE = 0.10
"""The same where the search ended before: a capacity less sure is not reported."""
STRETCH = 1.15
"""Widening that corrects for optional stopping; from simulation."""
NARROW = 1.15
"""The bracket in which the logarithm of the late share is nearly a straight line."""
SATURATED = 0.3
"""A probe with a larger share of late requests is beyond the straight line."""
EPISODES = 15
"""The fewest blocks with late requests: from fewer, an interval only seems narrow."""
APART = 0.4
NEAREST, FARTHEST = 0.02, 0.06
"""Share of the capacity by which probes are added below and above it, within these ends: chosen so that the late
share differs by a factor of e^APART."""
NEAR = (4.0, 2.5)
"""Multiples of that distance, below and above, within which probes are fitted: above, the queue soon has no end."""
FAR_OFF = log(10)
"""A latency more than ten times over or under the limit counts as ten times."""
FACTOR = 4.0
"""Step of the rate while the limit is not yet bracketed."""
GLANCE_S, GLANCE_REQUESTS, LONGEST_GLANCE_S = 5.0, 100, 100.0
"""A probe of the bracket lasts at least so many seconds and requests, and at most so many seconds."""
PROBE_S, LATE_EXPECTED, LONGEST_PROBE_S = 20.0, 20, 180.0
"""A probe of the refinement lasts so long that at the limit this many requests are late."""
SETTLING_S, LONGEST_WARM_UP_S = 10.0, 180.0
"""The first probe at the start rate lasts at least so long; warming up takes at most so long."""
SLOWEST_PER_MINUTE = 60.0
"""The lowest rate that is tried: below one a second, enough requests for a percentile take hours."""
KEPT_OFF = 0.15
"""Interpolation stays this share of the bracket off its ends."""
IN_FLUX = 0.1
"""Share of each probe that is left out at its beginning, where the queue of an idle service fills up."""
PROBE_BLOCK_S = 4.0
"""Seconds: long beside the queues that a request meets, so that blocks are nearly independent."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Seen:
    """The requests of a probe: an entry for each that was due, in order of intended send."""

    duration_s: float
    intended_s: Floats
    """Seconds since the probe's beginning."""
    latencies_ms: Floats
    """Milliseconds from the intended send; infinite for a request that failed or was never answered."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Probed:
    """A probe's counts, without its beginning."""

    invocations_per_minute: float
    duration_s: float
    latency_ms: float
    """The limit's percentile; infinite where more requests than it allows were never answered."""
    requests: Floats
    """Number of requests by block of time."""
    late: Floats
    """Number of requests over the limit, by block."""
    far_late: Floats
    """Number of requests over the limit by `MARGIN`, by block."""

    @property
    def late_share(self) -> float:
        """The share of late requests."""
        return float(self.late.sum() / max(self.requests.sum(), 1))


Probe = Callable[[float, float], Seen]
"""(arrivals per minute, seconds) → the requests and their latencies. Raises `Bottleneck`."""


class Bottleneck(Exception):
    """The generator could not make the arrivals of a probe, or was in the way of what it measured. Says why."""


def probed(rate_per_minute: float, seen: Seen, limit: Limit) -> Probed:
    """Counts the requests of a probe by blocks of time, without its beginning."""
    bound = np.inf if limit.latency_ms is None else limit.latency_ms
    first = int(np.searchsorted(seen.intended_s, seen.duration_s * IN_FLUX))
    latencies, duration = seen.latencies_ms[first:], seen.duration_s * (1 - IN_FLUX)
    count = max(int(duration / PROBE_BLOCK_S), 1)
    place = (seen.intended_s[first:] - seen.duration_s * IN_FLUX) * (count / duration)
    block: Indices = np.clip(place, 0, count - 1).astype(np.intp)
    return Probed(
        invocations_per_minute=rate_per_minute,
        duration_s=seen.duration_s,
        latency_ms=float(np.percentile(latencies, limit.percentile, method="lower")) if len(latencies) else 0.0,
        requests=per_block(block, np.ones(len(block), dtype=bool), count),
        late=per_block(block, latencies > bound, count),
        far_late=per_block(block, latencies > bound * (1 + MARGIN), count),
    )


class Reason(Enum):
    """Why a search ended."""

    RESOLVED = "the capacity is known to its resolution"
    TIME = "its time was over"
    NEVER_SETTLED = "the latency never settled at the start rate"
    NOTHING_KEEPS = "no rate from 60 a minute on keeps the limit"
    BOTTLENECK = "the generator was the bottleneck"
    INTERRUPTED = "it was interrupted"
    BEARS_MORE = "the service bears more than the highest rate that may be tried"


@dataclass(frozen=True, kw_only=True, slots=True)
class SearchResult:
    """The result of a search."""

    invocations_per_minute: float | None
    """The capacity; None where the search came to none."""
    interval: tuple[float, float] | None
    """95 % confidence interval of the rate at which the percentile is the limit; also where it is too wide to
    report a capacity."""
    latency_ms: float | None
    """The limit's percentile in the probe nearest to that rate."""
    warm_up_s: float | None
    probed: tuple[Probed, ...]
    reason: Reason


@dataclass(frozen=True, kw_only=True, slots=True)
class _Bracket:
    """Two points of (log rate, log of latency over limit), the low one at or under the limit."""

    low: tuple[float, float]
    high: tuple[float, float]
    stayed: str = ""
    """The end that the last point left where it was: "low" or "high"."""

    def next_rate(self) -> float:
        """Returns the rate at which the straight line through the ends meets the limit."""
        (x1, y1), (x2, y2) = self.low, self.high
        share = -y1 / (y2 - y1) if y2 > y1 else 0.5
        return exp(x1 + (x2 - x1) * min(max(share, KEPT_OFF), 1 - KEPT_OFF))

    def with_point(self, point: tuple[float, float]) -> "_Bracket":
        """Returns the bracket with `point` as an end; the Illinois rule halves the height of one that stays twice."""
        if point[1] <= 0:
            height = self.high[1] / 2 if self.stayed == "high" else self.high[1]
            return _Bracket(low=point, high=(self.high[0], height), stayed="high")
        height = self.low[1] / 2 if self.stayed == "low" else self.low[1]
        return _Bracket(low=(self.low[0], height), high=point, stayed="low")


@dataclass(frozen=True, kw_only=True, slots=True)
class _Fitted:
    at: RateAtLimit
    """The rate at which the percentile is the limit."""
    far_over: float
    """The rate at which the percentile is `MARGIN` over the limit."""

    def is_known_within(self, share: float) -> bool:
        """Returns whether half the interval is at most this share of the rate."""
        return self.at.high - self.at.low <= 2 * share * self.at.rate

    @property
    def capacity(self) -> float:
        """The rate at the limit; less where the percentile would be over by the margin if the interval's low end were
        the true rate."""
        low = self.at.rate - STRETCH * (self.at.rate - self.at.low)
        return min(self.at.rate, low * self.far_over / self.at.rate)


class _Ended(Exception):
    def __init__(self, reason: Reason) -> None:
        self.reason = reason


@dataclass(slots=True)
class Search:
    """One search, for a limit that has a latency. Rates are per minute."""

    probe: Probe
    limit: Limit
    start: float = 600.0
    most: float = 6e7
    longest_s: float = 3600.0
    """Seconds of all probes together."""
    probed: list[Probed] = field(default_factory=list)
    spent_s: float = 0.0
    warm_up_s: float | None = None
    complaint: str = ""
    """Why the generator was the bottleneck, where it was."""
    _fitted: "_Fitted | None" = None

    def run(self) -> SearchResult:
        """Probes until the capacity is known, or cannot be."""
        try:
            self._warm_up()
            self._refine(self._narrow(*self._bracket()))
            reason = Reason.RESOLVED
        except _Ended as ended:
            reason = ended.reason
        except Bottleneck as bottleneck:
            self.complaint = str(bottleneck)
            reason = Reason.BOTTLENECK
        return self.result(reason)

    def _warm_up(self) -> None:
        """Keeps the start rate up until the latency was settled for half of the last probe."""
        intended: list[Floats] = []
        latencies: list[Floats] = []
        passed, duration = 0.0, max(SETTLING_S, self._glance_s(self.start))
        while passed < LONGEST_WARM_UP_S:
            seen = self._see(self.start, duration)
            intended.append(seen.intended_s + passed)
            latencies.append(np.minimum(seen.latencies_ms, 1e9))
            passed += duration
            settled = warm_up_s(np.concatenate(intended), np.concatenate(latencies), passed)
            if settled is not None and settled <= passed - duration / 2:
                self.warm_up_s = settled
                return
        raise _Ended(Reason.NEVER_SETTLED)

    def _bracket(self) -> tuple[Probed, Probed]:
        """Returns a probe under the limit and one over it, at most `FACTOR` apart."""
        first = self._glance(self.start)
        return self._down_from(first) if self._is_over(first) else self._up_from(first)

    def _down_from(self, over: Probed) -> tuple[Probed, Probed]:
        while True:
            if over.invocations_per_minute <= SLOWEST_PER_MINUTE:
                raise _Ended(Reason.NOTHING_KEEPS)
            lower = self._glance(max(over.invocations_per_minute / FACTOR, SLOWEST_PER_MINUTE))
            if not self._is_over(lower):
                return lower, over
            over = lower

    def _up_from(self, under: Probed) -> tuple[Probed, Probed]:
        """Takes smaller steps where the generator cannot follow: the service may be over the limit before that."""
        factor = FACTOR
        while True:
            if under.invocations_per_minute * factor > self.most:
                raise _Ended(Reason.BEARS_MORE)
            try:
                higher = self._glance(under.invocations_per_minute * factor)
            except Bottleneck:
                factor = sqrt(factor)
                if factor < NARROW:
                    raise
                continue
            if self._is_over(higher):
                return under, higher
            under = higher

    def _narrow(self, under: Probed, over: Probed) -> float:
        """Returns a rate near the limit."""
        bracket = _Bracket(low=self._point(under), high=self._point(over))
        while bracket.high[0] - bracket.low[0] > log(NARROW):
            bracket = bracket.with_point(self._point(self._glance(bracket.next_rate())))
        return bracket.next_rate()

    def _refine(self, rate: float) -> None:
        """Adds probes around the rate at the limit until it is known well enough."""
        apart = FARTHEST / 2
        while True:
            for side in (1 - apart, 1 + apart):
                self._see_at(rate * side, self._probe_s(rate))
            fitted = self._fit(rate, apart)
            if fitted is None:  # hardly a request was late, or nearly all
                rate = min(rate * (1 + apart), self._most_unsaturated())
                continue
            self._fitted, at = fitted, fitted.at
            if at.rate < SLOWEST_PER_MINUTE and rate < 2 * SLOWEST_PER_MINUTE:
                raise _Ended(Reason.NOTHING_KEEPS)
            apart = min(max(APART / at.slope, NEAREST), FARTHEST)
            rate = min(max(at.rate, rate / NARROW), rate * NARROW, self._most_unsaturated())
            if at.episodes >= EPISODES and fitted.is_known_within(RESOLUTION):
                return

    def _most_unsaturated(self) -> float:
        """Returns the lowest rate at and a little above which most probes were saturated.

        A rate above it may be probed again: a single probe may seem saturated for a stall.
        """
        rates = [probe.invocations_per_minute for probe in self.probed if probe.late_share > SATURATED]
        return min((rate for rate in rates if self._is_mostly_saturated(rate)), default=np.inf)

    def _is_mostly_saturated(self, rate: float) -> bool:
        near = [probe for probe in self.probed if rate <= probe.invocations_per_minute <= rate * (1 + FARTHEST)]
        return 2 * sum(probe.late_share > SATURATED for probe in near) >= len(near)

    def _fit(self, rate: float, apart: float) -> "_Fitted | None":
        """Fits the probes near `rate`; None where they do not give a rate at the limit."""
        near = [
            probe
            for probe in self.probed
            if 1 - NEAR[0] * apart <= probe.invocations_per_minute / rate <= 1 + NEAR[1] * apart
            and probe.late_share <= SATURATED
        ]
        if not near:
            return None
        requests = np.concatenate([probe.requests for probe in near])
        rates = np.concatenate([np.full(len(probe.requests), probe.invocations_per_minute) for probe in near])
        late = np.concatenate([probe.late for probe in near])
        far_late = np.concatenate([probe.far_late for probe in near])
        at = late_share_regression(rates, requests, late, self.limit.allowed, CONFIDENCE)
        far = late_share_regression(rates, requests, far_late, self.limit.allowed, CONFIDENCE)
        if at is None:
            return None
        return _Fitted(at=at, far_over=max(far.rate, at.rate) if far else at.rate)

    def result(self, reason: Reason) -> SearchResult:
        """Returns the result of what has been probed so far."""
        fitted = self._fitted
        if (
            fitted is None
            or reason is Reason.NOTHING_KEEPS
            or not fitted.is_known_within(RESOLUTION if reason is Reason.RESOLVED else ACCEPTABLE)
        ):
            return SearchResult(
                invocations_per_minute=None,
                interval=None if fitted is None or reason is Reason.NOTHING_KEEPS else (fitted.at.low, fitted.at.high),
                latency_ms=None,
                warm_up_s=self.warm_up_s,
                probed=tuple(self.probed),
                reason=reason,
            )
        at, rate = fitted.at, fitted.capacity
        nearest = min(self.probed, key=lambda probe: abs(probe.invocations_per_minute - rate))
        return SearchResult(
            invocations_per_minute=rate,
            interval=(at.low, at.high),
            latency_ms=nearest.latency_ms,
            warm_up_s=self.warm_up_s,
            probed=tuple(self.probed),
            reason=reason,
        )

    def _glance(self, rate: float) -> Probed:
        return self._see_at(rate, self._glance_s(rate))

    def _glance_s(self, rate: float) -> float:
        return min(max(GLANCE_S, GLANCE_REQUESTS / rate * 60), LONGEST_GLANCE_S)

    def _probe_s(self, rate: float) -> float:
        return min(max(PROBE_S, LATE_EXPECTED / self.limit.allowed / rate * 60), LONGEST_PROBE_S)

    def _see_at(self, rate: float, duration_s: float) -> Probed:
        counted = probed(rate, self._see(rate, duration_s), self.limit)
        self.probed.append(counted)
        return counted

    def _see(self, rate: float, duration_s: float) -> Seen:
        if self.spent_s + duration_s > self.longest_s:
            raise _Ended(Reason.TIME)
        self.spent_s += duration_s
        return self.probe(rate, duration_s)

    def _is_over(self, probe: Probed) -> bool:
        return probe.latency_ms > self._limit_ms

    def _point(self, probe: Probed) -> tuple[float, float]:
        """Returns the logarithms of the rate and of the latency over the limit."""
        over = max(probe.latency_ms / self._limit_ms, 1e-9)
        return log(probe.invocations_per_minute), min(max(log(over), -FAR_OFF), FAR_OFF)

    @property
    def _limit_ms(self) -> float:
        assert self.limit.latency_ms is not None
        return self.limit.latency_ms
