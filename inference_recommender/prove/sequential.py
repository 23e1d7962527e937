"""A sequential test of one latency limit at one rate of arrivals. Pure: a `Probe` is its one port.

Requests arrive in an open loop. The test looks after `FIRST_LOOK_S`, or as soon as there are enough requests for the
percentile, then each time it has run about twice as long. It ends at the look whose interval of the percentile lies
clear of the limit (`capacity.percentile_interval`), or when its time is over. The interval holds at all looks together,
so that looking often is no way to pass: on simulated services, a percentile that is the limit itself came out as kept
in 18 of 400 tests, as missed in 2, and as unclear in all others (`benchmarks/searches/prove.py`).

What it assumes is that the service stays as it is: an hour in which it is slower is not foreseen by minutes in which
it is not.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from inference_recommender.capacity.closed_loop import Limit
from inference_recommender.capacity.levels import warm_up_s
from inference_recommender.capacity.percentile_interval import ERROR, PercentileInterval, percentile_interval
from inference_recommender.capacity.search import IN_FLUX, Probe, Seen
from inference_recommender.capacity.statistics import samples_needed

FIRST_LOOK_S = 30.0
LONGEST_PROBE_S = 60.0
"""One look's time is made of probes of at most so many seconds, of which an interruption loses one."""
WARM_UP_PROBE_S, LONGEST_WARM_UP_S = 10.0, 60.0

Verdict = Literal["kept", "missed", "unclear"]


def looks_s(rate_per_minute: float, percentile: float, longest_s: float) -> tuple[float, ...]:
    """Returns the seconds of load after which the test looks, the last of them `longest_s`; none where even that is too
    short for the percentile.
    """
    first = max(FIRST_LOOK_S, shortest_s(rate_per_minute, percentile))
    if longest_s < shortest_s(rate_per_minute, percentile):
        return ()
    steps = max(round(np.log2(longest_s / first)), int(longest_s > first))
    return tuple(float(at) for at in np.geomspace(min(first, longest_s), longest_s, steps + 1))


def shortest_s(rate_per_minute: float, percentile: float) -> float:
    """Returns the least seconds of load from which the percentile can be bounded from above."""
    return samples_needed(percentile, ERROR) / (rate_per_minute / 60) / (1 - IN_FLUX)


def warm_up(probe: Probe, rate_per_minute: float) -> None:
    """Keeps the rate up until the latency has settled, as far as it does: above its capacity a service never does."""
    passed = 0.0
    intended, latencies = [np.array([])], [np.array([])]
    while passed < LONGEST_WARM_UP_S:
        seen = probe(rate_per_minute, WARM_UP_PROBE_S)
        intended.append(seen.intended_s + passed)
        latencies.append(np.minimum(seen.latencies_ms, 1e9))
        passed += WARM_UP_PROBE_S
        settled = warm_up_s(np.concatenate(intended), np.concatenate(latencies), passed)
        if settled is not None and settled <= passed - WARM_UP_PROBE_S / 2:
            return


@dataclass(slots=True)
class SequentialTest:
    """One test, of which `seen` and `interval` can be read at any time, also after an interruption."""

    probe: Probe
    rate_per_minute: float
    limit: Limit
    looks_s: tuple[float, ...]
    looked: Callable[[PercentileInterval], None] = lambda interval: None
    """Is told each look's interval."""
    seen: list[Seen] = field(default_factory=list)
    interval: PercentileInterval | None = None
    """The latest look's; None before the first."""

    @property
    def verdict(self) -> Verdict:
        assert self.limit.latency_ms is not None
        if self.interval is None:
            return "unclear"
        if self.interval.high_ms <= self.limit.latency_ms:
            return "kept"
        return "missed" if self.interval.low_ms > self.limit.latency_ms else "unclear"

    def run(self) -> Verdict:
        """Probes and looks until the verdict is clear or the last look was taken."""
        passed = 0.0
        for look_s in self.looks_s:
            while passed < look_s:
                duration_s = (look_s - passed) / np.ceil((look_s - passed) / LONGEST_PROBE_S)
                self.seen.append(self.probe(self.rate_per_minute, float(duration_s)))
                passed += duration_s
            self.interval = percentile_interval(self.seen, self.limit.percentile, len(self.looks_s))
            self.looked(self.interval)
            if self.verdict != "unclear":
                break
        return self.verdict
