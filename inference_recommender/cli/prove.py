"""`prove`: whether the recommended fleet keeps its objective under open-loop arrivals, at the rates it would get."""

import argparse
import json
import time
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from inference_recommender.capacity.percentile_interval import PercentileInterval
from inference_recommender.capacity.search import Bottleneck
from inference_recommender.cli import arguments
from inference_recommender.load_test.load_test import machine_description
from inference_recommender.load_test.probe import GeneratorProbe
from inference_recommender.load_test.target import Target, TargetAws, endpoint_target, url_target
from inference_recommender.output import Commands, add_command, number, stdout_console, tell, warn
from inference_recommender.payloads import payload_archive
from inference_recommender.prove.kept import PROOF, add_proof, recommendation_to_prove
from inference_recommender.prove.loads import Load
from inference_recommender.prove.proving import Origin, Proving
from inference_recommender.prove.refusals import (
    refuse_another,
    refuse_beyond_the_lease,
    refuse_less_than_the_fleet,
)
from inference_recommender.prove.sequential import LONGEST_WARM_UP_S
from inference_recommender.run_folder import RunFolder
from workloads import (
    ROOT,
    Interrupted,
    MissingArtifact,
    Proof,
    Recommendation,
    UsageError,
    Workload,
    load_artifact,
    load_workload,
)
from workloads.files import from_here

EXIT_CODES = {"kept": 0, "missed": 1, "unclear": 4}
PAYLOADS = "payloads.tar.gz"
DURATION_S = 900.0
OVERHEAD_SHARE = 0.1
"""The share of the load's seconds that starting the generator and draining it take beside them."""

DESCRIPTION = """Sends to each instance what the recommended fleet would give it: at the peak, and at the peak with an
instance or a zone lost. Open loop, Poisson arrivals; latency counts from when each request was due. Each load ends when
the interval of the objective's percentile lies clear of the limit. The result is added to the recommendation and to the
report of its run. Exit code 0: kept; 1: missed; 4: unclear, or the generator was the bottleneck."""


def add(commands: Commands) -> None:
    parser = add_command(
        commands,
        "prove",
        "whether the recommended fleet keeps its objective",
        "prove spellcheck --url http://localhost:8000",
        DESCRIPTION,
    )
    parser.add_argument("workload", metavar="WORKLOAD", help="whose recommendation is proven")
    parser.add_argument(
        "--from",
        type=Path,
        dest="source",
        metavar="FILE",
        help="a recommendation; default: recommendation.json of the workload",
    )
    asked = parser.add_mutually_exclusive_group()
    asked.add_argument("--endpoint", metavar="NAME", help="to ask; default: the stack's")
    asked.add_argument("--url", metavar="URL", help="of a KServe v2 server to ask, or of its model's infer")
    parser.add_argument("--model", metavar="NAME", help="in the server; default: the workload's name")
    parser.add_argument("--instance-type", metavar="TYPE", help="what serves at the URL; default: not known")
    parser.add_argument("--instances", type=int, metavar="N", help="how many serve at the URL; default: 1")
    parser.add_argument("--fleet", action="store_true", help="refuse fewer instances than the recommended fleet has")
    parser.add_argument(
        "--max-duration-s",
        type=arguments.positive,
        default=DURATION_S,
        metavar="S",
        help=f"of both loads together; default: {DURATION_S:g}",
    )
    parser.add_argument("--runs", type=Path, default=ROOT / "runs", metavar="DIR", help="where run folders go")
    parser.add_argument("--json", action="store_true", help="print the proof as one JSON document")
    parser.set_defaults(command=_prove)


def _prove(options: argparse.Namespace, stderr: Console) -> int:
    folder = load_workload(options.workload)
    folder.workload.latency_objective  # noqa: B018 - raises for a batch
    file = options.source or folder.recommendation_file
    recommendation, chosen = recommendation_to_prove(folder, file)
    folder = folder.measured_on(recommendation.target)
    workload = folder.workload
    if recommendation.objective != workload.latency_objective:
        warn(
            stderr,
            f"{from_here(file)}: was measured for another objective than workload.toml has now, and is proven for "
            "that.",
        )
    target = _target(options, workload, recommendation)
    refuse_another(target, recommendation, chosen, file)
    if options.fleet:
        refuse_less_than_the_fleet(target, chosen, recommendation.objective.peak_invocations_per_minute)
    longest_s = (options.max_duration_s + LONGEST_WARM_UP_S) * (1 + OVERHEAD_SHARE)
    refuse_beyond_the_lease(target, longest_s, datetime.now(UTC))
    if target.archive_sha256 is None:
        warn(stderr, f"Nothing tells which archive {target.name} serves: the proof is of whatever does.")
    run_folder = RunFolder(options.runs / _name(options.workload))
    proving = Proving(
        recommendation=recommendation,
        target=target,
        probe=GeneratorProbe(
            run_folder.path / PAYLOADS,
            run_folder.path,
            url=target.url,
            endpoint=target.endpoint,
            tell=partial(tell, stderr),
            seed=int(time.time()),
        ),
        longest_s=options.max_duration_s,
        sizing=workload.sizing,
        looked=partial(_tell_look, stderr, recommendation),
    )
    run_folder.keep_workload(folder.workload)
    run_folder.keep_bytes(PAYLOADS, payload_archive(folder.payloads(), recommendation.objective.rows_per_invocation))
    proof = _run(proving, run_folder)
    report = add_proof(recommendation, proof, file, options.runs)
    if options.json:
        print(json.dumps(proof.model_dump(mode="json"), indent=2, ensure_ascii=False))
    else:
        _show(proof, recommendation)
    if report:
        tell(stderr, f"Report: {from_here(report)}")
    elif recommendation.provenance.run:
        tell(stderr, f"The report of {recommendation.provenance.run} is not here.")
    tell(stderr, f"Added to {from_here(file)}")
    if proof.verdict == "unclear":
        raise run_folder.no_verdict(f"{proof.reason} Give it longer with --max-duration-s.")
    return EXIT_CODES[proof.verdict]


def _target(options: argparse.Namespace, workload: Workload, recommendation: Recommendation) -> Target:
    """Returns what --url or --endpoint names, or else the stack's endpoint. Raises `UsageError` or `Unavailable`."""
    if options.url is None:
        for name in ("model", "instance_type", "instances"):
            if getattr(options, name) is not None:
                raise UsageError(f"--{name.replace('_', '-')}: goes with --url; of an endpoint AWS knows it.")
        aws = TargetAws()
        endpoint = options.endpoint or aws.endpoint_name(workload.stack_name)
        return endpoint_target(aws.described(endpoint), aws.region, on_this_machine=aws.is_on_this_machine())
    instances = 1 if options.instances is None else options.instances
    if instances < 1:
        raise UsageError(f"--instances: got {instances}. Allowed: 1 or more.")
    archive = _built(recommendation)
    return url_target(options.url, options.model or workload.name, instances, options.instance_type, archive)


def _built(recommendation: Recommendation) -> str | None:
    """Returns the hash of what was built last, which is what a server of one's own has; None where nothing was."""
    try:
        return load_artifact(ROOT, recommendation.workload, recommendation.target).archive_sha256
    except MissingArtifact:
        return None


def _run(proving: Proving, run_folder: RunFolder) -> Proof:
    """Raises `Interrupted`, `NoVerdict` or `Unavailable`; what was measured is kept all the same."""
    path = run_folder.path

    def so_far() -> Proof:
        ended = datetime.now(UTC).isoformat(timespec="seconds")
        origin = Origin(machine=machine_description(), measured_at=ended, run=f"{path.parent.name}/{path.name}")
        proof = proving.proof(origin)
        run_folder.keep(PROOF, proof.model_dump(mode="json"))
        return proof

    try:
        proving.run()
    except KeyboardInterrupt:
        so_far()
        raise Interrupted(f"Interrupted: the proof was stopped. What was measured is kept in {run_folder}.") from None
    except Bottleneck as bottleneck:
        so_far()
        raise run_folder.no_verdict(
            f"{bottleneck}. Run it from a machine that is not the server's, or with more cores."
        ) from None
    return so_far()


def _tell_look(
    stderr: Console, recommendation: Recommendation, load: Load, rate: float, interval: PercentileInterval
) -> None:
    objective = recommendation.objective
    tell(
        stderr,
        f"    {_words(load.name)}, {rate:,.0f} invocations/min: {objective.percentile} {interval.latency_ms:,.4g} ms, "
        f"between {interval.low_ms:,.4g} and {interval.high_ms:,.4g}; the limit is {objective.model_latency_ms:g}",
    )


def _show(proof: Proof, recommendation: Recommendation) -> None:
    console, chosen = stdout_console(), recommendation.recommended
    assert chosen is not None, "it was proven"
    table = Table(
        title=f"{recommendation.workload}: {chosen.instance_count} × {chosen.instance_type}, {proof.percentile} ≤ "
        f"{proof.limit_ms:g} ms at {recommendation.objective.peak}",
        title_justify="left",
        box=SIMPLE_HEAD,
    )
    table.add_column("load")
    for head in ("instances\nleft", "sent\ninv/min", f"{proof.percentile}\nms", "95 %\ninterval", "s", "verdict"):
        table.add_column(head, justify="right")
    for each in proof.scenarios:
        low, high = each.latency_interval_ms
        table.add_row(
            _words(each.name),
            str(each.instances_left),
            number(each.invocations_per_minute, ",.0f"),
            number(each.latency_ms, ",.4g"),
            f"{number(low, ',.4g')} to {number(high, ',.4g')}",
            f"{each.duration_s:.0f}",
            each.verdict,
        )
    console.print(table)
    tell(console, f"{proof.verdict.capitalize()}. {proof.reason}")


def _words(name: str) -> str:
    return name.replace("-", " ")


def _name(workload: str) -> str:
    return f"{workload}-proof-{datetime.now(UTC).strftime('%Y%m%d-%H%M%S')}".replace("_", "-")
