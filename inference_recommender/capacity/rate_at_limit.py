"""The rate at which the late share is what a percentile allows, from probes at several rates. Pure.

Near that rate the log-odds of being late are a straight line of the logarithm of the rate:

    logit(share of a probe) = logit(allowed) + slope * (log(rate) - log(rate at the limit)) + noise of the probe

This is a logistic regression with a random effect of each probe (McCullagh and Nelder, Generalized Linear Models, 1989,
chapters 4 and 14). Requests that wait behind each other are late together, so counts are divided by the design effect,
pooled over all probes (Wedderburn, Biometrika 61, 1974). The farther a probe is from the limit, the more noise it gets.
The posterior is summed over a grid of the rate, the slope and the deviation of the noise. Its priors:

- ten per cent more load gives some six times as many late requests, within a factor of three;
- the noise of a probe is mostly below a factor of e, with mean 1;
- if the saturation is known, late requests fall off below it as in an M/M/1 queue: the share over a limit L is
  exp(-(saturation - rate) * L / c) with c near 1, the variability of the queue (Kingman, Proceedings of the Cambridge
  Philosophical Society 57, 1961). The prior of log(c) is Student's t. With the probability `MISTAKEN` the saturation is
  that of a stall or of a cold service.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, log

import numpy as np

from inference_recommender.capacity.probe import Probe
from inference_recommender.capacity.statistics import Floats

STEP, MOST_STEPS = 0.001, 1500
"""The grid of rates, in logarithms."""
BEYOND, NEAR_END = 0.35, 0.02
"""Extent of the grid beyond the tried rates. An end of the interval this near to its end counts as unknown."""
SLOPES = np.geomspace(4.0, 160.0, 22)
SLOPE, SLOPE_SPREAD = 18.0, 0.9
"""Median of the slope's log-normal prior, and the deviation of its logarithm, where the saturation is not known."""
VARIABILITY, DEGREES = 0.5, 4
"""Scale and degrees of freedom of the prior of c's logarithm."""
SATURATION_ERROR, SLOPE_ERROR, MISTAKEN = 0.02, 0.5, 0.02
"""Deviations of the logarithms of the saturation, and of the slope around the one that follows from it."""
NOISES = np.array([0.0, 0.15, 0.3, 0.5, 0.75, 1.1, 1.6])
NOISE, OFF = 0.6, 0.3
"""Deviations of the noise's half-normal prior, and of the straight line as a share of the distance in log-odds."""
EFFECT, EFFECT_GROUPS = 4.0, 2
"""The design effect assumed beforehand, in requests that arrive within the limit, and the number of groups of late
requests that weigh as much."""
EFFECT_POWER, EFFECT_RANGE = 0.4, 20.0
"""The higher the late share, the longer requests are late together: the effect grows with this power of the share, from
simulation, up to this multiple of the share allowed and down to its inverse."""
ODDS = np.linspace(-16.0, 12.0, 421)
NODES, NODE_WEIGHTS = np.polynomial.hermite_e.hermegauss(11)


@dataclass(frozen=True, kw_only=True, slots=True)
class RateAtLimit:
    """The rate at which exactly the allowed share of requests is late, in the unit of the rates given."""

    rate: float
    """The posterior's median."""
    low: float
    """Ends of the interval; 0 and infinite where the probes give none."""
    high: float
    surely: float
    """The lower end of the one-sided interval of the same confidence."""
    slope: float
    """The derivative of the late share's log-odds by the logarithm of the rate."""

    @property
    def half_width(self) -> float:
        """Half the interval, as a share of the rate."""
        return (self.high - self.low) / 2 / self.rate


def rate_at_limit(
    probes: Sequence[Probe],
    allowed: float,
    confidence: float,
    *,
    limit: float,
    saturation: float | None = None,
    dispersion: float = 1.0,
) -> RateAtLimit:
    """Returns the rate at which the share `allowed` is late, with the two-sided interval of `confidence`.

    `limit` is the latency over which a request is late, in the rates' unit of time; `saturation` the most that the
    service can answer, if that is known; `dispersion` the arrivals' index of dispersion over the limit.
    """
    dispersion = max(dispersion, 1.0)
    bursts = variability(dispersion)
    slopes = SLOPES / bursts
    rates = np.log([probe.invocations_per_minute for probe in probes])
    first, last = rates.min() - BEYOND, rates.max() + BEYOND
    grid = np.linspace(first, last, min(int((last - first) / STEP) + 1, MOST_STEPS))
    prior = np.exp(-((np.log(SLOPES / SLOPE) / SLOPE_SPREAD) ** 2) / 2)[:, None] + np.zeros_like(grid)
    prior /= prior.sum()
    if saturation is not None:
        below = _below_saturation(slopes, grid, allowed, limit / bursts, saturation)
        prior = (1 - MISTAKEN) * below + MISTAKEN * prior
    effect = EFFECT * dispersion * limit * float(np.exp(rates.mean()))
    posterior = _posterior(probes, rates, slopes, grid, allowed, effect, prior)
    by_rate = posterior.sum(axis=0)
    within = np.cumsum(by_rate) - by_rate / 2
    shares = ((1 - confidence) / 2, 1 - confidence, 0.5, (1 + confidence) / 2)
    low, surely, middle, high = (float(np.interp(share, within, grid)) for share in shares)
    return RateAtLimit(
        rate=exp(middle),
        low=exp(low) if low > first + NEAR_END else 0.0,
        surely=exp(surely),
        high=exp(high) if high < last - NEAR_END else float("inf"),
        slope=float((posterior.sum(axis=1) * slopes).sum()),
    )


def variability(dispersion: float) -> float:
    """Returns Kingman's factor for waiting, relative to Poisson arrivals; at least 1."""
    return (1 + max(dispersion, 1.0)) / 2


def _posterior(
    probes: Sequence[Probe], rates: Floats, slopes: Floats, grid: Floats, allowed: float, effect: float, prior: Floats
) -> Floats:
    """Returns the probabilities by slope and rate at the limit, shape (slopes, rates), as `prior` has them before."""
    effects = design_effects(probes, allowed, effect)
    at_limit = log(allowed / (1 - allowed))
    logs = np.log(prior + 1e-300) + np.log(_prior_of_noise())[:, None, None]
    for probe, rate, each in zip(probes, rates, effects, strict=True):
        likelihoods = _log_likelihoods(probe, each, at_limit)
        odds = at_limit + slopes[:, None] * (rate - grid)
        place = np.clip((odds - ODDS[0]) / (ODDS[1] - ODDS[0]), 0, len(ODDS) - 1.001)
        index = place.astype(np.intp)
        part = place - index
        logs = logs + likelihoods[:, index] * (1 - part) + likelihoods[:, index + 1] * part
    weights = np.exp(logs - logs.max())
    posterior: Floats = weights.sum(axis=0) / weights.sum()
    return posterior


def _below_saturation(slopes: Floats, grid: Floats, allowed: float, limit: float, saturation: float) -> Floats:
    """Returns the prior by slope and rate at the limit, shape (slopes, rates)."""
    prior = np.full((len(slopes), len(grid)), 1e-300)
    for node, weight in zip(NODES, NODE_WEIGHTS, strict=True):
        distance = saturation * exp(SATURATION_ERROR * node) / np.exp(grid) - 1
        left = np.maximum(distance, 1e-6)
        variability = np.log(left * np.exp(grid) * limit / -log(allowed))
        density = (1 + (variability / VARIABILITY) ** 2 / DEGREES) ** (-(DEGREES + 1) / 2)
        of_rate = density * (1 + left) / left  # by the logarithm of the rate, not of the variability
        of_slope = np.exp(-((np.log(slopes[:, None] * left / -log(allowed)) / SLOPE_ERROR) ** 2) / 2)
        prior += weight * np.where(distance > 0, of_rate * of_slope, 0.0)
    probabilities: Floats = prior / prior.sum()
    return probabilities


def _prior_of_noise() -> Floats:
    """Returns the probability of each of `NOISES`: the width of its cell times the half-normal density."""
    edges = np.concatenate([[0.0], (NOISES[1:] + NOISES[:-1]) / 2, [2 * NOISES[-1] - NOISES[-2]]])
    prior = np.diff(edges) * np.exp(-((NOISES / NOISE) ** 2) / 2)
    probabilities: Floats = prior / prior.sum()
    return probabilities


def _log_likelihoods(probe: Probe, effect: float, at_limit: float) -> Floats:
    """Returns the logarithm of the probe's likelihood by the noise's deviation and log-odds, shape (noises, odds)."""
    requests, late = sum(probe.requests) / effect, sum(probe.late) / effect
    deviation = np.sqrt(NOISES[:, None] ** 2 + (OFF * (ODDS - at_limit)) ** 2)
    median = ODDS - NOISES[:, None] ** 2 / 2
    odds = median[:, :, None] + deviation[:, :, None] * NODES
    logs = -late * np.logaddexp(0, -odds) - (requests - late) * np.logaddexp(0, odds)
    most = logs.max(axis=2, keepdims=True)
    summed: Floats = most[:, :, 0] + np.log((np.exp(logs - most) * NODE_WEIGHTS).sum(axis=2))
    return summed


def design_effects(probes: Sequence[Probe], allowed: float, expected: float) -> list[float]:
    """Returns how many requests of each probe say as much as one independent request: at least 1.

    `expected` is the prior for a probe at the limit.
    """
    squares, degrees = expected * expected * EFFECT_GROUPS, expected * EFFECT_GROUPS
    scales = []
    for probe in probes:
        requests, late_requests = np.array(probe.requests, np.float64), np.array(probe.late, np.float64)
        total, late = float(requests.sum()), float(late_requests.sum())
        share = min(max(late / max(total, 1), allowed / EFFECT_RANGE), allowed * EFFECT_RANGE)
        scales.append((share / allowed) ** EFFECT_POWER)
        blocks = int((requests > 0).sum())
        if blocks < 2 or not 0 < late < total:
            continue
        squares += float(((late_requests - late / total * requests) ** 2).sum()) / scales[-1]
        degrees += late * (1 - late / total) * (blocks - 1) / blocks
    return [max(squares / degrees * scale, 1.0) for scale in scales]
