"""The highest rate of arrivals at which a service keeps a latency limit. Pure: an algorithm over a port that probes.

Open loop: requests arrive as a Poisson process whatever the answers do, and latency counts from the intended send, so
that an overloaded service cannot slow down its own measurement (coordinated omission).

1. The start rate is kept up until the service has warmed up (`warm_up`).
2. Probes of a few seconds quadruple the rate (or quarter it) until one is over the limit and the one below is not.
3. The rate between is interpolated, rate and latency in logarithms, by regula falsi with the Illinois rule (Dowell and
   Jarratt, BIT 11, 1971), kept off the ends, until the bracket is narrow enough for a straight line.
4. Then a line is fitted to the late requests of all probes near the limit (`crossing`), and probes are added a little
   below and a little above where it crosses what the percentile allows, until the capacity is known well enough. No
   single probe decides, so that looking often is no way to pass.
5. The capacity is the rate of the crossing, or the lower one at which a percentile `MARGIN` over the limit can be
   excluded with 95 % confidence: noise makes the result smaller, not bolder.

On simulated services of known capacity (tests/inference_recommender/capacity/test_search.py) it comes within 5 % for
at least 95 of a hundred seeds and calls a rate the capacity whose percentile is 10 % over for at most 5; the interval
covers the truth for 86 to 96. It takes a service to be as fast later as it is now, and knows nothing of other machines.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from math import log, sqrt

import numpy as np

from inference_recommender.capacity.bracket import Bracket
from inference_recommender.capacity.closed_loop import CONFIDENCE, Limit
from inference_recommender.capacity.late_share_regression import Crossing, crossing
from inference_recommender.capacity.probed import Probed, Seen, probed
from inference_recommender.capacity.statistics import Floats
from inference_recommender.capacity.warm_up import warm_up_s

RESOLUTION = 0.03
"""The half of the interval, over the capacity, at which the search is content."""
ACCEPTABLE = 0.10
"""The same, where the search ended before: a capacity less sure is none."""
STRETCH = 1.15
"""To stop when the interval is narrow makes it too narrow: by so much, in simulation."""
NARROW = 1.15
"""The bracket in which the logarithm of the late share is nearly a straight line."""
SATURATED = 0.3
"""A probe with more late requests is beyond the straight line."""
EPISODES = 15
"""Blocks with late requests at least: from fewer, an interval only seems narrow."""
APART = 0.4
NEAREST, FARTHEST = 0.02, 0.06
"""Of the capacity: probes are added so much below and above it that the late share differs by a factor of e^APART."""
NEAR = (4.0, 2.5)
"""Times that distance, below and above: probes within are fitted. Above, the queue soon has no end."""
FACTOR = 4.0
FAR_OFF = log(10)
"""A latency more than ten times over or under the limit says no more than ten times."""
GLANCE_S, GLANCE_REQUESTS, LONGEST_GLANCE_S = 5.0, 100, 100.0
PROBE_S, LATE_EXPECTED, LONGEST_PROBE_S = 20.0, 20, 180.0
"""A probe lasts so long that at the limit this many requests are late."""
SETTLING_S, LONGEST_WARM_UP_S = 10.0, 180.0
SLOWEST_PER_MINUTE = 60.0
"""Below one a second, enough requests for a percentile take hours."""

Probe = Callable[[float, float], Seen]
"""(arrivals per minute, seconds) → what was seen. Raises `Bottleneck`."""


class Bottleneck(Exception):
    """The generator could not make the arrivals of a probe, or was in the way of what it measured: why."""


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
class Found:
    invocations_per_minute: float | None
    """The capacity; None where the search came to none."""
    interval: tuple[float, float] | None
    """95 % confidence interval of the rate at which the percentile is the limit; also where it is too wide for a
    capacity to be told."""
    latency_ms: float | None
    """At the limit's percentile, of the probes nearest to that rate."""
    warm_up_s: float | None
    probed: tuple[Probed, ...]
    reason: Reason


@dataclass(frozen=True, kw_only=True, slots=True)
class _Fitted:
    at: Crossing
    """Where the percentile is the limit."""
    far_over: float
    """The rate at which the percentile is `MARGIN` over the limit."""

    def is_known_within(self, share: float) -> bool:
        """Whether half the interval is at most this share of the rate."""
        return self.at.high - self.at.low <= 2 * share * self.at.rate

    @property
    def capacity(self) -> float:
        """The crossing; less where, were the true one at the low end, the percentile would be over by the margin."""
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
    """Of all probes together."""
    probed: list[Probed] = field(default_factory=list)
    spent_s: float = 0.0
    warm_up_s: float | None = None
    complaint: str = ""
    """The generator's, where it was the bottleneck."""
    _fitted: "_Fitted | None" = None

    def run(self) -> Found:
        try:
            self._warm_up()
            self._refine(self._narrow(*self._bracket()))
            reason = Reason.RESOLVED
        except _Ended as ended:
            reason = ended.reason
        except Bottleneck as bottleneck:
            self.complaint = str(bottleneck)
            reason = Reason.BOTTLENECK
        return self.found(reason)

    def _warm_up(self) -> None:
        """Keep the start rate up until the latency was settled for half of the last probe."""
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
        """A probe under the limit and one over it, at most `FACTOR` apart."""
        one = self._glance(self.start)
        return self._down_from(one) if self._is_over(one) else self._up_from(one)

    def _down_from(self, over: Probed) -> tuple[Probed, Probed]:
        while True:
            if over.invocations_per_minute <= SLOWEST_PER_MINUTE:
                raise _Ended(Reason.NOTHING_KEEPS)
            one = self._glance(max(over.invocations_per_minute / FACTOR, SLOWEST_PER_MINUTE))
            if not self._is_over(one):
                return one, over
            over = one

    def _up_from(self, under: Probed) -> tuple[Probed, Probed]:
        """In smaller steps where the generator cannot follow: the service may be over the limit before that."""
        factor = FACTOR
        while True:
            if under.invocations_per_minute * factor > self.most:
                raise _Ended(Reason.BEARS_MORE)
            try:
                one = self._glance(under.invocations_per_minute * factor)
            except Bottleneck:
                factor = sqrt(factor)
                if factor < NARROW:
                    raise
                continue
            if self._is_over(one):
                return under, one
            under = one

    def _narrow(self, under: Probed, over: Probed) -> float:
        """A rate near the limit."""
        bracket = Bracket(low=self._point(under), high=self._point(over))
        while bracket.high[0] - bracket.low[0] > log(NARROW):
            bracket = bracket.with_point(self._point(self._glance(bracket.next_rate())))
        return bracket.next_rate()

    def _refine(self, rate: float) -> None:
        """Add probes around the crossing until it is known well enough."""
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
        """The lowest rate at and a little above which most probes were saturated.

        A rate above it may be probed, so that a stall which made one probe seem so can be seen to have been one.
        """
        saturated = [one for one in self.probed if one.late_share > SATURATED]
        rates = [one.invocations_per_minute for one in saturated if self._mostly_saturated(one.invocations_per_minute)]
        return min(rates, default=np.inf)

    def _mostly_saturated(self, rate: float) -> bool:
        near = [one for one in self.probed if rate <= one.invocations_per_minute <= rate * (1 + FARTHEST)]
        return 2 * sum(one.late_share > SATURATED for one in near) >= len(near)

    def _fit(self, rate: float, apart: float) -> "_Fitted | None":
        """Of the probes near `rate`; None where they do not give one."""
        near = [
            one
            for one in self.probed
            if 1 - NEAR[0] * apart <= one.invocations_per_minute / rate <= 1 + NEAR[1] * apart
            and one.late_share <= SATURATED
        ]
        if not near:
            return None
        requests = np.concatenate([one.requests for one in near])
        rates = np.concatenate([np.full(len(one.requests), one.invocations_per_minute) for one in near])
        late, far_late = (np.concatenate([getattr(one, name) for one in near]) for name in ("late", "far_late"))
        at = crossing(rates, requests, late, self.limit.allowed, CONFIDENCE)
        far = crossing(rates, requests, far_late, self.limit.allowed, CONFIDENCE)
        if at is None:
            return None
        return _Fitted(at=at, far_over=max(far.rate, at.rate) if far else at.rate)

    def found(self, reason: Reason) -> Found:
        fitted = self._fitted
        if (
            fitted is None
            or reason is Reason.NOTHING_KEEPS
            or not fitted.is_known_within(RESOLUTION if reason is Reason.RESOLVED else ACCEPTABLE)
        ):
            return Found(
                invocations_per_minute=None,
                interval=None if fitted is None or reason is Reason.NOTHING_KEEPS else (fitted.at.low, fitted.at.high),
                latency_ms=None,
                warm_up_s=self.warm_up_s,
                probed=tuple(self.probed),
                reason=reason,
            )
        at, rate = fitted.at, fitted.capacity
        nearest = min(self.probed, key=lambda one: abs(one.invocations_per_minute - rate))
        return Found(
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
        found = probed(rate, self._see(rate, duration_s), self.limit)
        self.probed.append(found)
        return found

    def _see(self, rate: float, duration_s: float) -> Seen:
        if self.spent_s + duration_s > self.longest_s:
            raise _Ended(Reason.TIME)
        self.spent_s += duration_s
        return self.probe(rate, duration_s)

    def _is_over(self, one: Probed) -> bool:
        return one.latency_ms > self._limit_ms

    def _point(self, one: Probed) -> tuple[float, float]:
        over = max(one.latency_ms / self._limit_ms, 1e-9)
        return log(one.invocations_per_minute), min(max(log(over), -FAR_OFF), FAR_OFF)

    @property
    def _limit_ms(self) -> float:
        assert self.limit.latency_ms is not None
        return self.limit.latency_ms
