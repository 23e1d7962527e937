"""Sentences and cells about a tested configuration. A sentence appears only if its figures are known. Pure."""

import re
from collections.abc import Iterator, Sequence

from workloads import Candidate, LatencyObjective, PayloadLengths, Provenance
from workloads.instances import instance_shape
from workloads.recommendation import ScalingAdvice

UNKNOWN = "unknown"


def fleet_text(candidate: Candidate) -> str:
    """Returns the recommended fleet and its cost, such as "3 × ml.c5.xlarge, $0.71/h"."""
    cost = candidate.cost_per_hour_usd
    return f"{candidate.instance_count} × {candidate.title}" + ("" if cost is None else f", ${cost:,.2f}/h")


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
    for name, sent, intended in client_latencies(candidate)[-1:]:
        yield f"Client latency {name}: {sent:.4g} ms from send, {intended:.4g} ms from intended send."


def advice_text(advice: ScalingAdvice) -> str:
    """Returns AWS's own scaling policy, which has no latency objective, as a sentence."""
    if advice.reason is not None:
        return f"AWS returned no scaling policy: {advice.reason.removesuffix('.')}."
    metric = f" ({advice.metric})" if advice.metric else ""
    target = "" if advice.target_value is None else f", target {advice.target_value:,g}{metric}"
    least, most = (UNKNOWN if value is None else f"{value:,}" for value in (advice.min_capacity, advice.max_capacity))
    return f"AWS's own scaling policy, without a latency objective: {least} to {most} instances{target}."


def client_latencies(candidate: Candidate) -> list[tuple[str, float, float]]:
    """Returns client latency in ms from the actual and from the intended send, by percentile, lowest first. A request
    waited for the difference because the generator or its connections were busy.
    """
    sent, intended = candidate.client_latency_ms, candidate.client_latency_from_intended_ms
    both = sorted(sent.keys() & intended.keys(), key=lambda name: float(name[1:]))
    return [(name, sent[name], intended[name]) for name in both]


def rows_text(objective: LatencyObjective, candidate: Candidate | None) -> str:
    """Returns peak, capacity and cost in rows; "" if a request has one row."""
    rows = objective.rows_per_invocation
    if rows == 1:
        return ""
    peak = f"Each invocation has {rows} rows: the peak is {objective.peak_invocations_per_minute * rows:,} rows/min"
    cost = candidate.cost_per_million_invocations_usd if candidate else None
    text = f"{peak}." if cost is None else f"{peak}, and a million rows cost {cost / rows:,.3f} USD."
    capacity = candidate.max_invocations_per_minute if candidate else None
    return f"{text} Capacity per instance: {capacity * rows / 60:,.0f} rows/s." if capacity else text


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
