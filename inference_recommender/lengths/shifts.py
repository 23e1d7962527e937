"""Capacity, fleet and latency where the payloads' lengths shift, estimated from the latency of a request alone. Pure.

With s(i) the time of request i alone on the server, S its mean over the payloads, S' over the shifted ones:

    by service time     S / S': a server that answers one request after another bears 1/S at most
    in full batches     the same of batches of max_batch_size requests, each as slow as its longest input and its
                        longest answer, to which the others are padded: E[s(max of a batch)] before and after
    within the limit    the highest rate at which the objective's percentile keeps the limit, after over before, of a
                        server with one queue: P(wait > t) = ρ·exp(−ρ·t / W), ρ = λ·S, W = λ·E[s²] / (2(1 − ρ)) the
                        mean wait of M/G/1 (Pollaczek–Khinchine; Kleinrock, Queueing Systems I, 5.6), the
                        exponential tail that of heavy traffic (Kingman 1962); a request is late where its wait is
                        over limit − s(i)

The last is what a capacity is multiplied by. It is an estimate: Triton answers requests that wait together, several
copies of a model work side by side, and a request's time alone includes what its connection costs and the model does
not. Capacity itself is not predicted, only what it is multiplied by; docs/lengths.md has some beside the truth.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from inference_recommender.capacity.statistics import Floats
from inference_recommender.lengths.surface import Predict
from inference_recommender.sizing.fleet import Demand, fleet
from workloads import LatencyObjective, LengthShift, Sizing

BATCHES = 2000
"""Batches that are drawn for the mean of their longest."""
HALVINGS = 50
ASKED = "as measured"


@dataclass(frozen=True, kw_only=True, slots=True)
class Lengths:
    """Requests by their tokens; one entry of each array per request."""

    inputs: Floats
    outputs: Floats
    """All 0 where the model writes no text."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Bounds:
    """The most tokens that a request and an answer may have."""

    inputs: int
    outputs: int
    """0 where the model writes no text."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Service:
    """How a server's latency follows from lengths."""

    predict: Predict
    scatter: Floats
    """Latencies of requests over the median of those of their lengths."""
    shortest: tuple[int, int]
    """Input and output tokens, the fewest that were measured."""
    longest: tuple[int, int]
    batch: int
    """The most requests that are answered together."""

    def times(self, lengths: Lengths) -> Floats:
        """Returns the milliseconds of each request alone."""
        return self.predict(lengths.inputs, lengths.outputs)

    def knows(self, lengths: Lengths) -> bool:
        """Tells whether all of the lengths are within those that were measured."""
        both = zip((lengths.inputs, lengths.outputs), self.shortest, self.longest, strict=True)
        return all(low <= each.min() and each.max() <= high for each, low, high in both)


def shifted(lengths: Lengths, bounds: Bounds) -> dict[str, Lengths]:
    """Returns the shifts that are always estimated, by name: no request becomes longer than the model takes."""
    count = len(lengths.inputs)

    def grown(factor: float) -> Lengths:
        return Lengths(
            inputs=np.minimum(np.ceil(lengths.inputs * factor), bounds.inputs),
            outputs=np.minimum(np.ceil(lengths.outputs * factor), bounds.outputs),
        )

    p90 = (_nearest_rank(each, 90) for each in (lengths.inputs, lengths.outputs))
    inputs, outputs = (np.full(count, each) for each in p90)
    return {
        ASKED: lengths,
        "+25 %": grown(1.25),
        "+50 %": grown(1.5),
        "all at P90": Lengths(inputs=inputs, outputs=outputs),
        "all at the limits": Lengths(inputs=np.full(count, bounds.inputs), outputs=np.full(count, bounds.outputs)),
    }


def estimated(
    service: Service,
    asked: Mapping[str, Lengths],
    objective: LatencyObjective,
    sizing: Sizing,
    invocations_per_minute: float | None,
) -> tuple[LengthShift, ...]:
    """Returns what each of `asked` makes of an instance that bears `invocations_per_minute` of the first of them."""
    found: list[LengthShift] = []
    before = next(iter(asked.values()))
    of_before = _Facts.of(service, before, objective)
    for name, lengths in asked.items():
        facts = _Facts.of(service, lengths, objective)
        scale = facts.rate / of_before.rate if of_before.rate else 0.0
        rate = None if invocations_per_minute is None else invocations_per_minute * scale
        sized = fleet(rate, Demand.of(objective), sizing) if rate else None
        found.append(
            LengthShift(
                name=name,
                mean_input_tokens=float(lengths.inputs.mean()),
                mean_output_tokens=float(lengths.outputs.mean()) if lengths.outputs.any() else None,
                service_ms=facts.service_ms,
                scale_by_service_time=of_before.service_ms / facts.service_ms,
                scale_in_full_batches=of_before.batch_ms / facts.batch_ms,
                scale_within_limit=scale,
                max_invocations_per_minute=rate,
                instance_count=sized.instance_count if sized else None,
                unloaded_latency_ms=facts.unloaded_ms,
                misses_unloaded=facts.unloaded_ms > objective.model_latency_ms,
                extrapolated=not service.knows(lengths),
            )
        )
    return tuple(found)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Facts:
    service_ms: float
    batch_ms: float
    unloaded_ms: float
    rate: float
    """Requests a millisecond within the limit, of M/G/1."""

    @classmethod
    def of(cls, service: Service, lengths: Lengths, objective: LatencyObjective) -> "_Facts":
        times = service.times(lengths)
        percentile = objective.percentile_rank
        return cls(
            service_ms=float(times.mean()),
            batch_ms=float(service.times(_longest_of_batches(lengths, service.batch)).mean()),
            unloaded_ms=float(np.percentile(np.outer(times, service.scatter), percentile)),
            rate=rate_within(times, objective.model_latency_ms, 1 - percentile / 100),
        )


def rate_within(times_ms: Floats, limit_ms: float, late: float) -> float:
    """Returns the highest rate, a millisecond, at which at most the share `late` waits beyond the limit; 0: none."""
    mean, square = float(times_ms.mean()), float((times_ms**2).mean())
    left = limit_ms - times_ms

    def late_share(rate: float) -> float:
        load = rate * mean
        wait = rate * square / (2 * (1 - load))
        waits = load * np.exp(-load * np.maximum(left, 0.0) / wait)
        return float(np.where(left < 0, 1.0, waits).mean())

    low, high = 0.0, 1 / mean
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if late_share(middle) <= late else (low, middle)
    return low if low > high * 1e-6 else 0.0


def _longest_of_batches(lengths: Lengths, batch: int) -> Lengths:
    """Returns the longest input and the longest answer of batches that are drawn of the requests."""
    drawn = np.random.default_rng(0).integers(len(lengths.inputs), size=(BATCHES, batch))
    return Lengths(inputs=lengths.inputs[drawn].max(axis=1), outputs=lengths.outputs[drawn].max(axis=1))


def _nearest_rank(values: Floats, percentile: float) -> float:
    return float(np.percentile(values, percentile, method="inverted_cdf"))
