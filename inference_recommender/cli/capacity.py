"""`capacity`: the highest rate of arrivals that a KServe v2 server bears within a latency limit."""

import argparse
import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from aws_api.errors import AwsUnavailable, is_this_machine
from aws_api.session import AwsSession
from inference_recommender.capacity.limit import Limit
from inference_recommender.capacity.probe import Probe, ProbeRecords
from inference_recommender.capacity.rate import Capacity
from inference_recommender.capacity.search import Reason, Search, SendProbe
from inference_recommender.cli import arguments
from inference_recommender.measure.load_test import machine_description
from inference_recommender.measure.probe import GeneratorProbe
from inference_recommender.measure.served import infer_url
from inference_recommender.output import Commands, add_command, interval_text, stdout_console, tell, warn
from inference_recommender.payload_lengths import known_lengths
from inference_recommender.payloads import payload_archive
from inference_recommender.report.run_report import draw, recommendation_report
from inference_recommender.report.text import show
from inference_recommender.run_folder import RunFolder
from inference_recommender.sizing.decision import decide
from inference_recommender.sizing.open_loop import NAME, UNKNOWN_TYPE, CapacityFound
from workloads import (
    ROOT,
    Interrupted,
    ModelArtifact,
    PayloadLengths,
    Provenance,
    Recommendation,
    UsageError,
    WorkloadFolder,
    load_artifact,
    load_workload,
)
from workloads.files import from_here

NOTHING_KEEPS = 1
PAYLOADS = "payloads.tar.gz"
OPEN_LOOP = "open-loop"
"""The traffic of a recommendation from a search; no profile is."""

DESCRIPTION = """Open loop: requests arrive at a fixed rate, whatever the answers do, and latency counts from when each
was due. Probes bracket the highest rate within the limit and go on until it is known to ±5 %, or their time is over:
then the result is what is known by then, if that is ±15 % or better. Exit code 1: no rate keeps the limit; 4: the
generator was the bottleneck, or too little is known."""


def add(commands: Commands) -> None:
    parser = add_command(
        commands,
        "capacity",
        "the highest rate a server bears within a latency limit",
        "capacity spellcheck --url http://localhost:8000",
        DESCRIPTION,
    )
    parser.add_argument("workload", metavar="WORKLOAD", help="whose payloads are sent and whose objective is kept")
    parser.add_argument("--url", required=True, metavar="URL", help="of a KServe v2 server, or of its model's infer")
    parser.add_argument("--model", metavar="NAME", help="in the server; default: the workload's name")
    parser.add_argument("--payloads", type=Path, metavar="FILE", help="others to send, as payloads.jsonl is")
    parser.add_argument("--percentile", type=arguments.percentile, metavar="P", help="default: the objective's")
    parser.add_argument("--latency-limit-ms", type=arguments.positive, metavar="N", help="default: the objective's")
    parser.add_argument(
        "--max-duration-s",
        type=arguments.positive,
        default=270.0,
        metavar="S",
        help="of all probes together; default: 270",
    )
    parser.add_argument("--instance-type", metavar="TYPE", help="what serves at the URL, which a fleet is sized in")
    parser.add_argument("--instances", type=int, default=1, metavar="N", help="how many serve there; default: 1")
    parser.add_argument(
        "--recommend",
        action="store_true",
        help="write the workload's recommendation.json for review, as a job's run does; needs --instance-type",
    )
    parser.add_argument("--runs", type=Path, default=ROOT / "runs", metavar="DIR", help="where run folders go")
    parser.add_argument("--json", action="store_true", help="print the result as one JSON document")
    parser.set_defaults(command=_capacity)


def _capacity(options: argparse.Namespace, stderr: Console) -> int:
    folder = load_workload(options.workload)
    objective = folder.workload.latency_objective
    _refuse(options)
    artifact = load_artifact(ROOT, options.workload, folder.workload.hosting.target) if options.recommend else None
    percentile = options.percentile or objective.percentile
    limit = Limit(percentile=float(percentile[1:]), latency_ms=options.latency_limit_ms or objective.model_latency_ms)
    run_folder = RunFolder(options.runs / _name(options.workload))
    run_folder.keep_workload(folder.workload)
    run_folder.keep_bytes(PAYLOADS, payload_archive(folder.payloads(options.payloads), objective.rows_per_invocation))
    url = infer_url(options.url, options.model or options.workload)
    say = partial(tell, stderr)
    probe = GeneratorProbe(run_folder.path / PAYLOADS, run_folder.path, url=url, tell=say)
    search = Search(send=told(probe, limit, percentile, say), limit=limit, longest_s=options.max_duration_s)
    of = {**_origin(options, url), "rows_per_invocation": objective.rows_per_invocation}
    found = _run(search, run_folder, percentile, of)
    code = _conclude(found, search, run_folder, percentile, of, as_json=options.json)
    if artifact is not None and code == 0:
        found_there = CapacityFound.from_json(run_folder.path / NAME)
        lengths = known_lengths(folder, partial(warn, stderr))
        recommended = recommend(folder, artifact, found_there, run_folder, lengths)
        if not options.json:
            show(recommendation_report(recommended), stdout_console())
        tell(stderr, f"Report: {from_here(run_folder.report)}")
        tell(stderr, f"Written: {from_here(folder.recommendation_file)}. The next `cdk deploy` uses it.")
    return code


def _refuse(options: argparse.Namespace) -> None:
    if options.instances < 1:
        raise UsageError(f"--instances: got {options.instances}. Allowed: 1 or more.")
    if options.recommend and options.instance_type is None:
        raise UsageError("--recommend: needs --instance-type TYPE, which the fleet is sized in.")
    if options.recommend and options.payloads:
        raise UsageError("--recommend: the recommendation is for payloads.jsonl; leave out --payloads.")
    if options.recommend and (options.percentile or options.latency_limit_ms):
        raise UsageError(
            "--recommend: the recommendation is for the objective of workload.toml; leave out --percentile and "
            "--latency-limit-ms."
        )


def _origin(options: argparse.Namespace, url: str) -> dict[str, Any]:
    """Returns what is known of the server and of the machine that asks it."""
    return {
        "url": url,
        "instance_type": options.instance_type or UNKNOWN_TYPE,
        "instances": options.instances,
        "measured_on": "local" if is_this_machine(urlsplit(url).hostname or "") else "service",
        "machine": machine_description(),
        "measured_at": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def _region() -> str:
    """Returns the region whose prices hold; a server can be measured without any."""
    try:
        return AwsSession().region
    except AwsUnavailable:
        return "unknown"


def recommend(
    folder: WorkloadFolder,
    artifact: ModelArtifact,
    found: CapacityFound,
    run_folder: RunFolder,
    lengths: PayloadLengths | None = None,
) -> Recommendation:
    """Sizes the workload's fleet by what was found, keeps decision and report in `run_folder`, and writes the
    recommendation into the workload's folder, for review.
    """
    measured = (found.measurement(),)
    provenance = Provenance(
        measured_on=found.measured_on,
        machine=f"{found.url} on {found.instances} × {found.instance_type}, asked from {found.machine}"
        if found.measured_on == "service"
        else found.machine or "unknown",
        job_name=run_folder.path.name,
        job_arn=found.url or "unknown",
        traffic=OPEN_LOOP,
        percentile=found.percentile,
        measured_at=found.measured_at or "unknown",
        region=_region(),
        run=f"{run_folder.path.parent.name}/{run_folder.path.name}",
    )
    recommendation = decide(folder.workload, artifact.archive_sha256, measured, provenance, lengths)
    run_folder.keep_measurements(measured)
    run_folder.keep("request.json", {"InputConfig": {}})
    run_folder.keep_recommendation(recommendation)
    draw(run_folder)
    if recommendation.recommended is not None:
        recommendation.write_json(folder.recommendation_file)
    return recommendation


def told(probe: SendProbe, limit: Limit, percentile: str, say: Callable[[str], None]) -> SendProbe:
    """Returns the same probe, which also says what it saw."""

    def telling(rate_per_minute: float, duration_s: float) -> ProbeRecords:
        seen = probe(rate_per_minute, duration_s)
        point = Probe.of(rate_per_minute, seen, limit)
        say(f"    {percentile} {_latency(point)}, {point.late_share:.2%} late")
        return seen

    return telling


def _run(search: Search, run_folder: RunFolder, percentile: str, of: Mapping[str, Any]) -> Capacity:
    try:
        return search.run()
    except KeyboardInterrupt:
        run_folder.keep(NAME, {**document(search.result(Reason.INTERRUPTED), search, percentile), **of})
        raise Interrupted(f"Interrupted: the search was stopped. What was measured is kept in {run_folder}.") from None


def _conclude(
    found: Capacity, search: Search, run_folder: RunFolder, percentile: str, of: Mapping[str, Any], *, as_json: bool
) -> int:
    result = {**document(found, search, percentile), **of}
    run_folder.keep(NAME, result)
    if not found.decides:
        raise run_folder.no_verdict(why_none(found, search))
    if as_json:
        print(json.dumps(result, indent=2, ensure_ascii=False))
    else:
        _show(found, search, percentile, run_folder, of["rows_per_invocation"])
    if search.reason is Reason.BOTTLENECK:
        raise run_folder.no_verdict(why_none(found, search))
    return 0 if found.invocations_per_minute else NOTHING_KEEPS


def why_none(found: Capacity, search: Search) -> str:
    """Returns why there is no capacity, and what to do."""
    match search.reason:
        case Reason.BOTTLENECK:
            return (
                f"{search.complaint}. Run it from a machine that is not the server's, or with more cores; or spread "
                "the load with `run --with load-test --generators N`."
            )
        case Reason.TIME:
            return (
                f"too few samples: after {search.spent_s:.0f} s of probes the capacity is {_so_far(found)}. Give it "
                "longer with --max-duration-s."
            )
        case Reason.NEVER_SETTLED:
            return f"after {search.spent_s:.0f} s at {search.start:,.0f} invocations/min its latency had not settled."
        case _:
            return f"{found.reason}."


def _so_far(found: Capacity) -> str:
    low, high = found.interval or (found.at_least or 0.0, float("inf"))
    ends = [f"above {low:,.0f}"] if low else []
    ends += [f"below {high:,.0f}"] if high < float("inf") else []
    return f"known only to be {' and '.join(ends)} invocations/min (95 % interval)" if ends else "not known"


def document(found: Capacity, search: Search, percentile: str) -> dict[str, Any]:
    """Returns the result as JSON; rates are in invocations per minute."""
    return {
        "max_invocations_per_minute": found.invocations_per_minute or None,
        "max_invocations_interval": found.interval,
        "latency_ms": found.latency_ms,
        "percentile": percentile,
        "latency_limit_ms": found.limit_ms,
        "warm_up_s": search.warm_up_s,
        "reason": found.reason,
        "probes": [
            {
                "invocations_per_minute": point.invocations_per_minute,
                "duration_s": point.duration_s,
                "requests": sum(point.requests),
                "late_share": point.late_share,
                "latency_ms": point.latency_ms,
                "server": point.server.model_dump() if point.server else None,
            }
            for point in found.probes
        ],
    }


def _show(found: Capacity, search: Search, percentile: str, run: RunFolder, rows_per_invocation: int) -> None:
    console = stdout_console()
    table = Table(box=SIMPLE_HEAD)
    for name in ("invocations/min", "s", "requests", percentile, "late"):
        table.add_column(name, justify="right")
    for point in sorted(found.probes, key=lambda point: point.invocations_per_minute):
        rate, requests = f"{point.invocations_per_minute:,.0f}", f"{sum(point.requests):,}"
        table.add_row(rate, f"{point.duration_s:.0f}", requests, _latency(point), f"{point.late_share:.2%}")
    console.print(table)
    tell(console, sentence(found, search.warm_up_s))
    if rows_per_invocation > 1 and found.invocations_per_minute:
        rows = found.invocations_per_minute * rows_per_invocation
        tell(console, f"Each invocation had {rows_per_invocation} rows: {rows:,.0f} rows/min.")
    tell(console, f"Kept in {run}")


def _latency(point: Probe) -> str:
    return f"{point.latency_ms:,.1f} ms" if point.latency_ms is not None else "no answer"


def sentence(found: Capacity, warm_up_s: float | None) -> str:
    asked = f"{found.percentile} ≤ {found.limit_ms:g} ms"
    if not found.invocations_per_minute or found.interval is None:
        return f"{asked}: {found.reason}."
    low, high = found.interval
    warm_up = f" It warmed up for {warm_up_s:.1f} s, which do not count." if warm_up_s else ""
    return (
        f"{asked}: {found.invocations_per_minute:,.0f} invocations/min "
        f"(95 % interval {interval_text(low, high, ',.0f')}; {found.reason}).{warm_up}"
    )


def _name(workload: str) -> str:
    return f"{workload}-capacity-{datetime.now(UTC).strftime('%Y%m%d-%H%M%S')}"
