"""`prove`: tests with open-loop arrivals whether the recommended fleet keeps its objective."""

import argparse
import time
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

from rich.console import Console

from aws_api.sagemaker import SageMakerAccount
from inference_recommender.capacity.arrivals import check_length
from inference_recommender.capacity.search import Bottleneck
from inference_recommender.cli import arguments
from inference_recommender.kserve import content_type
from inference_recommender.load_generator.time_stamps import arrivals_of, fitted, read_stamps
from inference_recommender.measure.percentile_interval import PercentileInterval
from inference_recommender.measure.probe import GeneratorProbe
from inference_recommender.measure.proving import (
    DURATION_S,
    PROOF,
    Load,
    Proving,
    default_duration_s,
    late_in_words,
    milliseconds,
)
from inference_recommender.measure.sequential import LONGEST_WARM_UP_S, WARM_UP_PROBE_S
from inference_recommender.measure.system import (
    UNKNOWN_TYPE,
    SystemUnderTest,
    machine_description,
    system_at_url,
    system_of_endpoint,
)
from inference_recommender.output import Commands, add_command, tell, warn
from inference_recommender.payloads import header_size, payload_archive
from inference_recommender.report.inputs import read_inputs
from inference_recommender.report.run_report import proof_report, rewrite
from inference_recommender.report.text import print_result
from inference_recommender.run_folder import PAYLOADS, RunFolder, run_name
from workloads import (
    ROOT,
    ArrivalProcess,
    Candidate,
    Interrupted,
    MissingArtifact,
    ModelArtifact,
    Proof,
    Recommendation,
    UsageError,
    Workload,
    WorkloadFolder,
    load_artifact,
    load_workload,
)
from workloads.files import from_here

EXIT_CODES = {"kept": 0, "missed": 1, "unclear": 4}
OVERHEAD_SHARE = 0.1
"""The share of the load's seconds that starting the generator and draining it take beside them."""

LONGER = 2.5
"""The factor by which an inconclusive proof suggests to run longer."""

DESCRIPTION = """Sends each instance its share of the recommended fleet's peak load, with the arrivals of
[objective.arrivals], by default a Poisson process. Latency counts from the time at which each request is due. The
proof counts requests over the limit and ends as soon as their share is clearly within what the percentile allows, or
above it. The load without an instance or a zone follows if [sizing] requires it, or if time is left and the capacity
allows it. The result is added to the recommendation and to the report of its run. Exit code 0: kept; 1: missed; 4:
inconclusive, or the generator was the bottleneck."""


def add(commands: Commands) -> None:
    parser = add_command(
        commands,
        "prove",
        "whether the recommended fleet keeps its objective",
        "prove spellcheck --url http://localhost:8000",
        DESCRIPTION,
    )
    parser.add_argument("workload", metavar="WORKLOAD", help="its recommendation is proven")
    parser.add_argument(
        "--from",
        type=Path,
        dest="source",
        metavar="FILE",
        help="recommendation; default: recommendation.json of the workload",
    )
    server = parser.add_mutually_exclusive_group()
    server.add_argument("--endpoint", metavar="NAME", help="endpoint to load; default: the stack's")
    server.add_argument("--url", metavar="URL", help="KServe v2 server to load, or the infer URL of its model")
    parser.add_argument("--instances", metavar="[Nx]TYPE", help="instances behind --url, such as 2xml.inf2.xlarge")
    parser.add_argument(
        "--max-duration-s",
        type=arguments.positive,
        metavar="S",
        help=f"seconds of load after the warm-up; default: {DURATION_S:g}, more for bursty arrivals",
    )
    parser.add_argument(
        "--runs", type=Path, default=ROOT / "runs", metavar="DIR", help="folder for run folders; default: runs/"
    )
    parser.add_argument("--json", action="store_true", help="print the proof as one JSON document")
    parser.set_defaults(command=_prove)


def _prove(options: argparse.Namespace, stderr: Console) -> int:
    folder = load_workload(options.workload)
    _ = folder.workload.latency_objective  # a batch has none
    file = options.source or folder.recommendation_file
    recommendation, chosen = _recommendation_to_prove(folder, file)
    folder = folder.measured_on(recommendation.target)
    workload = folder.workload
    if recommendation.objective != workload.latency_objective:
        warn(
            stderr,
            f"{from_here(file)} was measured for another objective than workload.toml has now. The proof is for the "
            "measured objective.",
        )
    system = _system(options, workload, recommendation)
    _check_artifact(system, recommendation, chosen, file)
    arrivals = arrivals_of(recommendation.objective, folder.path)
    peak_of_instance = recommendation.objective.peak_invocations_per_minute / (chosen.instance_count or 1)
    rate = peak_of_instance * system.instances
    process = fitted(arrivals, rate)
    longest_s = options.max_duration_s or default_duration_s(process, rate)
    with_overhead_s = (longest_s + LONGEST_WARM_UP_S) * (1 + OVERHEAD_SHARE)
    _check_endpoint_lifetime(system, with_overhead_s, datetime.now(UTC))
    if system.archive_sha256 is None:
        warn(stderr, f"The archive that {system.name} serves is unknown, so the proof cannot check it.")
    run_folder = RunFolder(options.runs / run_name(options.workload, "proof"))
    proving = Proving(
        recommendation=recommendation,
        system=system,
        probe=GeneratorProbe(
            run_folder.path / PAYLOADS,
            run_folder.path,
            system,
            content_type=content_type(header_size(workload.model.fields, recommendation.objective)),
            arrivals=arrivals,
            tell=partial(tell, stderr),
            seed=int(time.time()),
        ),
        longest_s=longest_s,
        sizing=workload.sizing,
        arrivals=process,
        on_look=partial(_print_look, stderr, recommendation),
    )
    _check_recording(arrivals, proving)
    run_folder.keep_workload(folder.workload)
    run_folder.keep_bytes(PAYLOADS, payload_archive(folder.payloads(), recommendation.objective))
    _print_plan(stderr, proving)
    proof = _run(proving, run_folder)
    report = rewrite(recommendation.model_copy(update={"proof": proof}), file, options.runs)
    shown = proof_report(run_folder.path.name, proof, workload, read_inputs(run_folder.path))
    print_result(shown, json=options.json, document=proof)
    for sentence in proof.not_tested:
        tell(stderr, sentence)
    if report:
        tell(stderr, f"Report: {from_here(report)}")
    elif recommendation.provenance.run:
        tell(stderr, f"The folder {recommendation.provenance.run} does not exist, so no report was updated.")
    tell(stderr, f"Added to {from_here(file)}. Measurements: {run_folder}")
    if proof.verdict == "unclear":
        tell(stderr, f"Inconclusive. Run longer: --max-duration-s {longest_s * LONGER:.0f}")
    return EXIT_CODES[proof.verdict]


def _system(options: argparse.Namespace, workload: Workload, recommendation: Recommendation) -> SystemUnderTest:
    """Returns the server at --url, the endpoint --endpoint, or the stack's. Raises `UsageError` or `Unavailable`."""
    if options.url is not None:
        built = _built(recommendation)
        model, sha256 = (built.default_model, built.archive_sha256) if built else (workload.name, None)
        return system_at_url(options.url, model, options.instances, archive_sha256=sha256)
    if options.instances is not None:
        raise UsageError("--instances: only with --url. AWS reports it for an endpoint.")
    account = SageMakerAccount()
    endpoint = options.endpoint or account.endpoint_name(workload.stack_name)
    return system_of_endpoint(account.endpoint_description(endpoint), account.region)


def _check_recording(arrivals: ArrivalProcess, proving: Proving) -> None:
    """Raises `UsageError` if the recorded arrivals are shorter than the longest test at its rate."""
    if arrivals.file:
        stamps_s = read_stamps(Path(arrivals.file))
        for _, rate, _, longest_s in proving.plan():
            check_length(stamps_s, rate / 60, longest_s)


def _built(recommendation: Recommendation) -> ModelArtifact | None:
    """Returns the latest build; None if there is none. A server at a URL is assumed to serve it."""
    try:
        return load_artifact(ROOT, recommendation.workload, recommendation.target)
    except MissingArtifact:
        return None


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


def _print_plan(stderr: Console, proving: Proving) -> None:
    tell(stderr, f"Warm-up: {WARM_UP_PROBE_S:.0f} s to {LONGEST_WARM_UP_S:.0f} s")
    for name, rate, shortest_s, longest_s in proving.plan():
        tell(stderr, f"{name.replace('-', ' ')}: {rate:,.0f} invocations/min, {shortest_s:.0f} s to {longest_s:.0f} s")


def _print_look(
    stderr: Console, recommendation: Recommendation, load: Load, rate: float, interval: PercentileInterval
) -> None:
    objective, name = recommendation.objective, load.name.replace("-", " ")
    latency = interval.latency_ms if interval.latency_ms < float("inf") else None
    tell(
        stderr,
        f"    {name}: {objective.percentile} {milliseconds(latency)} at {rate:,.0f} invocations/min "
        f"(limit {objective.model_latency_ms:g} ms): {late_in_words(interval)}",
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
