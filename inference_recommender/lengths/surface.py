"""Latency by the tokens of a request and of its answer: the medians that were measured, and the model fitted to them.

The candidates are polynomials that follow from how such models compute, for n tokens in and m tokens out, in ms:

    a + b·n                      an encoder; or any model of which input and output lengths move together
    a + b·n + c·n²               an encoder whose attention shows
    a + b·n + c·m                a decoder's steps, each of the same cost
    a + b·n + c·m + d·n·m        the same, where a step's cost grows with the input that it attends to

Each is fitted by least squares of the relative residual, so that short requests count as much as long ones. A candidate
is judged by its residuals on points that it has not seen, one left out at a time; for linear least squares they follow
from the hat matrix: e/(1 − h) (Allen's PRESS, Technometrics 16, 1974). Coefficients have a 95 % interval by bootstrap
over the points (Efron & Tibshirani 1993, chapter 9). Where the best candidate is off by more than `FITS`, and by more
than the measurement's own noise explains, there is no model. The noise of a point is half the difference of the medians
of its requests' first and second half, which lie apart in time.

Pure; it knows no server and no tokenizer.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

import numpy as np
from pydantic import Field

from inference_recommender.capacity.statistics import Floats
from workloads.document import Document

FITS = 0.10
"""The most that a model may be off, root mean square of the relative residuals of points left out."""
OF_NOISE, EXCUSED = 2.0, 0.25
"""A residual of at most so many times the points' noise is no sign of another model; beyond the second, none is taken
whatever the noise."""
BETTER = 0.9
"""A model with more terms is taken where its residual is at most so large a share of a simpler one's."""
TOGETHER = 0.95
"""From this correlation on of input and output lengths, what each costs by itself is not told."""
RESAMPLES = 1000
MEDIAN_OF_NORMAL = 0.6745
"""The median of |z| for a standard normal z."""

Predict: TypeAlias = Callable[[Floats, Floats], Floats]
"""(input tokens, output tokens) of requests → the milliseconds of each, alone on the server."""


class Sample(Document):
    """One request that was answered."""

    input_tokens: int
    output_tokens: int = Field(description="0 of a model that writes no text.")
    latency_ms: float


class Point(Document):
    """The requests of one pair of lengths, or of one input length whatever their answers."""

    input_tokens: int
    output_tokens: float = Field(description="The mean, where they differ.")
    requests: int
    p50_ms: float
    p99_ms: float = Field(description="By interpolation; of few requests it is near the slowest.")
    noise: float | None = Field(description="Of the median, as a share of it; None for fewer than four requests.")


class Coefficient(Document):
    term: str
    ms: float
    interval_ms: tuple[float, float] = Field(description="95 %, by bootstrap over the points.")


class Fit(Document):
    """A model of latency, and how far off it is."""

    formula: str
    coefficients: tuple[Coefficient, ...]
    residual: float = Field(description="Root mean square of the relative residuals of points left out.")
    worst: float = Field(description="The largest relative residual.")
    noise: float = Field(description="Of the points themselves; 0 where none is known.")


TERMS: dict[str, Callable[[Floats, Floats], Floats]] = {
    "1": lambda n, m: np.ones_like(n),
    "n": lambda n, m: n,
    "n²": lambda n, m: n * n,
    "m": lambda n, m: m,
    "n·m": lambda n, m: n * m,
}
OF_INPUT = (("1", "n"), ("1", "n", "n²"))
OF_BOTH = (("1", "n", "m"), ("1", "n", "m", "n·m"))
OF_EITHER = (("1", "n"), ("1", "m"))


def points(samples: Iterable[Sample]) -> tuple[Point, ...]:
    """Returns a point for each pair of lengths, in ascending order."""
    by_lengths: dict[tuple[int, int], list[Sample]] = {}
    for each in samples:
        by_lengths.setdefault((each.input_tokens, each.output_tokens), []).append(each)
    return tuple(_point(seen) for _, seen in sorted(by_lengths.items()))


def by_input(samples: Iterable[Sample]) -> tuple[Point, ...]:
    """Returns a point for each input length, in ascending order."""
    by_length: dict[int, list[Sample]] = {}
    for each in samples:
        by_length.setdefault(each.input_tokens, []).append(each)
    return tuple(_point(seen) for _, seen in sorted(by_length.items()))


def _point(seen: Sequence[Sample]) -> Point:
    latencies = [each.latency_ms for each in seen]
    half = len(latencies) // 2
    first, second = (
        (float(np.median(each)) for each in (latencies[:half], latencies[half:])) if half > 1 else (0.0, 0.0)
    )
    return Point(
        input_tokens=seen[0].input_tokens,
        output_tokens=float(np.mean([each.output_tokens for each in seen])),
        requests=len(seen),
        p50_ms=float(np.median(latencies)),
        p99_ms=float(np.percentile(latencies, 99)),
        noise=abs(first - second) / 2 / float(np.median(latencies)) if half > 1 else None,
    )


def together(measured: Sequence[Point]) -> bool:
    """Tells whether the lengths of answers follow those of their requests so closely that neither's cost is known."""
    n, m = _lengths(measured)
    if not m.any() or n.std() == 0 or m.std() == 0:
        return False
    return bool(abs(np.corrcoef(n, m)[0, 1]) >= TOGETHER)


def fit(measured: Sequence[Point], seed: int = 0) -> Fit | None:
    """Returns the simplest model that is about as near as any, or None where none is within `FITS`."""
    best: tuple[tuple[str, ...], float] | None = None
    for terms in _candidates(measured):
        if len(measured) <= len(terms):
            continue
        off = _left_out(terms, measured)
        if best is None or off < best[1] * BETTER:
            best = terms, off
    if best is None or best[1] > max(FITS, min(OF_NOISE * noise(measured), EXCUSED)):
        return None
    return _fitted(*best, measured, seed)


def noise(measured: Sequence[Point]) -> float:
    """Returns the points' relative noise as a standard deviation, by its median, so that a single point with a request
    that was held up counts for little; 0 where none is known.
    """
    known = [each.noise for each in measured if each.noise is not None]
    return float(np.median(known)) / MEDIAN_OF_NORMAL if known else 0.0


def predictor(found: Fit, measured: Sequence[Point]) -> Predict:
    """Returns how latency follows from lengths by a model that was fitted to `measured`."""
    terms, values = [each.term for each in found.coefficients], np.array([each.ms for each in found.coefficients])
    least_ms = min(each.p50_ms for each in measured)

    def predicted(n: Floats, m: Floats) -> Floats:
        # Below what was measured a line may reach 0, and no request takes no time.
        latencies: Floats = np.maximum(_design(terms, n, m) @ values, least_ms / 2)
        return latencies

    return predicted


def _candidates(measured: Sequence[Point]) -> tuple[tuple[str, ...], ...]:
    if not any(each.output_tokens for each in measured):
        return OF_INPUT
    return OF_EITHER if together(measured) else OF_BOTH


def _fitted(terms: Sequence[str], residual: float, measured: Sequence[Point], seed: int) -> Fit:
    design, wanted = _weighted(terms, measured)
    values = np.linalg.lstsq(design, wanted, rcond=None)[0]
    chance = np.random.default_rng(seed)
    resampled = np.empty((RESAMPLES, len(terms)))
    for number in range(RESAMPLES):
        drawn = chance.integers(len(wanted), size=len(wanted))
        resampled[number] = np.linalg.lstsq(design[drawn], wanted[drawn], rcond=None)[0]
    low, high = np.percentile(resampled, [2.5, 97.5], axis=0)
    return Fit(
        formula=formula(terms),
        coefficients=tuple(
            Coefficient(term=term, ms=float(value), interval_ms=(float(below), float(above)))
            for term, value, below, above in zip(terms, values, low, high, strict=True)
        ),
        residual=residual,
        worst=float(np.abs(design @ values - wanted).max()),
        noise=noise(measured),
    )


def formula(terms: Sequence[str]) -> str:
    """Returns such as "latency ≈ a + b·n + c·m"."""
    named = [letter if term == "1" else f"{letter}·{term}" for letter, term in zip("abcd", terms, strict=False)]
    return f"latency ≈ {' + '.join(named)}"


def _left_out(terms: Sequence[str], measured: Sequence[Point]) -> float:
    """Returns the root mean square of the relative residuals, each of a fit without its point."""
    design, wanted = _weighted(terms, measured)
    orthogonal, _ = np.linalg.qr(design)
    leverage = (orthogonal**2).sum(axis=1)
    residuals = wanted - orthogonal @ (orthogonal.T @ wanted)
    return float(np.sqrt(np.mean((residuals / np.maximum(1 - leverage, 1e-9)) ** 2)))


def _weighted(terms: Sequence[str], measured: Sequence[Point]) -> tuple[Floats, Floats]:
    """Returns the equations divided by what was measured: their right sides are 1, their residuals relative."""
    latencies = np.array([each.p50_ms for each in measured])
    return _design(terms, *_lengths(measured)) / latencies[:, None], np.ones(len(measured))


def _design(terms: Sequence[str], n: Floats, m: Floats) -> Floats:
    return np.stack([TERMS[term](n, m) for term in terms], axis=1)


def _lengths(measured: Sequence[Point]) -> tuple[Floats, Floats]:
    n = np.array([each.input_tokens for each in measured], np.float64)
    return n, np.array([each.output_tokens for each in measured], np.float64)
