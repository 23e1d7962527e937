"""A candidate in words, for the terminal, `size` and the report: how its count came about, how sure its rate is. Pure.

Only what the candidate has is said: a measurement by SageMaker has no client latency, an older one no interval.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from workloads import Candidate, Sizing


@dataclass(frozen=True, kw_only=True, slots=True)
class ClientLatency:
    """Client latency at one percentile, from the actual and from the intended send."""

    percentile: str
    from_send_ms: float
    from_intended_ms: float

    @property
    def difference_ms(self) -> float:
        """Milliseconds that a request waited because the generator or its connections were busy."""
        return self.from_intended_ms - self.from_send_ms


def notes(candidate: Candidate) -> tuple[str, ...]:
    """Returns what else is known of a candidate, a sentence each."""
    return tuple(_notes(candidate))


def _notes(candidate: Candidate) -> Iterator[str]:
    if candidate.max_invocations_interval:
        low, high = candidate.max_invocations_interval
        yield f"The rate's 95 % interval is {low:,.0f} to {high:,.0f}."
    parts = candidate.instance_count_parts
    if added := {name: count for name, count in parts.items() if count and name != "peak"}:
        shown = ", ".join(f"{name} {count}" for name, count in added.items())
        yield f"Of {candidate.instance_count} instances the peak needs {parts['peak']}; added: {shown}."
    if candidate.warm_up_s:
        yield f"It warmed up for {candidate.warm_up_s:g} s, which do not count."
    if latencies := client_latencies(candidate):
        worst = latencies[-1]
        yield (
            f"Client latency {worst.percentile}: {worst.from_send_ms:.4g} ms from send, "
            f"{worst.from_intended_ms:.4g} ms from intended send."
        )


def client_latencies(candidate: Candidate) -> tuple[ClientLatency, ...]:
    """Returns every percentile that was measured both ways, lowest first."""
    sent, intended = candidate.client_latency_ms, candidate.client_latency_from_intended_ms
    both = sorted(sent.keys() & intended.keys(), key=lambda name: float(name[1:]))
    return tuple(
        ClientLatency(percentile=name, from_send_ms=sent[name], from_intended_ms=intended[name]) for name in both
    )


def count_explained(candidate: Candidate, peak_invocations_per_minute: int, sizing: Sizing) -> str:
    """Says how a sized candidate's instance count came about: the peak, each kind of headroom asked for, the total."""
    count, parts, rate = candidate.instance_count or 0, candidate.instance_count_parts, _rate(candidate)
    if not parts:  # a recommendation of before the parts were written down
        return (
            f"{peak_invocations_per_minute:,} invocations/min at the peak, over {rate} per instance and with the "
            f"headroom asked for, make {_instances(count)}."
        )
    need = _instances(parts["peak"])
    bear = f"that bear {rate} each" if parts["peak"] > 1 else f"that bears {rate}"
    peak = f"The peak of {peak_invocations_per_minute:,} invocations/min needs {need} {bear}"
    asked = [f"{what} {parts.get(key) or 'none'}" for key, what in _headroom(sizing)]
    if not asked:
        return f"{peak}; no headroom was asked for."
    told = ", ".join(asked)
    return f"{peak}. {told[0].upper()}{told[1:]}: {_instances(count)} in all."


def _headroom(sizing: Sizing) -> Iterator[tuple[str, str]]:
    """Yields each key of [sizing] that asks for headroom, and its words, in the order in which `fleet` applies them."""
    if sizing.burst_factor > 1:
        yield "burst_factor", f"bursts of {sizing.burst_factor:g} times the peak add"
    if sizing.headroom > 0:
        yield "headroom", f"{sizing.headroom * 100:g} % headroom adds"
    if sizing.spare_instances:
        spare = sizing.spare_instances
        yield "spare_instances", f"{spare} spare {'instance adds' if spare == 1 else 'instances add'}"
    if sizing.availability_zones:
        yield "availability_zones", f"the loss of one of {sizing.availability_zones} availability zones adds"
    if sizing.min_instances > 1:
        yield "min_instances", f"the minimum of {sizing.min_instances} instances adds"


def scaling_explained(candidate: Candidate, sizing: Sizing) -> str:
    if candidate.autoscaling is None:
        return ""
    target = candidate.autoscaling.target_invocations_per_instance
    return (
        f"Autoscaling adds an instance when the average exceeds {target:,.0f} invocations/min per instance, "
        f"{sizing.safety_factor * 100:g} % of what one bears."
    )


def cpu_utilization(percent: float | None, vcpus: int | None) -> str | None:
    """Returns "92" or, since SageMaker counts 100 % for each vCPU, "142 of 200 % (2 vCPUs)"."""
    if percent is None:
        return None
    if percent <= 100 or vcpus is None:
        return f"{percent:,.0f}"
    return f"{percent:,.0f} of {vcpus * 100} % ({vcpus} vCPUs)"


def cores(machine: str) -> int | None:
    """Returns the cores in a machine's description, such as "AMD EPYC with 2 cores"."""
    match = re.search(r"with (\d+) cores?$", machine)
    return int(match[1]) if match else None


def _rate(candidate: Candidate) -> str:
    return f"{candidate.max_invocations_per_minute or 0:,.0f}"


def _instances(count: int) -> str:
    return f"{count:,} instance{'s' if count != 1 else ''}"
