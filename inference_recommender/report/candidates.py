"""Sentences and cells about a tested configuration. A sentence appears only if its figures are known. Pure."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from workloads import Candidate, LatencyObjective, PayloadLengths, Provenance, Sizing
from workloads.instances import instance_shape
from workloads.recommendation import ScalingAdvice

UNKNOWN = "unknown"


def candidate_name(candidate: Candidate) -> str:
    settings = " ".join(f"{key}={value}" for key, value in candidate.environment.items())
    return " ".join(part for part in (candidate.instance_type, candidate.variant or "", settings) if part)


def fleet_text(candidate: Candidate) -> str:
    """Returns the recommended fleet and its cost, such as "3 × ml.c5.xlarge, $0.71/h"."""
    cost = candidate.cost_per_hour_usd
    return f"{candidate.instance_count} × {candidate_name(candidate)}" + ("" if cost is None else f", ${cost:,.2f}/h")


def no_candidate(candidates: Sequence[Candidate]) -> str:
    """Returns that no candidate meets the objective, or that none was verified, as a sentence."""
    shown = " meets" if all(candidate.verified for candidate in candidates) else " is shown to meet"
    return f"No candidate{shown} the objective."


def caveats(candidate: Candidate) -> str:
    """Returns the line below the main table: why the candidate meets or misses, and how to read its figures."""
    no_price = candidate.cost_reason if candidate.cost_per_hour_usd is None else None
    return " ".join(filter(None, (candidate.reason, *notes(candidate), no_price)))


def notes(candidate: Candidate) -> Iterator[str]:
    """Yields interval, headroom, warm-up, AWS's policy and client latency, a sentence for each known one."""
    if candidate.max_invocations_interval:
        low, high = candidate.max_invocations_interval
        yield f"95 % interval: {low:,.0f} to {high:,.0f}."
    parts = candidate.instance_count_parts
    if added := {name: count for name, count in parts.items() if count and name != "peak"}:
        shown = ", ".join(f"{name} {count}" for name, count in added.items())
        yield f"Instances: {parts['peak']} for the peak, plus {shown}."
    if candidate.warm_up_s:
        yield f"Warm-up: {candidate.warm_up_s:g} s, not counted."
    if candidate.scaling_advice:
        yield advice_text(candidate.scaling_advice)
    if latencies := client_latencies(candidate):
        worst = latencies[-1]
        yield (
            f"Client latency {worst.percentile}: {worst.from_send_ms:.4g} ms from send, "
            f"{worst.from_intended_ms:.4g} ms from intended send."
        )


def advice_text(advice: ScalingAdvice) -> str:
    """Returns AWS's own scaling policy, which has no latency objective, as a sentence."""
    if advice.reason is not None:
        return f"AWS returned no scaling policy: {advice.reason.removesuffix('.')}."
    metric = f" ({advice.metric})" if advice.metric else ""
    target = "" if advice.target_value is None else f", target {advice.target_value:,g}{metric}"
    least, most = (UNKNOWN if value is None else f"{value:,}" for value in (advice.min_capacity, advice.max_capacity))
    return f"AWS's own scaling policy, without a latency objective: {least} to {most} instances{target}."


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


def client_latencies(candidate: Candidate) -> tuple[ClientLatency, ...]:
    """Returns every percentile that was measured both ways, lowest first."""
    sent, intended = candidate.client_latency_ms, candidate.client_latency_from_intended_ms
    both = sorted(sent.keys() & intended.keys(), key=lambda name: float(name[1:]))
    return tuple(
        ClientLatency(percentile=name, from_send_ms=sent[name], from_intended_ms=intended[name]) for name in both
    )


def rows_text(objective: LatencyObjective, candidate: Candidate | None) -> str:
    """Returns the peak and the cost in rows, as a sentence; "" if a request has one row."""
    rows = objective.rows_per_invocation
    if rows == 1:
        return ""
    peak = f"Each invocation has {rows} rows: the peak is {objective.peak_invocations_per_minute * rows:,} rows/min"
    cost = candidate.cost_per_million_invocations_usd if candidate else None
    return f"{peak}." if cost is None else f"{peak}, and a million rows cost {cost / rows:,.3f} USD."


def loss_text(candidate: Candidate, objective: LatencyObjective) -> str:
    """Returns whether the fleet sustains the peak after the loss of an instance, as a sentence."""
    left, capacity = (candidate.instance_count or 1) - 1, candidate.max_invocations_per_minute or 0.0
    if left and objective.peak_invocations_per_minute <= left * capacity:
        return "The loss of one instance at the peak is covered."
    each = f": {objective.peak_invocations_per_minute / left:,.0f}/min for each of the others" if left else ""
    return f"The loss of one instance at the peak is not covered{each}. sizing.spare_instances = 1 covers it."


def lengths_text(lengths: PayloadLengths) -> str:
    """Returns the payload lengths for which a recommendation is valid, as a sentence."""
    counts = lengths.input_tokens
    answers = ""
    if lengths.output_tokens is not None:
        out = lengths.output_tokens
        answers = f" Answer length: {out.p50} tokens at P50, {out.p99} at P99, {out.maximum} at most."
    return (
        f"Payload length: {counts.p50} tokens at P50, {counts.p99} at P99, {counts.maximum} at most (workload limit "
        f"{lengths.max_input_tokens}).{answers}"
    )


def count_text(candidate: Candidate, peak_invocations_per_minute: int, sizing: Sizing) -> str:
    """Returns the instances for the peak, for each kind of headroom in `sizing`, and in total, as sentences."""
    count, parts = candidate.instance_count or 0, candidate.instance_count_parts
    need, rate = parts.get("peak", count), f"{candidate.max_invocations_per_minute or 0:,.0f}"
    each = " each" if need > 1 else ""
    peak = f"The peak of {peak_invocations_per_minute:,} invocations/min needs {_instances(need)} at {rate}{each}"
    if not parts:  # a recommendation of an older version
        return f"{peak}, headroom included."
    added = ", ".join(f"{words} {parts.get(key) or 'none'}" for key, words in _headroom(sizing))
    if not added:
        return f"{peak}. No headroom is configured."
    return f"{peak}. {added[0].upper()}{added[1:]}: {_instances(count)} in all."


def _headroom(sizing: Sizing) -> Iterator[tuple[str, str]]:
    """Yields each key of [sizing] that adds headroom, and its words, in the order in which `fleet` applies them."""
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


def scaling_text(candidate: Candidate, sizing: Sizing) -> str:
    if candidate.autoscaling is None:
        return ""
    target = candidate.autoscaling.target_invocations_per_instance
    return (
        f"Autoscaling adds an instance when the average exceeds {target:,.0f} invocations/min per instance, "
        f"{sizing.safety_factor * 100:g} % of its capacity."
    )


def cpu_of(candidate: Candidate, origin: Provenance) -> str | None:
    """Returns the CPU utilisation. A machine that stands in for an instance type has its own number of cores."""
    shape = instance_shape(candidate.instance_type)
    of_type = shape.vcpus if shape else None
    vcpus = cores(origin.machine) if origin.measured_on == "local" else of_type
    return cpu_utilization(candidate.cpu_utilization_percent, vcpus)


def cpu_utilization(percent: float | None, vcpus: int | None) -> str | None:
    """Returns "92", or "142 of 200 % (2 vCPUs)": SageMaker counts 100 % for each vCPU."""
    if percent is None:
        return None
    if percent <= 100 or vcpus is None:
        return f"{percent:,.0f}"
    return f"{percent:,.0f} of {vcpus * 100} % ({vcpus} vCPUs)"


def cores(machine: str) -> int | None:
    """Returns the cores in a machine's description, such as "AMD EPYC with 2 cores"."""
    match = re.search(r"with (\d+) cores?$", machine)
    return int(match[1]) if match else None


def _instances(count: int) -> str:
    return f"{count:,} instance{'s' if count != 1 else ''}"
