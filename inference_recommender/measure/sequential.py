"""A sequential test of one latency limit at one rate of arrivals. Pure: its only port is a `Probe`.

Requests arrive in an open loop. The test looks after `FIRST_LOOK_S`, or once there are enough requests for the
percentile, and then each time that it has run about twice as long. It ends at the first look with a clear verdict
(`percentile_interval`), or when its time is over.

All looks together may err with probability `ERROR`. Each look gets a part of it in proportion to its time, so an early
look concludes only in a clear case. benchmarks/RESULTS.md has the errors on simulated services.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from inference_recommender.capacity.levels import warm_up_s
from inference_recommender.capacity.probe import IN_FLUX, ProbeRecords
from inference_recommender.capacity.search import SendProbe
from inference_recommender.capacity.statistics import Limit, samples_needed
from inference_recommender.measure.percentile_interval import ERROR, PercentileInterval, Verdict, percentile_interval
from workloads import POISSON, ArrivalProcess

FIRST_LOOK_S = 10.0
LONGEST_PROBE_S = 60.0
"""A longer look is made of several probes. An interruption loses one probe."""
WARM_UP_PROBE_S, LONGEST_WARM_UP_S = 5.0, 60.0


def looks_s(rate_per_minute: float, percentile: float, longest_s: float) -> tuple[float, ...]:
    """Returns the seconds of load after which the test looks. The last is `longest_s`.

    Empty if `longest_s` is too short for the percentile.
    """
    shortest = shortest_s(rate_per_minute, percentile)
    first = max(FIRST_LOOK_S, shortest)
    if longest_s < shortest:
        return ()
    steps = max(round(np.log2(longest_s / first)), int(longest_s > first))
    return tuple(float(at) for at in np.geomspace(min(first, longest_s), longest_s, steps + 1))


def errors(looks: tuple[float, ...]) -> tuple[float, ...]:
    """Returns the error that each bound may have at each look; the sum is `ERROR`."""
    return tuple(ERROR * look / sum(looks) for look in looks)


def shortest_s(rate_per_minute: float, percentile: float, error: float = ERROR) -> float:
    """Returns the fewest seconds of load whose requests can keep the percentile below the limit."""
    return samples_needed(percentile, error) / (rate_per_minute / 60) / (1 - IN_FLUX)


def first_conclusive_s(rate_per_minute: float, percentile: float, looks: tuple[float, ...]) -> float:
    """Returns the first look that has enough requests to conclude."""
    enough = (
        at
        for at, error in zip(looks, errors(looks), strict=True)
        if shortest_s(rate_per_minute, percentile, error) <= at
    )
    return next(enough, looks[-1])


def warm_up(probe: SendProbe, rate_per_minute: float, limit: Limit) -> None:
    """Sends the rate until the latency has settled within the limit, for `LONGEST_WARM_UP_S` at most.

    A service that has just started can settle above the limit first: its queue is full until it is warm.
    """
    passed = 0.0
    intended, latencies = [np.array([])], [np.array([])]
    while passed < LONGEST_WARM_UP_S:
        seen = probe(rate_per_minute, WARM_UP_PROBE_S)
        intended.append(seen.intended_s + passed)
        latencies.append(np.minimum(seen.latencies_ms, 1e9))
        passed += WARM_UP_PROBE_S
        settled = warm_up_s(np.concatenate(intended), np.concatenate(latencies), passed)
        late_share = float(np.mean(seen.latencies_ms > (limit.latency_ms or np.inf))) if len(seen.latencies_ms) else 1.0
        if settled is not None and settled <= passed - WARM_UP_PROBE_S / 2 and late_share <= limit.allowed:
            return


@dataclass(slots=True)
class SequentialTest:
    """One test. `seen` and `interval` can be read at any time, also after an interruption."""

    probe: SendProbe
    rate_per_minute: float
    limit: Limit
    looks_s: tuple[float, ...]
    arrivals: ArrivalProcess = POISSON
    on_look: Callable[[PercentileInterval], None] = lambda interval: None
    seen: list[ProbeRecords] = field(default_factory=list)
    passed_s: float = 0.0
    interval: PercentileInterval | None = None
    """The result of the latest look; None before the first."""

    @property
    def verdict(self) -> Verdict:
        return "unclear" if self.interval is None else self.interval.verdict

    def run(self) -> Verdict:
        """Sends load and looks until the verdict is clear or the time is over."""
        assert self.limit.latency_ms is not None
        for look_s, error in zip(self.looks_s, errors(self.looks_s), strict=True):
            while self.passed_s < look_s:
                duration_s = (look_s - self.passed_s) / np.ceil((look_s - self.passed_s) / LONGEST_PROBE_S)
                self.seen.append(self.probe(self.rate_per_minute, float(duration_s)))
                self.passed_s += float(duration_s)
            limit = self.limit
            self.interval = percentile_interval(self.seen, limit.percentile, limit.bound_ms, error, self.arrivals)
            self.on_look(self.interval)
            if self.verdict != "unclear":
                break
        return self.verdict
