"""The reports of a run with a recommendation and of a proof. Pure, but `draw` and `rewrite` write files."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from inference_recommender.measurement import Measurement, local_caution
from inference_recommender.report import plots
from inference_recommender.report.candidates import (
    UNKNOWN,
    caveats,
    client_latencies,
    cpu_of,
    fleet_text,
    lengths_text,
    loss_text,
    no_candidate,
    rows_text,
)
from inference_recommender.report.configuration import configuration_table
from inference_recommender.report.document import Highlight, Plot, Report, ReportVerdict, Table, objective_text, table
from inference_recommender.report.inputs import FolderInputs, read_inputs
from inference_recommender.report.page import page
from inference_recommender.report.sections import (
    CHANGING_TRAFFIC,
    COLD_START,
    OTHER_PAYLOADS,
    cold_start_table,
    fleet_highlights,
    generator_table,
    present,
    queue_table,
    sizes_table,
)
from inference_recommender.run_folder import RunFolder, run_of
from inference_recommender.sizing.verdict import capacity_by_cv
from workloads import Candidate, LatencyObjective, Proof, Recommendation, Workload

DETAILS = (
    ("candidate", "candidate", ""),
    ("meets_objective", "objective met", ""),
    ("interval_low", "capacity, 95 % from", ",.0f"),
    ("interval_high", "to", ",.0f"),
    ("closed_loop_invocations_per_minute", "closed-loop /min", ",.0f"),
    ("model_latency_ms", "closed-loop latency, ms", ",.4g"),
    ("p50_ms", "P50, ms", ",.3g"),
    ("p95_ms", "P95, ms", ",.3g"),
    ("p99_ms", "P99, ms", ",.3g"),
    ("cpu", "CPU %", ""),
    ("warm_up_s", "warm-up, s", ",.3g"),
)
DETAILS_NOTE = (
    "Rates are per instance. Capacity is a rate of open arrivals: callers send without waiting for earlier answers. "
    "Closed-loop users wait for their answers, so they often reach a higher rate. AWS documents no percentile for a "
    "job's closed-loop latency. P50 to P99: model latency over the whole test."
)
CLIENT_LATENCY = (
    ("candidate", "candidate", ""),
    ("percentile", "percentile", ""),
    ("from_send_ms", "from actual send, ms", ".4g"),
    ("from_intended_ms", "from intended send, ms", ".4g"),
    ("difference_ms", "difference, ms", ".3g"),
)
SCENARIOS = (
    ("load", "load", ""),
    ("instances_left", "instances left", "d"),
    ("invocations_per_minute", "sent /min", ",.0f"),
    ("latency_ms", "latency, ms", ",.4g"),
    ("interval_low_ms", "95 % from", ",.4g"),
    ("interval_high_ms", "to", ",.4g"),
    ("requests", "requests", ",d"),
    ("late", "late", ",d"),
    ("late_allowed", "late allowed", ",d"),
    ("errors", "failed", ",d"),
    ("duration_s", "seconds", ",.0f"),
    ("verdict", "verdict", ""),
)
OUTCOMES: dict[str, ReportVerdict] = {"kept": "met", "missed": "missed", "unclear": "unknown"}
"""A proof's verdict → a report's."""
PROOF_VERDICTS = {"kept": "kept", "missed": "missed", "unclear": "inconclusive"}
"""A proof's verdict → the word for people."""


def run_report(
    name: str,
    workload: Workload,
    recommendation: Recommendation,
    inputs: FolderInputs,
    measured: Sequence[Measurement] = (),
) -> Report:
    """Returns the report of a recommendation, with its last proof if it has one.

    `measured` are the measurements of the run; tables that only they fill are left out without them.
    """
    objective, origin, chosen = recommendation.objective, recommendation.provenance, recommendation.recommended
    candidates, proof = recommendation.candidates, recommendation.proof
    facts = (recommendation.archive_sha256, origin.machine, origin.measured_on, origin.traffic, origin.region)
    return Report(
        kind="run",
        name=name,
        workload=workload.name,
        description=workload.description,
        objective=objective_text(objective),
        verdict=run_verdict(recommendation),
        decision=run_decision(recommendation),
        highlights=tuple(fleet_highlights(chosen, objective, proof)) if chosen else (),
        cautions=tuple(_cautions(recommendation)),
        tables=present(
            [
                candidates_table(candidates, objective),
                proof_table(proof) if proof else None,
                _details(recommendation),
                queue_table(measured),
                sizes_table(inputs),
                cold_start_table(recommendation.cold_start),
                _client_latency(candidates),
                generator_table(inputs),
                configuration_table(workload, candidates),
            ]
        ),
        notes=(*(f"{each.title}: {caveats(each)}" for each in candidates), *_explained(recommendation)),
        proof=proof,
        not_tested=(*_untested(recommendation), *_queue_untested(recommendation, measured)),
        environment={
            "fingerprint": inputs.fingerprint(*facts),
            "job": origin.job_name,
            "measured on": f"{origin.measured_on}: {origin.machine}",
            "traffic": origin.traffic,
            "measured at": origin.measured_at,
            "region": origin.region,
            "model archive": recommendation.archive_sha256,
            "run": origin.run,
            **inputs.facts(),
        },
    )


def run_verdict(recommendation: Recommendation) -> ReportVerdict:
    if recommendation.recommended is None:
        return "missed" if all(candidate.verified for candidate in recommendation.candidates) else "unknown"
    return OUTCOMES[recommendation.proof.verdict] if recommendation.proof else "met"


def run_decision(recommendation: Recommendation) -> str:
    """Returns what to do, in a sentence or two."""
    chosen, proof = recommendation.recommended, recommendation.proof
    if chosen is None:
        return f"{no_candidate(recommendation.candidates).removesuffix('.')}: no recommendation was written."
    fleet = fleet_text(chosen)
    match proof:
        case Proof(verdict="kept"):
            return f"Recommended: {fleet}. Proven with open-loop arrivals."
        case Proof(verdict="missed", reason=reason):
            return f"Do not deploy {fleet}: {reason.removesuffix('.')}."
        case Proof(reason=reason):
            return f"Not decided: {fleet}. The proof is inconclusive: {reason}"
        case _:
            prove = f"python -m inference_recommender prove {recommendation.workload}"
            return f"Recommended: {fleet}. Not proven yet: run `{prove}`."


def _cautions(recommendation: Recommendation) -> Iterator[str]:
    chosen, origin = recommendation.recommended, recommendation.provenance
    yield from local_caution(origin.measured_on, origin.machine)
    if chosen is not None:
        if chosen.capacity_basis == "estimate" and recommendation.proof is None:
            yield "The capacity is an estimate from closed-loop users. `--search` or `prove` measures it."
        loss = loss_text(chosen, recommendation.objective)
        if "not covered" in loss:
            yield loss


def candidates_table(candidates: Sequence[Candidate], objective: LatencyObjective) -> Table:
    """Returns the main table: an instance's capacity, and the fleet's size, scaling and cost."""
    return table(
        "candidates",
        "Candidates",
        (
            ("candidate", "instance type", ""),
            ("capacity_basis", "method", ""),
            ("max_invocations_per_minute", "capacity /min", ",.0f"),
            ("objective_latency_ms", f"{objective.percentile} ms", ",.4g"),
            ("instance_count", "instances", ",d"),
            ("min_max", "min–max", "s"),
            ("scaling_target", "scaling target", ",.0f"),
            ("cost_per_hour_usd", "$/h", ",.2f"),
            ("cost_per_million_invocations_usd", "$/1M", ",.3f"),
        ),
        [_row(each) for each in candidates],
    )


def _row(candidate: Candidate) -> dict[str, Any]:
    """Returns a candidate's fields, and what tables show of them in other words."""
    low, high = candidate.max_invocations_interval or (None, None)
    row = {**dict(candidate), "candidate": candidate.title, "interval_low": low, "interval_high": high}
    if scaling := candidate.autoscaling:
        row["min_max"] = f"{scaling.min_capacity}–{scaling.max_capacity}"
        row["scaling_target"] = scaling.target_invocations_per_instance
    return row


def _explained(recommendation: Recommendation) -> Iterator[str]:
    chosen, objective = recommendation.recommended, recommendation.objective
    if chosen is not None and "not covered" not in (loss := loss_text(chosen, objective)):
        yield loss
    if chosen is not None and (poisson := chosen.poisson_invocations_per_minute):
        yield (
            f"Poisson arrivals: about {poisson:,.0f} invocations/min per instance, by the estimate. The capacity "
            f"above is for {objective.arrivals.text}."
        )
    if rows := rows_text(objective, chosen):
        yield rows
    if recommendation.lengths and chosen:
        yield lengths_text(recommendation.lengths)


def _details(recommendation: Recommendation) -> Table:
    rows = []
    for each in recommendation.candidates:
        percentiles = {f"{name}_ms": value for name, value in each.model_latency_percentiles_ms}
        rows.append({**_row(each), **percentiles, "cpu": cpu_of(each, recommendation.provenance)})
    return table("details", "Candidates in detail", DETAILS, rows, DETAILS_NOTE, detail=True)


def _client_latency(candidates: Sequence[Candidate]) -> Table | None:
    rows = [
        (candidate.title, name, sent_ms, intended_ms, intended_ms - sent_ms)
        for candidate in candidates
        for name, sent_ms, intended_ms in client_latencies(candidate)
    ]
    return table("client-latency", "Client latency", CLIENT_LATENCY, rows, detail=True) if rows else None


def run_plots(
    workload: Workload, recommendation: Recommendation, measured: Sequence[Measurement], request: Mapping[str, Any]
) -> dict[str, Plot]:
    """Returns the plots of the tests with a time series, by title. `request` is the job's, with its traffic."""
    known: dict[str, Plot] = {}
    objective, traffic = workload.latency_objective, request["InputConfig"].get("TrafficPattern")
    for one, candidate in zip(measured, recommendation.candidates, strict=False):
        if one.series is None or not one.series.seconds:
            continue
        series, proof = one.series.complete(), recommendation.proof if candidate == recommendation.recommended else None
        known[f"Throughput over time: {one.instance_type}"] = plots.throughput_over_time(series, traffic, one.warm_up_s)
        against = plots.latency_against_rate(series, one, candidate, objective, proof)
        known[f"Latency against rate: {one.instance_type}"] = against
        if points := capacity_by_cv(one, objective):
            known[f"Capacity against burstiness: {one.instance_type}"] = plots.capacity_against_cv(points, objective)
    return known


def draw(run_folder: RunFolder) -> None:
    """Writes a run's report.html from its folder. Raises `UsageError` or `InvalidDocument`."""
    workload, recommendation, measured = run_folder.workload(), run_folder.recommendation(), run_folder.measurements()
    name, inputs = run_folder.path.resolve().name, read_inputs(run_folder.path)
    report = run_report(name, workload, recommendation, inputs, measured)
    run_folder.keep_report(page(report, run_plots(workload, recommendation, measured, run_folder.request())))


def rewrite(recommendation: Recommendation, file: Path, runs: Path) -> Path | None:
    """Writes a changed recommendation to `file` and to its run's folder, and draws the report again.

    Returns that report, or None if neither the folder of `file` nor `runs` has the run.
    """
    recommendation.write_json(file)
    run_folder = run_of(recommendation, file.parent, runs / Path(recommendation.provenance.run).name)
    if run_folder is None:
        return None
    run_folder.keep_recommendation(recommendation)
    draw(run_folder)
    return run_folder.report


def proof_report(name: str, proof: Proof, workload: Workload | None, inputs: FolderInputs) -> Report:
    """Returns the report of a proof's own folder, which does not hold the recommendation. `workload` is None in a
    folder of an older version.
    """
    archive = proof.archive_sha256 or UNKNOWN
    latency = UNKNOWN if proof.latency_ms is None else f"{proof.latency_ms:,.4g} ms"
    return Report(
        kind="proof",
        name=name,
        workload=workload.name if workload else None,
        description=workload.description if workload else "",
        objective=f"{proof.percentile} model latency ≤ {proof.limit_ms:g} ms",
        verdict=OUTCOMES[proof.verdict],
        decision=f"{PROOF_VERDICTS[proof.verdict].capitalize()}: {proof.reason}",
        highlights=(Highlight(label=f"{proof.percentile} (limit {proof.limit_ms:g} ms)", value=latency),),
        cautions=local_caution(proof.measured_on, proof.machine),
        tables=present([proof_table(proof), sizes_table(inputs), generator_table(inputs)]),
        proof=proof,
        not_tested=(*_untested_by(proof, None), OTHER_PAYLOADS, COLD_START, CHANGING_TRAFFIC),
        environment={
            "fingerprint": inputs.fingerprint(archive, proof.machine, proof.measured_on, proof.instance_type),
            "target": f"{proof.instances} × {proof.instance_type}: {proof.target}",
            "measured on": f"{proof.measured_on}: {proof.machine}",
            "measured at": proof.measured_at,
            "model archive": archive,
            "run": proof.run,
            **inputs.facts(),
        },
    )


def proof_table(proof: Proof) -> Table:
    rows = [
        {
            **dict(each),
            "load": each.name.replace("-", " ") + ("" if each.asked else " (not required by [sizing])"),
            **dict(zip(("interval_low_ms", "interval_high_ms"), each.latency_interval_ms, strict=True)),
            "verdict": PROOF_VERDICTS[each.verdict],
        }
        for each in proof.scenarios
    ]
    title = f"Proof: {PROOF_VERDICTS[proof.verdict]}"
    return table("proof", title, SCENARIOS, rows, f"{proof.reason} Latency is {proof.percentile}.")


def _untested(recommendation: Recommendation) -> Iterator[str]:
    chosen, proof = recommendation.recommended, recommendation.proof
    for candidate in recommendation.candidates:
        if not candidate.verified:
            yield f"Whether {candidate.title} meets the objective."
    if proof is None:
        yield "A fleet under open-loop arrivals. The command `prove` tests it."
    else:
        yield from _untested_by(proof, chosen)
    yield OTHER_PAYLOADS
    if recommendation.cold_start is None or recommendation.cold_start.total_s is None:
        yield COLD_START
    yield CHANGING_TRAFFIC


def _untested_by(proof: Proof, chosen: Candidate | None) -> Iterator[str]:
    fleet = chosen.instance_count if chosen else max((each.instances_left for each in proof.scenarios), default=None)
    if fleet and proof.instances < fleet:
        yield (
            f"How the fleet shares its load: the proof used {proof.instances} of {fleet} instances, at the rate per "
            "instance."
        )
    yield from proof.not_tested
    if "zone-lost" not in {each.name for each in proof.scenarios}:
        yield "The loss of an availability zone."
    if proof.archive_sha256 is None:
        yield "The served archive: its hash is unknown."
    longest_s = max((each.duration_s for each in proof.scenarios), default=0.0)
    yield f"Slower hours: the longest load took {longest_s:,.0f} s."


def _queue_untested(recommendation: Recommendation, measured: Sequence[Measurement]) -> Iterator[str]:
    times = [each.server for each in measured]
    times += [probe.server for each in measured if each.open_loop for probe in each.open_loop.probes]
    if measured and not any(times):
        on_sagemaker = recommendation.provenance.measured_on == "sagemaker"
        why = "SageMaker does not expose Triton's counters" if on_sagemaker else "the server reported no counters"
        yield f"Queue time against compute time in the server: {why}."
