"""Searches the highest rate of open arrivals at which a service keeps a latency limit. Pure: `SendProbe` is its port.

Latency counts from the intended send, so an overloaded service cannot slow down its own measurement. After the warm-up
short probes bracket the limit. Probes near the limit are then evaluated together (`rate_at_limit`) until its interval
is within `RESOLUTION`. The capacity is the rate at the limit, or the lower one at which a percentile `MARGIN` over the
limit can be excluded with 95 % confidence. If the time ends before that, it needs an interval within `ACCEPTABLE`.
`benchmarks/searches/capacity.py` measures the errors on simulated services of known capacity.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from math import exp, inf, log, sqrt

import numpy as np

from inference_recommender.capacity.arrivals import MINUTE_S, markov_arrivals
from inference_recommender.capacity.levels import warm_up_s
from inference_recommender.capacity.probe import Capacity, Probe, ProbeRecords
from inference_recommender.capacity.rate_at_limit import RateAtLimit, rate_at_limit
from inference_recommender.capacity.statistics import CONFIDENCE, Floats, Limit
from workloads import POISSON, ArrivalProcess

RESOLUTION = 0.05
"""Half the interval over the rate at the limit, at which a search ends."""
ACCEPTABLE = 0.15
"""The same for a search that ended early. A less certain capacity is not reported."""
FEWEST_PROBES = 3
BELOW, ABOVE, FARTHEST = 0.5, 1.2, 0.08
"""Distance of probes from the rate at the limit: change of the logarithm of the late share below and above it, and the
largest share of the rate. Above it, more requests are late and carry more information."""
WIDE = 0.15
"""Half an interval above which probes go to the most likely rate."""
FAR_OFF = log(10)
FACTOR, SMALL_FACTOR, NARROW = 4.0, 1.5, 1.5
"""Step of the rate towards the limit, and above half the limit; the bracket at which the refinement starts."""
IN_FLIGHT = 2.0
"""The first step may be larger: up to this number of requests in flight at the current latency."""
SATURATED = 0.9
"""A service that answers a smaller share of late arrivals is saturated at that rate of answers."""
GLANCE_S, GLANCE_LIMITS, GLANCE_REQUESTS, LONGEST_GLANCE_S = 0.5, 10, 200, 100.0
"""Shortest probe of the bracket in seconds, in multiples of the limit and in requests; its longest in seconds."""
PROBE_S, PROBE_LIMITS, LATE_EXPECTED = 1.0, 15, 10
"""Shortest probe of the refinement in seconds, in multiples of the limit, and in late requests at the limit."""
LEAST_GROWTH, GROWTH, OF_LONGEST = 0.5, 4.0, 1 / 8
"""Bounds of the next probe: as a share of all near probes, of the longest one, and of the time of the search."""
MOST_PROBES = 12
WARMING_PER_MINUTE, SETTLING_S, LONGEST_WARM_UP_S = 600.0, 10.0, 180.0
"""Highest rate of the warm-up, its shortest probe and its longest time."""
SLOWEST_PER_MINUTE = 60.0
"""The lowest rate. Below it, enough requests for a percentile take hours."""
KEPT_OFF = 0.15
"""Interpolation stays this share of the bracket off its ends."""
SendProbe = Callable[[float, float], ProbeRecords]
"""Sends arrivals at a rate per minute for some seconds, and returns their latencies. Raises `Bottleneck`."""


class Bottleneck(Exception):
    """The generator could not send the arrivals of a probe, or limited what it measured. The message says why."""


class Reason(Enum):
    """Why a search ended."""

    RESOLVED = "the capacity is known to its resolution"
    TIME = "its time was over"
    NEVER_SETTLED = "the latency never settled at the start rate"
    NOTHING_KEEPS = "no rate from 60 a minute on keeps the limit"
    BOTTLENECK = "the generator was the bottleneck"
    INTERRUPTED = "it was interrupted"
    BEARS_MORE = "the service sustains more than the highest rate that may be tried"


class _Ended(Exception):
    def __init__(self, reason: Reason) -> None:
        self.reason = reason


@dataclass(slots=True)
class Search:
    """One search, for a limit that has a latency. Rates are per minute."""

    send: SendProbe
    limit: Limit
    start: float = 600.0
    most: float = 6e7
    longest_s: float = 300.0
    """Seconds of all probes together."""
    resolution: float = RESOLUTION
    arrivals: ArrivalProcess = POISSON
    """The process that `send` sends, or the one that fits its recorded arrivals."""
    probes: list[Probe] = field(default_factory=list)
    spent_s: float = 0.0
    count: int = 0
    """Number of probes, with those that warmed up."""
    warm_up_s: float | None = None
    complaint: str = ""
    reason: Reason | None = None
    rate_at_limit: RateAtLimit | None = None
    _near: list[Probe] = field(default_factory=list)

    def run(self) -> Capacity:
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

    def _warm_up(self) -> Probe:
        """Keeps the start rate up, or less, until the latency was settled for half of the last probe.

        Returns the first probe at the start rate.
        """
        intended: list[Floats] = []
        latencies: list[Floats] = []
        rate = min(self.start, WARMING_PER_MINUTE)
        passed, duration = 0.0, max(SETTLING_S, self._glance_s(rate))
        while passed < LONGEST_WARM_UP_S:
            records = self._send(rate, duration)
            intended.append(records.intended_s + passed)
            latencies.append(np.minimum(records.latencies_ms, 1e9))
            passed += duration
            settled = warm_up_s(np.concatenate(intended), np.concatenate(latencies), passed)
            if settled is not None and settled <= passed - duration / 2:
                self.warm_up_s = settled
                last = self._counted(rate, _from(records, max(settled - (passed - duration), 0.0)))
                return last if rate == self.start or self._is_over(last) else self._glance(self.start)
        raise _Ended(Reason.NEVER_SETTLED)

    def _bracket(self, first: Probe) -> float:
        """Returns a rate near the limit, at most `NARROW` off it if the latencies tell the truth."""
        under, over, last = None, None, first
        while True:
            rate = last.invocations_per_minute
            if not self._is_over(last):
                under = last
            elif self._is_saturated(last):
                most, lowest = _answered(last), 0.0 if under is None else under.invocations_per_minute
                # The rate within the limit of an M/M/1 queue that can answer `most` a minute.
                below = most + 60_000 * log(self.limit.allowed) / self.limit.bound_ms
                return max(below, most / 2, SLOWEST_PER_MINUTE, min(lowest, most))
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

    def _glance_above(self, under: Probe) -> Probe:
        """Takes smaller steps where the generator cannot follow: the service may be over the limit before that."""
        factor = FACTOR
        if under.latency_ms is None or under.latency_ms > self.limit.bound_ms / 2:
            factor = SMALL_FACTOR
        elif len(self.probes) == 1:
            in_flight = under.invocations_per_minute / 60_000 * (inf if under.mean_ms is None else under.mean_ms)
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

    def _between(self, under: Probe, over: Probe) -> float:
        """Returns the rate at which the straight line through both meets the limit, in logarithms."""
        (x1, y1), (x2, y2) = self._point(under), self._point(over)
        share = -y1 / (y2 - y1) if y2 > y1 else 0.5
        return exp(x1 + (x2 - x1) * min(max(share, KEPT_OFF), 1 - KEPT_OFF))

    def _refine(self, rate: float) -> None:
        while True:
            self._near.append(self._counted(rate, self._send(rate, self._duration_s(rate))))
            limit, saturation = self.limit.bound_ms / 60_000, self._saturation()
            self.rate_at_limit = found = rate_at_limit(
                self._near,
                self.limit.allowed,
                CONFIDENCE,
                limit=limit,
                saturation=saturation,
                dispersion=markov_arrivals(self.arrivals, rate, MINUTE_S).dispersion(limit),
            )
            if rate <= SLOWEST_PER_MINUTE and self._is_over(self._near[-1]):
                raise _Ended(Reason.NOTHING_KEEPS)
            if len(self._near) >= FEWEST_PROBES and found.half_width <= self.resolution:
                return
            rate = self._next_rate(found)

    def _saturation(self) -> float | None:
        """Returns the highest rate of answers of a saturated probe, unless the service sustained more in another."""
        most = max((_answered(probe) for probe in self.probes if self._is_saturated(probe)), default=None)
        return None if most is None or (self._highest_kept() or 0.0) > most else most

    def _highest_kept(self) -> float | None:
        return max((probe.invocations_per_minute for probe in self.probes if not self._is_over(probe)), default=None)

    def _next_rate(self, found: RateAtLimit) -> float:
        """Returns a rate a little below or above the one at the limit, whichever side has been seen less."""
        tried = [near.invocations_per_minute for near in self._near]
        middle = min(max(found.rate, min(tried) / NARROW), max(tried) * NARROW)
        apart = 0.0
        if found.half_width < WIDE:
            below = sum(near.duration_s for near in self._near if near.invocations_per_minute < middle)
            above = 2 * below > sum(near.duration_s for near in self._near)
            apart = min(ABOVE / found.slope, FARTHEST) if above else -min(BELOW / found.slope, FARTHEST)
        return min(max(middle * (1 + apart), SLOWEST_PER_MINUTE), self.most)

    def _duration_s(self, rate: float) -> float:
        """Returns the seconds of the next probe: half of the time that the interval still needs."""
        longest, left = self.longest_s * OF_LONGEST, self.longest_s - self.spent_s
        enough = max(PROBE_S, PROBE_LIMITS * self.limit.bound_ms / 1000, LATE_EXPECTED / self.limit.allowed / rate * 60)
        least = min(enough, longest)
        if self.rate_at_limit is None:
            return least
        durations_s = [near.duration_s for near in self._near]
        needed = sum(durations_s) * max(((self.rate_at_limit.half_width / self.resolution) ** 2 - 1) / 2, LEAST_GROWTH)
        duration = min(max(least, min(needed, GROWTH * max(durations_s))), longest)
        if 2 * needed > left:
            duration = max(duration, left / max(MOST_PROBES - self.count, 1))
        return left if least / 2 < left < duration + least else duration

    def result(self, reason: Reason) -> Capacity:
        """Returns the result of the probes so far."""
        self.reason = reason
        found = None if reason is Reason.NOTHING_KEEPS else self.rate_at_limit
        rate = latency_ms = at_least = None
        if reason is Reason.NOTHING_KEEPS:
            rate = 0.0
        elif found is not None and found.half_width <= max(ACCEPTABLE, self.resolution):
            rate = self._capacity(found)
            latency_ms = min(self.probes, key=lambda probe: abs(probe.invocations_per_minute - rate)).latency_ms
        else:
            at_least = found.low if found is not None and found.low > 0 else self._highest_kept()
        return Capacity(
            invocations_per_minute=rate,
            interval=(found.low, found.high) if found is not None and found.high < inf else None,
            at_least=at_least,
            percentile=self.limit.name,
            limit_ms=self.limit.bound_ms,
            latency_ms=latency_ms,
            reason=self.complaint or reason.value,
            probes=tuple(self.probes),
        )

    def _capacity(self, found: RateAtLimit) -> float:
        """Returns the rate at the limit; less where the percentile would be over by the margin if the interval's low
        end were the true rate.
        """
        late = sum(sum(near.late) for near in self._near)
        far_late = sum(near.far_late for near in self._near)
        margin = log(max(late, 1) / max(far_late, 1)) / found.slope
        return min(found.rate, found.surely * exp(margin))

    def _glance(self, rate: float) -> Probe:
        return self._counted(rate, self._send(rate, self._glance_s(rate)))

    def _glance_s(self, rate: float) -> float:
        least = max(GLANCE_S, GLANCE_LIMITS * self.limit.bound_ms / 1000, GLANCE_REQUESTS / rate * 60)
        return min(least, LONGEST_GLANCE_S, self.longest_s * OF_LONGEST)

    def _counted(self, rate: float, records: ProbeRecords) -> Probe:
        probe = Probe.of(rate, records, self.limit)
        self.probes.append(probe)
        return probe

    def _send(self, rate: float, duration_s: float) -> ProbeRecords:
        if self.spent_s + duration_s > self.longest_s * (1 + 1e-9):
            raise _Ended(Reason.TIME)
        self.spent_s += duration_s
        self.count += 1
        return self.send(rate, duration_s)

    def _is_over(self, probe: Probe) -> bool:
        return probe.latency_ms is None or probe.latency_ms > self.limit.bound_ms

    def _is_saturated(self, probe: Probe) -> bool:
        fewer = 0 < _answered(probe) < SATURATED * probe.invocations_per_minute
        return fewer and (probe.mean_ms is None or probe.mean_ms > self.limit.bound_ms)

    def _point(self, probe: Probe) -> tuple[float, float]:
        """Returns the logarithms of the rate and of the latency over the limit."""
        over = max((inf if probe.latency_ms is None else probe.latency_ms) / self.limit.bound_ms, 1e-9)
        return log(probe.invocations_per_minute), min(max(log(over), -FAR_OFF), FAR_OFF)


def _answered(probe: Probe) -> float:
    return probe.answered_per_minute or 0.0


def _from(records: ProbeRecords, start_s: float) -> ProbeRecords:
    """Returns the requests of a probe from `start_s` on, as a probe of their own."""
    first = int(np.searchsorted(records.intended_s, start_s))
    return ProbeRecords(
        duration_s=records.duration_s - start_s,
        intended_s=records.intended_s[first:] - start_s,
        latencies_ms=records.latencies_ms[first:],
        server=None if first else records.server,
    )
