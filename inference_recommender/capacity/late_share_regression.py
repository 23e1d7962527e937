"""The rate at which the share of late requests reaches what a percentile allows, by regression. Pure.

The late requests of each block of time are counts around

    requests * exp(a + b * log(rate))

near that rate: a Poisson regression (McCullagh and Nelder, Generalized Linear Models, 1989, chapter 6). A batching
server and its stalls make some blocks far later than Poisson's law has it, so the errors of a and b are sandwich
estimates, which take the spread of the blocks as it is (White, Econometrica 50, 1982; Liang and Zeger, Biometrika 73,
1986). An end of the interval is where the fitted share is that many standard errors off the allowed one (Fieller,
Journal of the Royal Statistical Society B 16, 1954), by Student's t, because blocks with late requests are few.
"""

from dataclasses import dataclass

import numpy as np

from inference_recommender.capacity.statistics import Floats, student_t

SLOPE, SLOPE_SPREAD = 15.0, 15.0
"""Mean and standard deviation of a normal prior of b, so that few blocks have a sane slope: about ten per cent more
load makes four times as many requests late."""
WIDEST = 0.5
"""Distance around the rate, in logarithms, within which the interval is searched."""
STEPS = 40
"""Steps of Newton's method."""
FEWEST_EPISODES = 3


@dataclass(frozen=True, kw_only=True, slots=True)
class RateAtLimit:
    """The rate at which exactly the allowed share of requests is late, in the unit of the rates given."""

    rate: float
    low: float
    """Lower end of the interval; 0 where the blocks give none."""
    high: float
    """Upper end of the interval; infinite where the blocks give none."""
    slope: float
    """b: the derivative of the late share's logarithm by that of the rate."""
    episodes: float
    """Blocks with late requests, as the number of equally late ones that would say as much (Kish)."""


def late_share_regression(
    rates: Floats, requests: Floats, late: Floats, allowed: float, confidence: float
) -> RateAtLimit | None:
    """Returns the rate at which the share `allowed` is late, with the two-sided interval of `confidence`.

    The arrays have an entry per block. Returns None where fewer than `FEWEST_EPISODES` blocks say anything.
    """
    has = requests > 0
    episodes = float(late.sum() ** 2 / max((late**2).sum(), 1))
    if episodes < FEWEST_EPISODES:
        return None
    reference = float(np.average(rates[has], weights=requests[has]))
    x = np.log(rates[has] / reference)
    design = np.stack([np.ones_like(x), x], axis=1)
    fitted, covariance = _fit(design, requests[has], late[has])
    at = float((np.log(allowed) - fitted[0]) / fitted[1])
    around = at + np.linspace(-WIDEST, WIDEST, 4001)
    share = fitted[0] + fitted[1] * around - np.log(allowed)
    error = np.sqrt(covariance[0, 0] + 2 * around * covariance[0, 1] + around**2 * covariance[1, 1])
    t = student_t((1 + confidence) / 2, int(episodes) - 2)
    below, above = around[share + t * error <= 0], around[share - t * error >= 0]
    return RateAtLimit(
        rate=reference * float(np.exp(at)),
        low=reference * float(np.exp(below.max())) if len(below) else 0.0,
        high=reference * float(np.exp(above.min())) if len(above) else float("inf"),
        slope=float(fitted[1]),
        episodes=episodes,
    )


def _fit(design: Floats, requests: Floats, late: Floats) -> tuple[Floats, Floats]:
    """Returns (a, b), shape (2,), by Newton's method, and their covariance, shape (2, 2)."""
    prior = np.diag([0.0, 1 / SLOPE_SPREAD**2])
    centre = np.array([0.0, SLOPE])
    fitted = np.array([np.log(late.sum() / requests.sum()), SLOPE])
    for _ in range(STEPS):
        expected = requests * np.exp(np.clip(design @ fitted, -30, 0))
        gradient = design.T @ (late - expected) - prior @ (fitted - centre)
        curvature = (design * expected[:, None]).T @ design + prior
        step = np.linalg.solve(curvature, gradient)
        fitted = fitted + step * min(1.0, 2 / float(np.abs(step).max() + 1e-12))
        fitted[1] = max(fitted[1], 0.5)
    expected = requests * np.exp(np.clip(design @ fitted, -30, 0))
    scores = design * (late - expected)[:, None]
    inverse = np.linalg.inv((design * expected[:, None]).T @ design + prior)
    few_blocks = len(late) / (len(late) - 2)
    covariance: Floats = inverse @ (scores.T @ scores * few_blocks) @ inverse
    return fitted, covariance
