"""The use case of `prove`: checks the recommendation, sends the load, and adds the proof to the recommendation."""

import time
import warnings
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

from aws_api.sagemaker import SageMakerAccount
from inference_recommender.capacity.arrivals import check_length
from inference_recommender.capacity.search import Bottleneck
from inference_recommender.kserve import content_type
from inference_recommender.load_generator.time_stamps import arrivals_of, fitted, read_stamps
from inference_recommender.measure.percentile_interval import PercentileInterval
from inference_recommender.measure.probe import GeneratorProbe, Tell
from inference_recommender.measure.proving import PROOF, Load, Proving, default_duration_s, late_in_words, milliseconds
from inference_recommender.measure.sequential import LONGEST_WARM_UP_S, WARM_UP_PROBE_S
from inference_recommender.measure.system import UNKNOWN_TYPE, SystemUnderTest, machine_description
from inference_recommender.measure.workload_run import system_to_measure
from inference_recommender.payloads import header_size, payload_archive
from inference_recommender.report.run_report import rewrite
from inference_recommender.run_folder import PAYLOADS, RunFolder, run_name
from workloads import (
    ArrivalProcess,
    Candidate,
    Interrupted,
    Proof,
    Recommendation,
    UsageError,
    WorkloadFolder,
    load_workload,
)
from workloads.files import from_here

OVERHEAD_SHARE = 0.1
"""The share of the load's seconds that starting the generator and draining it take beside them."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FleetProof:
    """A finished proof and its files."""

    proof: Proof
    recommendation: Recommendation
    """The recommendation with the proof."""
    file: Path
    run_folder: RunFolder
    report: Path | None
    """The report of the recommendation's run; None if its folder is on another machine."""
    longest_s: float


def prove(
    workload: str | WorkloadFolder,
    *,
    recommendation: str | Path | None = None,
    endpoint: str | None = None,
    url: str | None = None,
    instances: str | None = None,
    max_duration_s: float | None = None,
    runs: Path = Path("runs"),
    progress: Tell = lambda sentence: None,
    warn: Tell = warnings.warn,
) -> FleetProof:
    """Tests a recommended fleet with open-loop arrivals as the command `prove` does, and adds the proof to it.

    The server is the stack's endpoint, `endpoint`, or `url` with `instances` behind it. `recommendation` is a file, by
    default recommendation.json of the workload. `progress` receives the plan, and the latency at each look. The
    `verdict` of the proof is "kept", "missed" or "unclear". Raises `workloads.UsageError`, `Unavailable`,
    `Interrupted`, or `NoVerdict` if the load generator was the bottleneck.
    """
    folder = load_workload(workload) if isinstance(workload, str) else workload
    _ = folder.workload.latency_objective  # a batch has none
    file = folder.recommendation_file if recommendation is None else Path(recommendation)
    measured, chosen = _recommendation_to_prove(folder, file)
    folder = folder.measured_on(measured.target)
    if measured.objective != folder.workload.latency_objective:
        warn(
            f"{from_here(file)} was measured for another objective than workload.toml has now. The proof is for the "
            "measured objective."
        )
    system = system_to_measure(SageMakerAccount(), folder.workload, endpoint, url, instances)
    _check_artifact(system, measured, chosen, file)
    arrivals = arrivals_of(measured.objective, folder.path)
    peak_of_instance = measured.objective.peak_invocations_per_minute / (chosen.instance_count or 1)
    rate = peak_of_instance * system.instances
    process = fitted(arrivals, rate)
    longest_s = max_duration_s or default_duration_s(process, rate)
    with_overhead_s = (longest_s + LONGEST_WARM_UP_S) * (1 + OVERHEAD_SHARE)
    _check_endpoint_lifetime(system, with_overhead_s, datetime.now(UTC))
    if system.archive_sha256 is None:
        warn(f"The archive that {system.name} serves is unknown, so the proof cannot check it.")
    run_folder = RunFolder(runs / run_name(folder.workload.name, "proof"))
    proving = Proving(
        recommendation=measured,
        system=system,
        probe=GeneratorProbe(
            run_folder.path / PAYLOADS,
            run_folder.path,
            system,
            content_type=content_type(header_size(folder.workload.model.fields, measured.objective)),
            arrivals=arrivals,
            tell=progress,
            seed=int(time.time()),
        ),
        longest_s=longest_s,
        sizing=folder.workload.sizing,
        arrivals=process,
        on_look=partial(_tell_look, progress, measured),
    )
    _check_recording(arrivals, proving)
    run_folder.keep_workload(folder.workload)
    run_folder.keep_bytes(PAYLOADS, payload_archive(folder.payloads(), measured.objective))
    _tell_plan(progress, proving)
    proof = _run(proving, run_folder)
    recommended = measured.model_copy(update={"proof": proof})
    return FleetProof(
        proof=proof,
        recommendation=recommended,
        file=file,
        run_folder=run_folder,
        report=rewrite(recommended, file, runs),
        longest_s=longest_s,
    )


def _check_recording(arrivals: ArrivalProcess, proving: Proving) -> None:
    """Raises `UsageError` if the recorded arrivals are shorter than the longest test at its rate."""
    if arrivals.file:
        stamps_s = read_stamps(Path(arrivals.file))
        for _, rate, _, longest_s in proving.plan():
            check_length(stamps_s, rate / 60, longest_s)


def _run(proving: Proving, run_folder: RunFolder) -> Proof:
    """Raises `Interrupted`, `NoVerdict` or `Unavailable`. proof.json is written in the first two cases, too."""

    def so_far() -> Proof:
        ended = datetime.now(UTC).isoformat(timespec="seconds")
        proof = proving.proof(machine=machine_description(), measured_at=ended, run=run_folder.relative_name)
        run_folder.keep(PROOF, proof.model_dump(mode="json"))
        return proof

    try:
        proving.run()
    except KeyboardInterrupt:
        so_far()
        raise Interrupted(f"Interrupted. Measurements: {run_folder}.") from None
    except Bottleneck as bottleneck:
        so_far()
        raise run_folder.no_verdict(
            f"{bottleneck}. Run the generator on another machine than the server, or on one with more cores."
        ) from None
    return so_far()


def _tell_plan(tell: Tell, proving: Proving) -> None:
    tell(f"Warm-up: {WARM_UP_PROBE_S:.0f} s to {LONGEST_WARM_UP_S:.0f} s")
    for name, rate, shortest_s, longest_s in proving.plan():
        tell(f"{name.replace('-', ' ')}: {rate:,.0f} invocations/min, {shortest_s:.0f} s to {longest_s:.0f} s")


def _tell_look(
    tell: Tell, recommendation: Recommendation, load: Load, rate: float, interval: PercentileInterval
) -> None:
    objective, name = recommendation.objective, load.name.replace("-", " ")
    latency = interval.latency_ms if interval.latency_ms < float("inf") else None
    tell(
        f"    {name}: {objective.percentile} {milliseconds(latency)} at {rate:,.0f} invocations/min "
        f"(limit {objective.model_latency_ms:g} ms): {late_in_words(interval)}"
    )


def _recommendation_to_prove(folder: WorkloadFolder, file: Path) -> tuple[Recommendation, Candidate]:
    """Returns the recommendation and its fleet. Raises `UsageError` or `InvalidDocument`."""
    name = folder.workload.name
    measure = f"Measure one: python -m inference_recommender run {name}"
    if not file.exists():
        raise UsageError(f"{file} does not exist, so there is no recommendation to prove. {measure}")
    recommendation = Recommendation.from_json(file)
    if recommendation.workload != name:
        raise UsageError(f"{file}: workload: got '{recommendation.workload}'. Allowed: '{name}'.")
    chosen = recommendation.recommended
    if chosen is None or chosen.instance_count is None:
        raise UsageError(f"{file}: recommended: is null, so there is no fleet to prove. {measure}")
    return recommendation, chosen


def _check_artifact(system: SystemUnderTest, recommendation: Recommendation, chosen: Candidate, file: Path) -> None:
    """Raises `UsageError` if the target serves another archive or runs on another instance type."""
    measured, serves = recommendation.archive_sha256, system.archive_sha256
    if serves is not None and serves != measured:
        raise UsageError(
            f"{file}: archive_sha256: {measured[:12]}… was measured, but {system.name} serves {serves[:12]}…. Deploy "
            "the measured archive, or measure the deployed one."
        )
    if system.instance_type not in (UNKNOWN_TYPE, chosen.instance_type):
        raise UsageError(
            f"{file}: recommended.instance_type: is {chosen.instance_type}, but {system.name} runs on "
            f"{system.instance_type}. Prove it on an endpoint of {chosen.instance_type}."
        )


def _check_endpoint_lifetime(system: SystemUnderTest, longest_s: float, now: datetime) -> None:
    """Raises `UsageError` if the target may expire before the proof ends."""
    if system.expires_at is None or now + timedelta(seconds=longest_s) <= system.expires_at:
        return
    left_s = max((system.expires_at - now).total_seconds(), 0)
    raise UsageError(
        f"--max-duration-s: the proof may take {longest_s:,.0f} s, but {system.name} expires in {left_s:,.0f} s, at "
        f"{system.expires_at.isoformat(timespec='seconds')}. Use a shorter time or a permanent endpoint."
    )
