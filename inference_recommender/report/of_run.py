"""The report of a run that ended with a recommendation, of a proof, and of a search of a server's capacity. Pure."""

from collections.abc import Iterator, Sequence

from inference_recommender.measurement import Measurement
from inference_recommender.output import client_latencies, none_chosen
from inference_recommender.report.cold_start import cold_start_table
from inference_recommender.report.configuration import configuration_table
from inference_recommender.report.document import Report, Table, Verdict, asked, table
from inference_recommender.report.found import Found, generator_table
from inference_recommender.report.lengths import lengths_table
from inference_recommender.report.queue import queue_table
from inference_recommender.sizing.open_loop import CapacityFound
from workloads import Candidate, ColdStart, Proof, Recommendation, Workload

CANDIDATES = (
    ("candidate", "candidate", ""),
    ("meets_objective", "objective met", ""),
    ("max_invocations_per_minute", "capacity, invocations/min", ",.0f"),
    ("interval_low", "95 % from", ",.0f"),
    ("interval_high", "to", ",.0f"),
    ("capacity_basis", "method", ""),
    ("objective_latency_ms", "latency at capacity, ms", ",.4g"),
    ("warm_up_s", "warm-up, s", ",.3g"),
    ("instance_count", "instances", ",d"),
    ("cost_per_hour_usd", "USD/h", ",.2f"),
    ("cost_per_million_invocations_usd", "USD/million", ",.3f"),
    ("reason", "why", ""),
)
SCENARIOS = (
    ("load", "load", ""),
    ("instances_left", "instances left", "d"),
    ("invocations_per_minute", "sent, invocations/min", ",.0f"),
    ("latency_ms", "latency, ms", ",.4g"),
    ("interval_low_ms", "95 % from, ms", ",.4g"),
    ("interval_high_ms", "to, ms", ",.4g"),
    ("requests", "requests", ",d"),
    ("late", "late", ",d"),
    ("late_allowed", "late allowed", ",d"),
    ("errors", "failed", ",d"),
    ("duration_s", "seconds", ",.0f"),
    ("verdict", "verdict", ""),
)
PROBES = (
    ("invocations_per_minute", "invocations/min and instance", ",.0f"),
    ("duration_s", "seconds", ",.1f"),
    ("latency_ms", "latency, ms", ",.4g"),
    ("late_share", "late", ".2%"),
)
VERDICTS: dict[str, Verdict] = {"kept": "met", "missed": "missed", "unclear": "unknown"}
"""A proof's verdict → a report's."""
PROOF_VERDICTS = {"kept": "kept", "missed": "missed", "unclear": "inconclusive"}
"""A proof's verdict → the word for people."""
ONE_KIND_OF_REQUEST = "Only the requests of payloads.jsonl were sent: longer or other ones were not."
COLD_START = "How long a new instance takes until it answers within the objective was not measured."
QUEUE = "How long requests waited in the server, beside computing, was not measured: "
TRAFFIC_THAT_CHANGES = (
    "Scaling out and in under traffic that changes was not tested; the command simulate estimates it."
)


def run_report(
    name: str,
    workload: Workload,
    recommendation: Recommendation,
    found: Found,
    measured: Sequence[Measurement] = (),
) -> Report:
    """Returns the report of a recommendation, with its last proof where it has one.

    `measured` are the measurements that it was made from; tables of what only they hold are left out without them.
    """
    origin, proof = recommendation.provenance, recommendation.proof
    tables = [
        _candidates(recommendation),
        *([proof_table(proof)] if proof else []),
        lengths_table(recommendation.lengths),
        queue_table(workload, measured),
        cold_start_table(recommendation),
        _client_latency(recommendation.candidates),
        generator_table(found),
        configuration_table(workload, recommendation.candidates),
    ]
    facts = (recommendation.archive_sha256, origin.machine, origin.measured_on, origin.traffic, origin.region)
    return Report(
        kind="run",
        name=name,
        workload=workload.name,
        description=workload.description,
        asked=asked(recommendation.objective),
        verdict=run_verdict(recommendation),
        decision=decision(recommendation),
        cautions=local_caution(origin.measured_on, origin.machine),
        tables=tuple(table for table in tables if table is not None),
        proof=proof,
        not_tested=(*_untested(recommendation), *_queue_untested(recommendation, measured)),
        environment={
            "fingerprint": found.fingerprint(*facts),
            "job": origin.job_name,
            "measured on": f"{origin.measured_on}: {origin.machine}",
            "traffic": origin.traffic,
            "measured at": origin.measured_at,
            "region": origin.region,
            "model archive": recommendation.archive_sha256,
            "run": origin.run,
            **_hashes(found),
        },
    )


def run_verdict(recommendation: Recommendation) -> Verdict:
    if recommendation.recommended is None:
        return "missed" if all(candidate.verified for candidate in recommendation.candidates) else "unknown"
    return VERDICTS[recommendation.proof.verdict] if recommendation.proof else "met"


def decision(recommendation: Recommendation) -> str:
    """Returns what to do, in a sentence."""
    chosen, proof = recommendation.recommended, recommendation.proof
    if chosen is None:
        return f"Deploy none of them: {none_chosen(recommendation.candidates).removesuffix('.').lower()}."
    fleet = f"{chosen.instance_count} × {candidate_name(chosen)}"
    costs = "" if chosen.cost_per_hour_usd is None else f", for {chosen.cost_per_hour_usd:,.2f} USD an hour"
    match proof.verdict if proof else None:
        case "kept":
            return f"Deploy {fleet}{costs}: proven with open arrivals at the rates that the fleet would get."
        case "missed":
            assert proof is not None, "it has a verdict"
            return f"Do not deploy {fleet}: {proof.reason.removesuffix('.')}."
        case "unclear":
            assert proof is not None, "it has a verdict"
            return f"Prove {fleet} for longer before you deploy it{costs}. Inconclusive: {proof.reason}"
        case _:
            return f"Deploy {fleet}{costs}, once it is proven: it was measured and sized, and not proven yet."


def candidate_name(candidate: Candidate) -> str:
    settings = ", ".join(f"{key}={value}" for key, value in candidate.environment.items())
    return " ".join(part for part in (candidate.instance_type, candidate.variant or "", settings) if part)


def proof_report(name: str, proof: Proof, workload: Workload | None, found: Found) -> Report:
    """Returns the report of a proof's own folder, which does not hold the recommendation; one of an older version has
    no workload either.
    """
    generator = generator_table(found)
    archive = proof.archive_sha256 or "not known"
    return Report(
        kind="proof",
        name=name,
        workload=workload.name if workload else None,
        description=workload.description if workload else "",
        asked=f"{proof.percentile} model latency ≤ {proof.limit_ms:g} ms",
        verdict=VERDICTS[proof.verdict],
        decision=f"{PROOF_VERDICTS[proof.verdict].capitalize()}: {proof.reason}",
        cautions=local_caution(proof.measured_on, proof.machine),
        tables=(proof_table(proof), *([generator] if generator else [])),
        proof=proof,
        not_tested=tuple(_untested_by(proof, None)),
        environment={
            "fingerprint": found.fingerprint(archive, proof.machine, proof.measured_on, proof.instance_type),
            "asked": f"{proof.instances} × {proof.instance_type}: {proof.target}",
            "measured on": f"{proof.measured_on}: {proof.machine}",
            "measured at": proof.measured_at,
            "model archive": archive,
            "run": proof.run,
            **_hashes(found),
        },
    )


def capacity_report(name: str, capacity: CapacityFound, workload: Workload | None, found: Found) -> Report:
    """Returns the report of a search of a server's capacity that was not sized."""
    searched = capacity.open_loop()
    limit = f"{searched.percentile} ≤ {searched.limit_ms:g} ms"
    rate, (low, high) = searched.invocations_per_minute, searched.interval or (None, None)
    if not rate:
        said = f"No capacity within {limit} was found: {searched.reason}."
    else:
        between = "" if low is None else f" (95 % interval {low:,.0f} to {high:,.0f})"
        said = f"An instance sustains {rate:,.0f} invocations/min within {limit}{between}."
    rows = [
        (probe.invocations_per_minute, probe.duration_s, probe.latency_ms, probe.late_share)
        for probe in sorted(searched.probes, key=lambda probe: probe.invocations_per_minute)
    ]
    generator = generator_table(found)
    waiting = queue_table(workload, [capacity.measurement()]) if workload else None
    return Report(
        kind="capacity",
        name=name,
        workload=workload.name if workload else None,
        description=workload.description if workload else "",
        asked=limit,
        verdict="met" if rate else "unknown" if rate is None else "missed",
        decision=said,
        cautions=local_caution(capacity.measured_on, capacity.machine or "not known"),
        tables=tuple(
            each for each in (table("probes", "Probes", PROBES, rows), waiting, generator) if each is not None
        ),
        not_tested=(ONE_KIND_OF_REQUEST, COLD_START, "No fleet was sized or proven."),
        environment={
            "fingerprint": found.fingerprint(capacity.instance_type, capacity.machine or "", capacity.measured_on),
            "asked": f"{capacity.instances} × {capacity.instance_type}: {capacity.url or 'not known'}",
            "measured on": f"{capacity.measured_on}: {capacity.machine or 'not known'}",
            "measured at": capacity.measured_at or "not known",
            "warm-up": "not known" if capacity.warm_up_s is None else f"{capacity.warm_up_s:.3g} s",
            **_hashes(found),
        },
    )


def proof_table(proof: Proof) -> Table:
    rows = [
        (
            each.name.replace("-", " ") + ("" if each.asked else " (not required by [sizing])"),
            each.instances_left,
            each.invocations_per_minute,
            each.latency_ms,
            *each.latency_interval_ms,
            each.requests,
            each.late,
            each.late_allowed,
            each.errors,
            each.duration_s,
            PROOF_VERDICTS[each.verdict],
        )
        for each in proof.scenarios
    ]
    title = f"Proof: {PROOF_VERDICTS[proof.verdict]}"
    return table("proof", title, SCENARIOS, rows, f"{proof.reason} Latency is {proof.percentile}.")


def _candidates(recommendation: Recommendation) -> Table:
    rows = [
        (
            candidate_name(each),
            each.meets_objective,
            each.max_invocations_per_minute,
            *(each.max_invocations_interval or (None, None)),
            each.capacity_basis,
            each.objective_latency_ms,
            each.warm_up_s,
            each.instance_count,
            each.cost_per_hour_usd,
            each.cost_per_million_invocations_usd,
            each.reason,
        )
        for each in recommendation.candidates
    ]
    note = f"Rates are of one instance, costs of the fleet; latency is {recommendation.objective.percentile}."
    return table("candidates", "Candidates", CANDIDATES, rows, note)


def _client_latency(candidates: Sequence[Candidate]) -> Table | None:
    rows = [
        (candidate_name(candidate), each.percentile, each.from_send_ms, each.from_intended_ms, each.difference_ms)
        for candidate in candidates
        for each in client_latencies(candidate)
    ]
    heads = (
        ("candidate", "candidate", ""),
        ("percentile", "percentile", ""),
        ("from_send_ms", "from actual send, ms", ".4g"),
        ("from_intended_ms", "from intended send, ms", ".4g"),
        ("difference_ms", "difference, ms", ".3g"),
    )
    return table("client-latency", "Client latency", heads, rows) if rows else None


def local_caution(measured_on: str | None, machine: str) -> tuple[str, ...]:
    """Returns the sentence that figures of this machine need, or none."""
    if measured_on != "local":
        return ()
    return (
        f"Measured on this machine, not on SageMaker. {machine} stood in for every instance type: size production from "
        "a job that SageMaker ran.",
    )


def _untested(recommendation: Recommendation) -> Iterator[str]:
    chosen, proof = recommendation.recommended, recommendation.proof
    for candidate in recommendation.candidates:
        if not candidate.verified:
            yield f"Nothing shows whether {candidate_name(candidate)} keeps the objective."
    if proof is None:
        yield "No fleet was proven with open arrivals; the command prove does it."
    else:
        yield from _untested_by(proof, chosen, recommendation.cold_start)
        return
    yield ONE_KIND_OF_REQUEST
    yield from _start_untested(recommendation.cold_start)
    yield TRAFFIC_THAT_CHANGES


def _start_untested(cold_start: ColdStart | None) -> Iterator[str]:
    if cold_start is None or cold_start.total_s is None:
        yield COLD_START


def _queue_untested(recommendation: Recommendation, measured: Sequence[Measurement]) -> Iterator[str]:
    told = [each.server for each in measured]
    told += [probe.server for each in measured if each.open_loop for probe in each.open_loop.probes]
    if measured and not any(told):
        on_sagemaker = recommendation.provenance.measured_on == "sagemaker"
        why = "SageMaker leads to none of Triton's counters" if on_sagemaker else "no server told it"
        yield f"{QUEUE}{why}."


def _untested_by(proof: Proof, chosen: Candidate | None, cold_start: ColdStart | None = None) -> Iterator[str]:
    fleet = chosen.instance_count if chosen else max((each.instances_left for each in proof.scenarios), default=None)
    if fleet and proof.instances < fleet:
        yield (
            f"The proof asked {proof.instances} of the {fleet} instances, at the rate that each would get: how a fleet "
            "shares its load was not tested."
        )
    driven = {each.name for each in proof.scenarios}
    for sentence in proof.not_tested:
        yield sentence[0].upper() + sentence[1:]
    if "zone-lost" not in driven:
        yield "The loss of an availability zone was not tested."
    if proof.archive_sha256 is None:
        yield "The archive that served the proof is unknown."
    longest_s = max((each.duration_s for each in proof.scenarios), default=0.0)
    yield f"The longest load lasted {longest_s:,.0f} s: an hour in which the service is slower is not foreseen by it."
    yield ONE_KIND_OF_REQUEST
    yield from _start_untested(cold_start)
    yield TRAFFIC_THAT_CHANGES


def _hashes(found: Found) -> dict[str, str]:
    return {f"sha256 of the {name}": value for name, value in found.hashes.items()}
