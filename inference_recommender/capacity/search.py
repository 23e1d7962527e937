"""Searches the highest rate of arrivals at which a service keeps a latency limit. Pure: a `Probe` is its one port.

Requests arrive in an open loop, as a Poisson process whatever the answers do, and latency counts from the intended
send, so that an overloaded service cannot slow down its own measurement (coordinated omission).

1. The start rate is kept up until the service has warmed up (`warm_up`).
2. Short probes raise the rate fourfold (or lower it) until one is over the limit. If that one was too much for the
   service altogether, the rate at which it answered then tells where the limit is, as that of an M/M/1 queue would;
   else the rate between is interpolated, rate and latency in logarithms, until the bracket is narrow.
3. Then all probes near the limit are read together (`rate_at_limit`), and probes are added a little below and a little
   above the rate at the limit, each as long as what is not known yet asks for, until the interval is within
   `RESOLUTION`. No single probe decides, so that probing often is no way to pass.
4. The capacity is that rate, or the lower one at which a percentile `MARGIN` over the limit can be excluded with 95 %
   confidence: noise makes the result smaller, never larger.

If the time is over before that, the result is the interval or the lower bound known by then, and a capacity if the
interval is within `ACCEPTABLE`. `benchmarks/searches/capacity.py` prints how often the result is right, and for how
many requests and probes, on simulated services of known capacity. The search assumes that the service stays as fast as
it is now.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from math import exp, log, sqrt

import numpy as np

from inference_recommender.capacity.closed_loop import CONFIDENCE, MARGIN, Limit
from inference_recommender.capacity.levels import Indices, per_block, warm_up_s
from inference_recommender.capacity.rate_at_limit import Counts, RateAtLimit, rate_at_limit
from inference_recommender.capacity.server_times import ServerTimes
from inference_recommender.capacity.statistics import Floats

RESOLUTION = 0.05
"""Half the interval over the rate at the limit, at which a search ends."""
ACCEPTABLE = 0.15
"""The same where the search ended before: a capacity less sure is not reported."""
FEWEST_PROBES = 3
"""The refinement has at least so many: from fewer, the noise of a probe is only assumed."""
BELOW, ABOVE, FARTHEST = 0.5, 1.2, 0.08
"""Probes are added so far below and above the rate at the limit that the logarithm of the late share is less or more
by this much, and at most this share of the rate. Above, more requests are late, and tell more."""
WIDE = 0.15
"""Half an interval from which on probes go where the limit is most likely."""
FAR_OFF = log(10)
"""A latency more than ten times over or under the limit counts as ten times."""
FACTOR, SMALL_FACTOR = 4.0, 1.5
"""Step of the rate while the limit is not yet bracketed; and where the latency is already more than half the limit."""
NARROW = 1.5
"""The bracket in which the refinement begins."""
IN_FLIGHT = 2.0
"""The first step may be larger: to where so many requests are in flight, if the latency stays as it is."""
SATURATED = 0.9
"""A service that answers a smaller share of what arrives, and late, is saturated: that is the most it can answer."""
FILLING = 0.2
"""Share of a probe after which a saturated service answers as much as it can."""
GLANCE_S, GLANCE_LIMITS, GLANCE_REQUESTS, LONGEST_GLANCE_S = 0.5, 10, 200, 100.0
"""A probe of the bracket lasts at least so many seconds, times the limit, and requests, and at most so many seconds."""
PROBE_S, PROBE_LIMITS, LATE_EXPECTED = 1.0, 15, 10
"""A probe of the refinement lasts at least so many seconds, so many times the limit, and so long that at the limit
this many requests are late …"""
LEAST_GROWTH, GROWTH, OF_LONGEST = 0.5, 4.0, 1 / 8
"""… at least this share of all probes of the refinement before it, at most so many times as long as the longest of
them, and at most this share of the time for all probes, or an equal share of the time left where `MOST_PROBES` would
not do."""
MOST_PROBES = 12
"""Probes that the whole search should not need more of; it goes on where it does."""
WARMING_PER_MINUTE = 600.0
"""A service warms up at this rate where the start rate is higher: requests that a cold one cannot answer would pile
up."""
SETTLING_S, LONGEST_WARM_UP_S = 10.0, 180.0
"""The first probe lasts at least so long; warming up takes at most so long."""
SLOWEST_PER_MINUTE = 60.0
"""The lowest rate that is tried: below one a second, enough requests for a percentile take hours."""
KEPT_OFF = 0.15
"""Interpolation stays this share of the bracket off its ends."""
IN_FLUX = 0.1
"""Share of each probe that is left out at its beginning, where the queue of an idle service fills up."""
BLOCK_LIMITS, PROBE_BLOCK_S = 40, 4.0
"""A block lasts so many times the limit, long beside the queues that a request meets, so that blocks are nearly
independent; without a limit so many seconds."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Seen:
    """The requests of a probe: an entry for each that was due, in order of intended send."""

    duration_s: float
    intended_s: Floats
    """Seconds since the probe's beginning."""
    latencies_ms: Floats
    """Milliseconds from the intended send; infinite for a request that failed or was never answered."""
    server: ServerTimes | None = None
    """The server's view of the same requests, where it tells."""


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
    mean_ms: float
    """The mean latency of the requests that were answered; infinite where none was."""
    answered_per_minute: float
    """The rate of answers, without the probe's beginning."""
    server: ServerTimes | None = None
    """The server's view of the whole probe; None where it does not tell."""

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
    count = max(int(duration / (PROBE_BLOCK_S if limit.latency_ms is None else BLOCK_LIMITS * bound / 1000)), 1)
    place = (seen.intended_s[first:] - seen.duration_s * IN_FLUX) * (count / duration)
    block: Indices = np.clip(place, 0, count - 1).astype(np.intp)
    answered = latencies[np.isfinite(latencies)]
    done = seen.intended_s + seen.latencies_ms / 1000
    in_time = (done > seen.duration_s * FILLING) & (done <= seen.duration_s)
    return Probed(
        invocations_per_minute=rate_per_minute,
        duration_s=seen.duration_s,
        latency_ms=float(np.percentile(latencies, limit.percentile, method="lower")) if len(latencies) else 0.0,
        requests=per_block(block, np.ones(len(block), dtype=bool), count),
        late=per_block(block, latencies > bound, count),
        far_late=per_block(block, latencies > bound * (1 + MARGIN), count),
        mean_ms=float(answered.mean()) if len(answered) else np.inf,
        answered_per_minute=float(in_time.sum()) * 60 / (1 - FILLING) / seen.duration_s,
        server=seen.server,
    )


class Reason(Enum):
    """Why a search ended."""

    RESOLVED = "the capacity is known to its resolution"
    TIME = "its time was over"
    NEVER_SETTLED = "the latency never settled at the start rate"
    NOTHING_KEEPS = "no rate from 60 a minute on keeps the limit"
    BOTTLENECK = "the generator was the bottleneck"
    INTERRUPTED = "it was interrupted"
    BEARS_MORE = "the service sustains more than the highest rate that may be tried"


@dataclass(frozen=True, kw_only=True, slots=True)
class SearchResult:
    """The result of a search."""

    invocations_per_minute: float | None
    """The capacity; None where the search came to none."""
    rate_at_limit: float | None
    """The rate at which the percentile most likely is the limit: the capacity, or more than it."""
    interval: tuple[float, float] | None
    """95 % confidence interval of the rate at which the percentile is the limit; also where it is too wide to
    report a capacity."""
    lower_bound: float | None = None
    """The interval's low end, else the highest rate of a probe within the limit; None without either."""
    latency_ms: float | None
    """The limit's percentile in the probe nearest to that rate."""
    warm_up_s: float | None
    probed: tuple[Probed, ...]
    reason: Reason


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
    longest_s: float = 300.0
    """Seconds of all probes together."""
    resolution: float = RESOLUTION
    probed: list[Probed] = field(default_factory=list)
    spent_s: float = 0.0
    count: int = 0
    """Number of probes, with those that warmed up."""
    warm_up_s: float | None = None
    complaint: str = ""
    """Why the generator was the bottleneck, where it was."""
    _near: list[Probed] = field(default_factory=list)
    """The probes of the refinement."""
    _found: RateAtLimit | None = None

    def run(self) -> SearchResult:
        """Probes until the capacity is known, or cannot be."""
        try:
            self._refine(self._bracket(self._warm_up()))
            reason = Reason.RESOLVED
        except _Ended as ended:
            reason = ended.reason
        except Bottleneck as bottleneck:
            self.complaint = str(bottleneck)
            reason = Reason.BOTTLENECK
        return self.result(reason)

    def _warm_up(self) -> Probed:
        """Keeps the start rate up, or less, until the latency was settled for half of the last probe.

        Returns the first probe at the start rate.
        """
        intended: list[Floats] = []
        latencies: list[Floats] = []
        rate = min(self.start, WARMING_PER_MINUTE)
        passed, duration = 0.0, max(SETTLING_S, self._glance_s(rate))
        while passed < LONGEST_WARM_UP_S:
            seen = self._see(rate, duration)
            intended.append(seen.intended_s + passed)
            latencies.append(np.minimum(seen.latencies_ms, 1e9))
            passed += duration
            settled = warm_up_s(np.concatenate(intended), np.concatenate(latencies), passed)
            if settled is not None and settled <= passed - duration / 2:
                self.warm_up_s = settled
                last = self._counted(rate, _from(seen, max(settled - (passed - duration), 0.0)))
                return last if rate == self.start or self._is_over(last) else self._glance(self.start)
        raise _Ended(Reason.NEVER_SETTLED)

    def _bracket(self, first: Probed) -> float:
        """Returns a rate near the limit, at most `NARROW` off it if the latencies tell the truth."""
        under, over, last = None, None, first
        while True:
            rate = last.invocations_per_minute
            if not self._is_over(last):
                under = last
            elif self._is_saturated(last):
                lowest = 0.0 if under is None else under.invocations_per_minute
                return max(self._below_saturation(last.answered_per_minute), min(lowest, last.answered_per_minute))
            elif rate <= SLOWEST_PER_MINUTE:
                raise _Ended(Reason.NOTHING_KEEPS)
            else:
                over = last
            if under is None:
                last = self._glance(max(rate / FACTOR, SLOWEST_PER_MINUTE))
            elif over is None:
                last = self._glance_above(under)
            elif over.invocations_per_minute <= NARROW * under.invocations_per_minute:
                return self._between(under, over)
            else:
                last = self._glance(self._between(under, over))

    def _glance_above(self, under: Probed) -> Probed:
        """Takes smaller steps where the generator cannot follow: the service may be over the limit before that."""
        factor = FACTOR
        if under.latency_ms > self._limit_ms / 2:
            factor = SMALL_FACTOR
        elif len(self.probed) == 1:
            in_flight = under.invocations_per_minute / 60_000 * under.mean_ms
            factor = max(FACTOR, IN_FLIGHT / max(in_flight, 1e-9))
        if under.invocations_per_minute * FACTOR > self.most:
            raise _Ended(Reason.BEARS_MORE)
        while True:
            try:
                return self._glance(min(under.invocations_per_minute * factor, self.most))
            except Bottleneck:
                factor = sqrt(factor)
                if factor < NARROW:
                    raise

    def _between(self, under: Probed, over: Probed) -> float:
        """Returns the rate at which the straight line through both meets the limit, in logarithms."""
        (x1, y1), (x2, y2) = self._point(under), self._point(over)
        share = -y1 / (y2 - y1) if y2 > y1 else 0.5
        return exp(x1 + (x2 - x1) * min(max(share, KEPT_OFF), 1 - KEPT_OFF))

    def _below_saturation(self, most: float) -> float:
        """Returns the rate that an M/M/1 queue which can answer `most` a minute bears within the limit."""
        return max(most + 60_000 * log(self.limit.allowed) / self._limit_ms, most / 2, SLOWEST_PER_MINUTE)

    def _refine(self, rate: float) -> None:
        """Adds probes around the rate at the limit until it is known well enough."""
        while True:
            self._near.append(self._see_at(rate, self._duration_s(rate)))
            probes = [
                Counts(rate=near.invocations_per_minute, requests=near.requests, late=near.late) for near in self._near
            ]
            self._found = found = rate_at_limit(
                probes,
                self.limit.allowed,
                CONFIDENCE,
                limit=self._limit_ms / 60_000,
                saturation=self._saturation(),
            )
            if rate <= SLOWEST_PER_MINUTE and self._is_over(self._near[-1]):
                raise _Ended(Reason.NOTHING_KEEPS)
            if len(probes) >= FEWEST_PROBES and found.half_width <= self.resolution:
                return
            rate = self._next_rate(found)

    def _saturation(self) -> float | None:
        """Returns the most that the service answered of what was too much for it; None where nothing was, or where it
        has borne more at another time.
        """
        most = max((near.answered_per_minute for near in self.probed if self._is_saturated(near)), default=None)
        borne = max((near.invocations_per_minute for near in self.probed if not self._is_over(near)), default=0.0)
        return None if most is None or borne > most else most

    def _next_rate(self, found: RateAtLimit) -> float:
        """Returns a rate a little below or above the one at the limit, whichever side has been seen less."""
        tried = [near.invocations_per_minute for near in self._near]
        middle = min(max(found.rate, min(tried) / NARROW), max(tried) * NARROW)
        apart = 0.0
        if found.half_width < WIDE:
            below = sum(near.duration_s for near in self._near if near.invocations_per_minute < middle)
            if 2 * below > sum(near.duration_s for near in self._near):
                apart = min(ABOVE / found.slope, FARTHEST)
            else:
                apart = -min(BELOW / found.slope, FARTHEST)
        return min(max(middle * (1 + apart), SLOWEST_PER_MINUTE), self.most)

    def _duration_s(self, rate: float) -> float:
        """Returns the seconds of the next probe: half of what is still needed, if what is known grows with the time."""
        longest, left = self.longest_s * OF_LONGEST, self.longest_s - self.spent_s
        enough = max(PROBE_S, PROBE_LIMITS * self._limit_ms / 1000, LATE_EXPECTED / self.limit.allowed / rate * 60)
        least = min(enough, longest)
        if self._found is None:
            return least
        spent = sum(near.duration_s for near in self._near)
        needed = spent * max(((self._found.half_width / self.resolution) ** 2 - 1) / 2, LEAST_GROWTH)
        duration = min(max(least, min(needed, GROWTH * max(near.duration_s for near in self._near))), longest)
        if 2 * needed > left:
            duration = max(duration, left / max(MOST_PROBES - self.count, 1))
        return left if least / 2 < left < duration + least else duration

    def result(self, reason: Reason) -> SearchResult:
        """Returns the result of what has been probed so far."""
        found = None if reason is Reason.NOTHING_KEEPS else self._found
        if found is None or found.half_width > max(ACCEPTABLE, self.resolution):
            return SearchResult(
                invocations_per_minute=None,
                rate_at_limit=None if found is None else found.rate,
                interval=None if found is None else (found.low, found.high),
                lower_bound=self._lower_bound(found),
                latency_ms=None,
                warm_up_s=self.warm_up_s,
                probed=tuple(self.probed),
                reason=reason,
            )
        rate = self._capacity(found)
        nearest = min(self.probed, key=lambda probe: abs(probe.invocations_per_minute - rate))
        return SearchResult(
            invocations_per_minute=rate,
            rate_at_limit=found.rate,
            interval=(found.low, found.high),
            lower_bound=found.low,
            latency_ms=nearest.latency_ms,
            warm_up_s=self.warm_up_s,
            probed=tuple(self.probed),
            reason=reason,
        )

    def _lower_bound(self, found: RateAtLimit | None) -> float | None:
        if found is not None and found.low > 0:
            return found.low
        return max((probe.invocations_per_minute for probe in self.probed if not self._is_over(probe)), default=None)

    def _capacity(self, found: RateAtLimit) -> float:
        """Returns the rate at the limit; less where the percentile would be over by the margin if the interval's low
        end were the true rate.
        """
        late = sum(float(near.late.sum()) for near in self._near)
        far_late = sum(float(near.far_late.sum()) for near in self._near)
        margin = log(max(late, 1) / max(far_late, 1)) / found.slope
        return min(found.rate, found.surely * exp(margin))

    def _glance(self, rate: float) -> Probed:
        return self._see_at(rate, self._glance_s(rate))

    def _glance_s(self, rate: float) -> float:
        least = max(GLANCE_S, GLANCE_LIMITS * self._limit_ms / 1000, GLANCE_REQUESTS / rate * 60)
        return min(least, LONGEST_GLANCE_S, self.longest_s * OF_LONGEST)

    def _see_at(self, rate: float, duration_s: float) -> Probed:
        return self._counted(rate, self._see(rate, duration_s))

    def _counted(self, rate: float, seen: Seen) -> Probed:
        counted = probed(rate, seen, self.limit)
        self.probed.append(counted)
        return counted

    def _see(self, rate: float, duration_s: float) -> Seen:
        if self.spent_s + duration_s > self.longest_s * (1 + 1e-9):
            raise _Ended(Reason.TIME)
        self.spent_s += duration_s
        self.count += 1
        return self.probe(rate, duration_s)

    def _is_over(self, probe: Probed) -> bool:
        return probe.latency_ms > self._limit_ms

    def _is_saturated(self, probe: Probed) -> bool:
        fewer = probe.answered_per_minute < SATURATED * probe.invocations_per_minute
        return fewer and probe.answered_per_minute > 0 and probe.mean_ms > self._limit_ms

    def _point(self, probe: Probed) -> tuple[float, float]:
        """Returns the logarithms of the rate and of the latency over the limit."""
        over = max(probe.latency_ms / self._limit_ms, 1e-9)
        return log(probe.invocations_per_minute), min(max(log(over), -FAR_OFF), FAR_OFF)

    @property
    def _limit_ms(self) -> float:
        assert self.limit.latency_ms is not None
        return self.limit.latency_ms


def _from(seen: Seen, start_s: float) -> Seen:
    """Returns the requests of a probe from `start_s` on, as a probe of their own."""
    first = int(np.searchsorted(seen.intended_s, start_s))
    return Seen(
        duration_s=seen.duration_s - start_s,
        intended_s=seen.intended_s[first:] - start_s,
        latencies_ms=seen.latencies_ms[first:],
        server=None if first else seen.server,
    )
