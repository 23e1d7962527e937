"""`size`: a fleet from what was measured, or a cost from a plain table; without AWS."""

import argparse
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from inference_recommender.cli import arguments
from inference_recommender.output import (
    MISSING,
    Commands,
    add_command,
    number,
    stdout_console,
    tell,
    warn,
)
from inference_recommender.report.candidates import no_candidate, notes
from inference_recommender.sizing.decision import cheapest
from inference_recommender.sizing.evidence import read_evidence
from inference_recommender.sizing.fleet import Demand
from inference_recommender.sizing.sized import PlainCost, document, plain_cost, sized
from workloads import Candidate, Sizing, UsageError, Workload, load_workload

NO_CANDIDATE = 1
HEADROOM = ("headroom", "burst_factor", "spare_instances", "availability_zones")
"""Options that replace the keys of [sizing] of the same names."""
OF_A_JOB = ("peak_invocations_per_minute", "latency_limit_ms", "percentile", "workload", "region", *HEADROOM)
OF_A_TABLE = ("price_per_hour", "baseline_throughput", "baseline_price")

DESCRIPTION = """From a job's results: the instances that a peak needs and what they cost, for every configuration
tested, and the cheapest that meets the objective. From a plain table: the cost per million invocations, and the saving
against a baseline. ModelLatency is taken for milliseconds, unless it can only be microseconds: the reason says so."""


def add(commands: Commands) -> None:
    parser = add_command(
        commands,
        "size",
        "a fleet from a job's results, without AWS",
        "size --from runs/NAME --peak-invocations-per-minute 60000",
        DESCRIPTION,
    )
    subject = parser.add_mutually_exclusive_group(required=True)
    subject.add_argument(
        "--from",
        type=Path,
        dest="source",
        metavar="PATH",
        help="a response of DescribeInferenceRecommendationsJob as JSON, the folder of a run or an experiment, or "
        "capacity.json or its folder",
    )
    subject.add_argument(
        "--throughput-per-second", type=arguments.positive, metavar="X", help="of one instance, with its price"
    )
    _add_demand(parser.add_argument_group("with --from"))
    plain = parser.add_argument_group("with --throughput-per-second")
    plain.add_argument("--price-per-hour", type=arguments.positive, metavar="USD", help="of one instance")
    plain.add_argument(
        "--baseline-throughput", type=arguments.positive, metavar="X", help="per second, of what to compare with"
    )
    plain.add_argument(
        "--baseline-price", type=arguments.positive, metavar="USD", help="per hour, of what to compare with"
    )
    parser.add_argument("--json", action="store_true", help="print the result as one JSON document")
    parser.set_defaults(command=_size)


def _add_demand(group: "argparse._ArgumentGroup") -> None:
    group.add_argument(
        "--peak-invocations-per-minute",
        type=arguments.positive,
        metavar="N",
        help="default: the workload's, where it is known",
    )
    group.add_argument(
        "--latency-limit-ms", type=arguments.positive, metavar="N", help="the most that model latency may be"
    )
    group.add_argument(
        "--percentile",
        type=arguments.percentile,
        metavar="P",
        help="of the limit; default: the folder's, else none, and a job's one figure is judged",
    )
    group.add_argument(
        "--workload",
        metavar="NAME",
        help="take objective and [sizing] from this workload; default: the one in the folder, else latency is not "
        "judged",
    )
    group.add_argument("--region", metavar="REGION", help="whose prices to take; default: the job's")
    group.add_argument(
        "--headroom",
        type=float,
        metavar="H",
        help="capacity above the peak, as its fraction; default: [sizing]'s, else 0.2",
    )
    group.add_argument(
        "--burst-factor", type=float, metavar="B", help="what the peak is multiplied by; default: [sizing]'s, else 1"
    )
    group.add_argument("--spare-instances", type=int, metavar="N", help="may fail at the peak, N+1 is 1; default: 0")
    group.add_argument(
        "--availability-zones", type=int, metavar="N", help="of which one may fail at the peak; default: none may"
    )


def _size(options: argparse.Namespace, stderr: Console) -> int:
    if options.source is None:
        _refuse(options, OF_A_JOB, "--from PATH")
        return _size_plainly(options)
    _refuse(options, OF_A_TABLE, "--throughput-per-second X")
    evidence = read_evidence(options.source)
    workload = evidence.workload
    if options.workload:
        tested = workload.hosting.target if workload else None
        workload = load_workload(options.workload).measured_on(tested).workload
    demand, sizing = _demand(options, workload), _sizing(options, workload)
    for caution in evidence.cautions:
        warn(stderr, caution)
    candidates = sized(evidence, demand, sizing, options.region)
    chosen = cheapest(candidates)
    if options.json:
        print(json.dumps(document(candidates, chosen), indent=2, ensure_ascii=False))
    else:
        _show(candidates, chosen, demand)
    return 0 if chosen else NO_CANDIDATE


def _demand(options: argparse.Namespace, workload: Workload | None) -> Demand:
    _refuse_half_an_objective(options)
    known = Demand.of(workload.latency_objective) if workload else None
    peak = options.peak_invocations_per_minute or (known.peak_invocations_per_minute if known else None)
    if peak is None:
        raise UsageError(
            "size --from needs --peak-invocations-per-minute N, or --workload NAME, whose objective has one."
        )
    own_limit = options.latency_limit_ms is not None
    demand = (
        known
        if known and not own_limit
        else Demand(
            peak_invocations_per_minute=peak,
            percentile=options.percentile or (known.percentile if known else None),
            model_latency_ms=options.latency_limit_ms,
        )
    )
    trough = min(known.trough_invocations_per_minute, peak) if known else 0
    return replace(demand, peak_invocations_per_minute=peak, trough_invocations_per_minute=trough)


def _refuse(options: argparse.Namespace, names: Sequence[str], belongs_to: str) -> None:
    for name in names:
        if getattr(options, name) is not None:
            raise UsageError(f"--{name.replace('_', '-')} goes with {belongs_to}.")


def _refuse_half_an_objective(options: argparse.Namespace) -> None:
    if options.latency_limit_ms is None and options.percentile:
        raise UsageError("--percentile is of a limit: give --latency-limit-ms N too.")
    if options.latency_limit_ms is not None and options.workload:
        raise UsageError("--latency-limit-ms and --workload both give the objective: leave one out.")


def _sizing(options: argparse.Namespace, workload: Workload | None) -> Sizing:
    """Returns the workload's [sizing], with what the command line says instead."""
    own = (workload.sizing if workload else Sizing()).model_dump()
    given = {key: value for key in HEADROOM if (value := getattr(options, key)) is not None}
    return Sizing.from_table(Path("the command line"), {**own, **given})


def _show(candidates: tuple[Candidate, ...], chosen: Candidate | None, demand: Demand) -> None:
    console = stdout_console()
    table = Table(title=f"At {demand.peak_invocations_per_minute:,.0f} invocations/min", title_justify="left")
    table.box = SIMPLE_HEAD
    for head in ("instance type", "variant"):
        table.add_column(head)
    judged = f"{demand.percentile}\nms" if demand.percentile else "judged\nms"
    for head in (
        "capacity\n/min",
        "method",
        "closed-loop\n/min",
        "closed-loop\nms",
        judged,
        "instances",
        "$/h",
        "$/1M",
    ):
        table.add_column(head, justify="right")
    for candidate in candidates:
        table.add_row(*_cells(candidate), style="" if candidate.meets_objective else "dim")
    console.print(table)
    for candidate in candidates:
        reasons = " ".join((candidate.reason, *notes(candidate)))
        tell(console, f"{candidate.instance_type}: {reasons} Price: {candidate.cost_reason}")
    console.print(
        f"Recommended: {chosen.instance_count} × {chosen.instance_type}." if chosen else no_candidate(candidates),
        highlight=False,
    )


def _cells(candidate: Candidate) -> tuple[str, ...]:
    settings = ", ".join(f"{key}={value}" for key, value in candidate.environment.items())
    return (
        candidate.instance_type,
        " ".join(part for part in (candidate.variant, settings) if part) or MISSING,
        number(candidate.max_invocations_per_minute, ",.0f"),
        candidate.capacity_basis,
        number(candidate.closed_loop_invocations_per_minute, ",.0f"),
        number(candidate.model_latency_ms, ".4g"),
        number(candidate.objective_latency_ms, ".4g"),
        number(candidate.instance_count, "d"),
        number(candidate.cost_per_hour_usd, ",.3f"),
        number(candidate.cost_per_million_invocations_usd, ",.3f"),
    )


def _size_plainly(options: argparse.Namespace) -> int:
    if options.price_per_hour is None:
        raise UsageError("--throughput-per-second needs --price-per-hour USD.")
    if (options.baseline_throughput is None) != (options.baseline_price is None):
        raise UsageError("A baseline has --baseline-throughput X and --baseline-price USD: give both.")
    baseline = options.baseline_throughput and (options.baseline_throughput, options.baseline_price)
    cost = plain_cost(options.throughput_per_second, options.price_per_hour, baseline)
    print(cost.model_dump_json(indent=2) if options.json else _sentence(cost))
    return 0


def _sentence(cost: PlainCost) -> str:
    price = f"${cost.cost_per_million_invocations_usd:,.4f} per million invocations"
    if cost.saving_percent is None:
        return f"{price}."
    change = f"{abs(cost.saving_percent):.1f} % {'less' if cost.saving_percent >= 0 else 'more'}"
    baseline = f"${cost.baseline_cost_per_million_invocations_usd:,.4f} of the baseline"
    return f"{price}: {change} than the {baseline}, at {cost.throughput_ratio:.2f} times its throughput."
