"""What else is known of a candidate, in sentences: how sure its rate is, what was left out, where time went. Pure.

Only what the candidate has: a measurement of SageMaker's own has no client's view, an older one no interval.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from workloads import Candidate


@dataclass(frozen=True, kw_only=True, slots=True)
class ClientLatency:
    """At one percentile; the difference is what requests waited because the generator or its connections were busy."""

    percentile: str
    from_send_ms: float
    from_intended_ms: float

    @property
    def difference_ms(self) -> float:
        return self.from_intended_ms - self.from_send_ms


def notes(one: Candidate) -> tuple[str, ...]:
    return tuple(_notes(one))


def client_latencies(one: Candidate) -> tuple[ClientLatency, ...]:
    """At every percentile that was measured both ways, lowest first."""
    sent, intended = one.client_latency_ms, one.client_latency_from_intended_ms
    both = sorted(sent.keys() & intended.keys(), key=lambda name: float(name[1:]))
    return tuple(
        ClientLatency(percentile=name, from_send_ms=sent[name], from_intended_ms=intended[name]) for name in both
    )


def _notes(one: Candidate) -> Iterator[str]:
    if one.max_invocations_interval:
        low, high = one.max_invocations_interval
        yield f"The rate's 95 % interval is {low:,.0f} to {high:,.0f}."
    if added := {name: count for name, count in one.instance_count_parts.items() if count and name != "peak"}:
        parts = ", ".join(f"{name} {count}" for name, count in added.items())
        yield f"Of {one.instance_count} instances the peak needs {one.instance_count_parts['peak']}; added: {parts}."
    if one.warm_up_s:
        yield f"It warmed up for {one.warm_up_s:g} s, which do not count."
    if latencies := client_latencies(one):
        worst = latencies[-1]
        yield (
            f"Client latency {worst.percentile}: {worst.from_send_ms:.4g} ms from send, "
            f"{worst.from_intended_ms:.4g} ms from intended send."
        )
