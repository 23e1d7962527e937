"""A probe, open-loop arrivals at one rate, and the capacity that probes or users give within a latency limit. Pure."""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from pydantic import Field

from inference_recommender.capacity.server_times import ServerTimes
from inference_recommender.capacity.statistics import MARGIN, Floats, Indices, Limit
from workloads.document import Document
from workloads.recommendation import CapacityBasis

IN_FLUX = 0.1
"""Share of each probe that is left out at its beginning, where the queue of an idle service fills up."""
FILLING = 0.2
"""Share of a probe after which a saturated service answers as much as it can."""
BLOCK_LIMITS, PROBE_BLOCK_S = 40, 4.0
"""Length of a block in multiples of the limit: much longer than the queues that a request meets, so that blocks are
nearly independent. Without a limit: seconds."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class ProbeRecords:
    """The requests of a probe in order of intended send."""

    duration_s: float
    intended_s: Floats
    """Seconds since the start of the probe."""
    latencies_ms: Floats
    """Milliseconds from the intended send. Infinite for a request that failed or had no answer."""
    server: ServerTimes | None = None


class Probe(Document):
    """The counts of a probe. Its first tenth is left out, except for `answered_per_minute` and `server`."""

    invocations_per_minute: float
    duration_s: float
    latency_ms: float | None
    """The limit's percentile. None if more requests than it allows had no answer."""
    late_share: float
    requests: tuple[int, ...] = ()
    """Requests in each block of time."""
    late: tuple[int, ...] = ()
    """Requests over the limit in each block."""
    far_late: int = 0
    """Requests over the limit by more than `MARGIN`."""
    mean_ms: float | None = None
    answered_per_minute: float | None = None
    """Rate of answers after the queue of a saturated service has filled up."""
    server: ServerTimes | None = None

    @classmethod
    def of(
        cls, rate_per_minute: float, records: ProbeRecords, limit: Limit, block_s: float | None = None, **more: Any
    ) -> Self:
        """Counts the requests of a probe by blocks of time, by default of `BLOCK_LIMITS` limits. `more`: more fields of
        a subclass.
        """
        bound_ms = limit.bound_ms
        block_s = block_s or (PROBE_BLOCK_S if np.isinf(bound_ms) else BLOCK_LIMITS * bound_ms / 1000)
        start_s = records.duration_s * IN_FLUX
        first = int(np.searchsorted(records.intended_s, start_s))
        latencies, duration = records.latencies_ms[first:], records.duration_s * (1 - IN_FLUX)
        blocks = max(int(duration / block_s), 1)
        place = (records.intended_s[first:] - start_s) * (blocks / duration)
        block: Indices = np.clip(place, 0, blocks - 1).astype(np.intp)
        late = latencies > bound_ms
        answered = latencies[np.isfinite(latencies)]
        percentile = float(np.percentile(latencies, limit.percentile, method="lower")) if len(latencies) else 0.0
        done_s = records.intended_s + records.latencies_ms / 1000
        in_time = (done_s > records.duration_s * FILLING) & (done_s <= records.duration_s)
        return cls(
            invocations_per_minute=rate_per_minute,
            duration_s=records.duration_s,
            latency_ms=percentile if np.isfinite(percentile) else None,
            late_share=float(late.sum() / max(len(latencies), 1)),
            requests=tuple(np.bincount(block, minlength=blocks).tolist()),
            late=tuple(np.bincount(block[late], minlength=blocks).tolist()),
            far_late=int((latencies > bound_ms * (1 + MARGIN)).sum()),
            mean_ms=float(answered.mean()) if len(answered) else None,
            answered_per_minute=float(in_time.sum()) * 60 / (1 - FILLING) / records.duration_s,
            server=records.server,
            **more,
        )


class Capacity(Document):
    """The highest rate within a latency limit, with its interval and how it was measured."""

    basis: CapacityBasis = "open-loop"
    invocations_per_minute: float | None
    """0 if no rate is within the limit. None if the measurement does not show the capacity."""
    interval: tuple[float, float] | None = None
    """95 % confidence interval of the rate at the limit. May be known although the capacity is not."""
    at_least: float | None = None
    """Lower bound of a capacity that is not known, or of an estimate for bursty arrivals."""
    percentile: str
    limit_ms: float
    latency_ms: float | None = None
    """The percentile at that rate, or in the probe nearest to it. For an estimate of 0: the latency of one request."""
    reason: str = Field(default="", description="Why the search ended.")
    probes: tuple[Probe, ...] = ()

    @property
    def decides(self) -> bool:
        """Whether the capacity is known."""
        return self.invocations_per_minute is not None

    @property
    def sizing_rate(self) -> float | None:
        """The rate that sizes a fleet: the lower bound, if there is one."""
        return self.at_least or self.invocations_per_minute

    def per_instance(self, instances: int) -> "Capacity":
        """Divides all rates by the number of instances that served them together."""
        if instances == 1:
            return self
        rate, at_least, interval = self.invocations_per_minute, self.at_least, self.interval
        probes = [
            probe.model_copy(update={"invocations_per_minute": probe.invocations_per_minute / instances})
            for probe in self.probes
        ]
        return self.model_copy(
            update={
                "invocations_per_minute": rate and rate / instances,
                "interval": interval and (interval[0] / instances, interval[1] / instances),
                "at_least": at_least and at_least / instances,
                "probes": tuple(probes),
            }
        )
