"""The share of late requests of an instance by its load, from measurements. Pure.

With the probes of a search the curve goes through their late shares, made monotonic by isotonic regression, and through
the capacity. Between them the logarithm of the late share is linear in the rate. Without probes the instance is
modelled as an M/M/1 queue with capacity c at the limit L, whose time in system is exponential with rate mu - lambda:

    P(latency > L) = exp(-(mu - rate) * L),   mu = c - ln(1 - percentile) / L

An instance answers at most its highest probed rate with most requests in time, or its capacity without probes. Other
requests wait in a queue. Each seed stretches the curve to a capacity from a log-normal distribution with the measured
95 % interval.
"""

import math
from dataclasses import dataclass, replace

import numpy as np

from inference_recommender.capacity.probe import Capacity
from inference_recommender.capacity.statistics import Floats, isotonic
from workloads import Candidate, LatencyObjective, UsageError

NORMAL_95 = 1.959964
FEWEST_LATE = 1e-6
"""Late shares below this count as this."""
MOST_IN_TIME = 0.5
"""An instance keeps up with a rate at which a smaller share of requests is late."""
POINTS = 33


@dataclass(frozen=True, kw_only=True, slots=True)
class LatencyCurve:
    """Rates are per second and instance."""

    rates: tuple[float, ...]
    late_shares: tuple[float, ...]
    """At those rates, in rising order."""
    capacity: float
    """Highest rate within the objective."""
    saturation: float
    """Highest rate that an instance answers."""
    measured_up_to: float
    limit_s: float
    allowed: float
    """The late share that the percentile allows."""
    spread: float = 0.0
    """Standard deviation of the capacity's logarithm."""
    basis: str = ""
    """The source of the curve, in words."""

    def stretched(self, factor: float) -> "LatencyCurve":
        """Returns the curve of a service with `factor` times the capacity."""
        return replace(
            self,
            rates=tuple(rate * factor for rate in self.rates),
            capacity=self.capacity * factor,
            saturation=self.saturation * factor,
        )

    def late_share(self, rates: Floats) -> Floats:
        """Returns the late shares at rates per second and instance, in the steady state; flat beyond the last."""
        shares: Floats = np.exp(np.interp(rates, self.rates, np.log(self.late_shares)))
        return shares


def curve_of_candidate(candidate: Candidate, objective: LatencyObjective) -> LatencyCurve:
    """Returns the curve of a configuration without probes, an M/M/1 queue."""
    estimated = candidate.capacity_basis == "estimate"
    return replace(
        queue_curve((candidate.max_invocations_per_minute or 0) / 60, objective, 1 - objective.percentile_rank / 100),
        spread=_spread(candidate.max_invocations_interval),
        basis=f"an M/M/1 queue with the {'estimated' if estimated else 'recommended'} capacity",
    )


def queue_curve(capacity: float, objective: LatencyObjective, most_late: float) -> LatencyCurve:
    """Returns the curve of an M/M/1 queue, up to the rate at which a share `most_late` is late."""
    limit_s, allowed = objective.model_latency_ms / 1000, 1 - objective.percentile_rank / 100
    service = capacity - math.log(allowed) / limit_s
    saturation = service + math.log(most_late) / limit_s
    rates = np.linspace(0, saturation, POINTS)
    shares = np.maximum(np.exp(-(service - rates) * limit_s), FEWEST_LATE)
    return LatencyCurve(
        rates=tuple(rates.tolist()),
        late_shares=tuple(shares.tolist()),
        capacity=capacity,
        saturation=saturation,
        measured_up_to=saturation,
        limit_s=limit_s,
        allowed=allowed,
    )


def curve_of_search(found: Capacity, objective: LatencyObjective) -> LatencyCurve:
    """Returns the curve through the probes of a search that has a capacity.

    Raises `UsageError` if the lowest rate missed the objective, or the search was for another objective.
    """
    limit_s, allowed = objective.model_latency_ms / 1000, 1 - objective.percentile_rank / 100
    if (found.limit_ms, found.percentile) != (objective.model_latency_ms, objective.percentile):
        raise UsageError(
            f"The measurement is of {found.percentile} ≤ {found.limit_ms:g} ms, and the objective is now "
            f"{objective.percentile} ≤ {objective.model_latency_ms:g} ms. Measure again."
        )
    capacity = (found.invocations_per_minute or 0) / 60
    probes = sorted(found.probes, key=lambda probe: probe.invocations_per_minute)
    if not capacity:
        lowest = f" ({found.percentile} {probes[0].latency_ms:g} ms)" if probes and probes[0].latency_ms else ""
        raise UsageError(
            f"No fleet meets {found.percentile} ≤ {found.limit_ms:g} ms: the lowest rate of the open-loop search "
            f"missed it{lowest}. Raise objective.model_latency_ms in workload.toml, or measure a faster target."
        )
    rates = np.array([probe.invocations_per_minute / 60 for probe in probes])
    weights = rates * [probe.duration_s for probe in probes]
    shares = isotonic(np.clip([probe.late_share for probe in probes], FEWEST_LATE, 1.0), weights)
    known = dict(zip(rates.tolist(), shares.tolist(), strict=True))
    knots = {0.0: min(float(shares[0]), allowed)} if len(probes) else {0.0: FEWEST_LATE}
    knots |= {rate: min(share, allowed) if rate <= capacity else max(share, allowed) for rate, share in known.items()}
    knots[capacity] = allowed
    at_rates = sorted(knots)
    in_time = [rate for rate, share in known.items() if share < MOST_IN_TIME]
    return LatencyCurve(
        rates=tuple(at_rates),
        late_shares=tuple(max(knots[rate], FEWEST_LATE) for rate in at_rates),
        capacity=capacity,
        saturation=max([capacity, *in_time]),
        measured_up_to=max([capacity, *known]),
        limit_s=limit_s,
        allowed=allowed,
        spread=_spread(found.interval),
        basis=f"{len(probes)} probe{'s' * (len(probes) != 1)} with open-loop arrivals",
    )


def _spread(interval: tuple[float | None, float | None] | None) -> float:
    """Returns 0 for an interval with an unknown end."""
    low, high = interval or (None, None)
    if not low or high is None or math.isinf(high):
        return 0.0
    return math.log(high / low) / (2 * NORMAL_95)
