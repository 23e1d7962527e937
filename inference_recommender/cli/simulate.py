"""`simulate`: what autoscaling makes of a trace of traffic: minutes over the objective, late requests, cost."""

import argparse
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from inference_recommender.output import Commands, add_command, number, stdout_console, tell, warn
from inference_recommender.simulate.evidence import Service, measured_service, recommended_service, timing_of
from inference_recommender.simulate.policy import Policy, Timing, Traffic
from inference_recommender.simulate.result import Result, Tolerance, document
from inference_recommender.simulate.seeds import Case, Processes, Workers, steps_of, workers
from inference_recommender.simulate.shapes import SHAPES, shape
from inference_recommender.simulate.simulation import without_policy
from inference_recommender.simulate.trace import read_trace
from workloads import ROOT, UsageError, WorkloadFolder, load_workload

NOT_KEPT = 1
SEEDS, SEEDS_OF_LONG = 100, 1
LONG_STEPS = 7 * 24 * 60
"""A trace of more steps has one seed where none are asked for."""
NO_PRICE = "The price of an instance is not known"

DESCRIPTION = """Puts a trace of traffic through the fleet that the workload's recommendation deploys: CloudWatch's
alarms, target tracking with its cooldowns, instances that take minutes to start, requests that wait, are late or
dropped. TRACE is a CSV file of times and requests per second, or the name of a shape with the objective's peak and
trough: diurnal, weekly, flash-sale, steady-growth, zone-lost, retry-storm. Seeds draw the shape, the arrivals, the
time that instances take, and the service's capacity within its measured interval.

Beside the policy stand a fleet of the recommended size that never changes, and the lower bound: the fewest instances
that keep the objective in every step, had the future been known. With --target-invocations and the other options of a
policy, what they change is compared with today's. Exit code 0: the minutes over the objective are within the
tolerance; 1: they are not."""


def add(commands: Commands) -> None:
    parser = add_command(
        commands,
        "simulate",
        "what autoscaling makes of a trace of traffic",
        "simulate spellcheck --trace flash-sale",
        DESCRIPTION,
    )
    parser.add_argument("workload", metavar="WORKLOAD")
    parser.add_argument("--trace", required=True, metavar="FILE|SHAPE", help="a CSV file, or one of the shapes")
    parser.add_argument("--days", type=_positive, metavar="N", help="length of a shape; default: 1, or 7 of a week's")
    parser.add_argument(
        "--from",
        type=Path,
        dest="source",
        metavar="PATH",
        help="recommendation.json, or a measurement as `size --from` takes it; default: the workload's recommendation",
    )
    parser.add_argument("--region", metavar="REGION", help="whose prices to take with --from; default: the job's")
    parser.add_argument(
        "--seeds", type=_positive, metavar="N", help=f"default: {SEEDS}, or {SEEDS_OF_LONG} for more than a week"
    )
    parser.add_argument("--first-seed", type=_whole, default=0, metavar="N", help="default: 0")
    _add_policy(parser.add_argument_group("another policy than today's"))
    _add_timing(parser.add_argument_group("what AWS does not document, or only your account knows"))
    parser.add_argument(
        "--tolerance-minutes", type=_number, default=5.0, metavar="M", help="over the objective, in a month; default: 5"
    )
    parser.add_argument(
        "--confidence", type=_share, default=0.99, metavar="S", help="share of seeds that keep it; default: 0.99"
    )
    parser.add_argument("--runs", type=Path, default=ROOT / "runs", metavar="DIR", help="where the probes are kept")
    parser.add_argument("--json", action="store_true", help="print the result as one JSON document")
    parser.set_defaults(command=_simulate)


def _add_policy(group: "argparse._ArgumentGroup") -> None:
    group.add_argument("--target-invocations", type=_number, metavar="X", help="per minute and instance")
    group.add_argument("--min-instances", type=_positive, metavar="N")
    group.add_argument("--max-instances", type=_positive, metavar="N")
    group.add_argument("--scale-out-cooldown-s", type=_whole, metavar="S")
    group.add_argument("--scale-in-cooldown-s", type=_whole, metavar="S")


def _add_timing(group: "argparse._ArgumentGroup") -> None:
    group.add_argument(
        "--provisioning-s", type=_number, metavar="S", help="from asking for an instance to its container; default: 300"
    )
    group.add_argument(
        "--model-load-s", type=_number, metavar="S", help="from there to answers within the objective; default: 60"
    )
    group.add_argument(
        "--metric-delay-s",
        type=_whole,
        metavar="S",
        help="until an alarm sees a minute; default: 120, AWS's own figure",
    )


def _simulate(options: argparse.Namespace, stderr: Console) -> int:
    folder = load_workload(options.workload)
    workload = folder.workload
    traffic = _traffic(options, folder)
    service = _service(options, folder)
    case = Case(traffic=traffic, curve=service.curve, timing=_timing(options, timing_of(workload)))
    policy = _policy(options, service.policy)
    tolerance = Tolerance(minutes=options.tolerance_minutes, confidence=options.confidence)
    seeds = _seeds(options, steps_of(case, policy))
    fixed = without_policy(policy, max(service.candidate.instance_count or 1, policy.min_capacity))
    asked = [policy, *([service.policy] if policy != service.policy else []), fixed]
    minutes = traffic.load(seeds[0]).minutes

    def result(each: Policy, pool: Workers, done: Callable[[int], None]) -> Result:
        return Result(
            policy=each,
            outcomes=pool.run(each, seeds, done),
            minutes=minutes,
            price_per_hour_usd=service.price_per_hour_usd,
            tolerance=tolerance,
        )

    with ExitStack() as stack:
        pool = workers(case, policy, len(seeds) * len(asked))
        if isinstance(pool, Processes):
            stack.enter_context(pool)
        done = stack.enter_context(_progress(stderr, len(seeds) * len(asked)))
        results = [result(each, pool, done) for each in asked]
    found, today, never = results[0], results[1] if len(results) == 3 else None, results[-1]
    _caution(stderr, case, service, found)
    if options.json:
        print(json.dumps(document(workload.name, case, found, today, never), indent=2))
    else:
        _show(folder, case, found, today, never)
    return 0 if found.kept else NOT_KEPT


def _traffic(options: argparse.Namespace, folder: WorkloadFolder) -> Traffic:
    workload, name = folder.workload, options.trace
    objective = workload.latency_objective
    for known in SHAPES:
        if name == known:
            return shape(known, objective, workload.sizing, options.days)
    if options.days is not None:
        raise UsageError("--days: a file is as long as it is; give it with one of the shapes.")
    if not Path(name).exists():
        raise UsageError(f"--trace: '{name}' is neither a file nor a shape. Shapes: {', '.join(SHAPES)}.")
    return read_trace(Path(name))


def _service(options: argparse.Namespace, folder: WorkloadFolder) -> Service:
    file: Path = options.source or folder.recommendation_file
    if file.name != folder.recommendation_file.name:
        return measured_service(folder.workload, file, options.region)
    if options.region is not None:
        raise UsageError("--region goes with a measurement in --from: a recommendation has its own price.")
    return recommended_service(folder, file, options.runs)


def _policy(options: argparse.Namespace, today: Policy) -> Policy:
    asked = {
        "target_invocations_per_instance": options.target_invocations,
        "min_capacity": options.min_instances,
        "max_capacity": options.max_instances,
        "scale_out_cooldown_s": options.scale_out_cooldown_s,
        "scale_in_cooldown_s": options.scale_in_cooldown_s,
    }
    policy = replace(today, **{name: value for name, value in asked.items() if value is not None})
    if policy.min_capacity > policy.max_capacity:
        raise UsageError(
            f"The policy's minimum of {policy.min_capacity} instances is above its maximum of {policy.max_capacity}: "
            "give --min-instances and --max-instances that fit."
        )
    return policy


def _timing(options: argparse.Namespace, known: Timing) -> Timing:
    asked = {
        name: value
        for name in ("provisioning_s", "model_load_s", "metric_delay_s")
        if (value := getattr(options, name)) is not None
    }
    return replace(known, **asked)


def _seeds(options: argparse.Namespace, steps: int) -> Sequence[int]:
    count = options.seeds or (SEEDS_OF_LONG if steps > LONG_STEPS else SEEDS)
    return range(options.first_seed, options.first_seed + count)


@contextmanager
def _progress(stderr: Console, total: int) -> Iterator[Callable[[int], None]]:
    """Draws a bar on a terminal."""
    bar = Progress(
        TextColumn("simulating"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=stderr,
        disable=not stderr.is_terminal,
        transient=True,
    )
    with bar:
        task = bar.add_task("", total=total)
        yield lambda count: bar.advance(task, count)


def _caution(stderr: Console, case: Case, service: Service, found: Result) -> None:
    if beyond := found.extrapolated(case.curve):
        warn(
            stderr,
            f"The load goes beyond anything measured, to {beyond['highest_invocations_per_minute_and_instance']:,.0f} "
            f"invocations/min on an instance, {beyond['times']:.2f} times the highest rate measured, "
            f"{beyond['measured_up_to']:,.0f}: {beyond['minutes']:,.1f} minutes of the trace are extrapolated, as if "
            f"an instance answered {case.curve.saturation * 60:,.0f} and no more.",
        )
    if service.price_per_hour_usd is None:
        warn(stderr, f"{NO_PRICE}: {service.candidate.cost_reason or 'the recommendation has none.'}")


def _show(folder: WorkloadFolder, case: Case, found: Result, today: Result | None, fixed: Result) -> None:
    workload = folder.workload
    objective, seeds = workload.latency_objective, len(found.outcomes)
    console = stdout_console()
    table = Table(
        title=f"{workload.name} on {case.traffic.name}, {_length(found.minutes)}, {seeds} seed{'s' * (seeds != 1)}: "
        f"{objective.percentile} ≤ {objective.model_latency_ms:g} ms",
        title_justify="left",
        box=SIMPLE_HEAD,
    )
    table.add_column("fleet")
    for head in ("minutes over\nmean", f"minutes over\n{found.tolerance.confidence:.0%}", "late", "dropped"):
        table.add_column(head, justify="right")
    for head in ("most", "instance\nhours", "USD"):
        table.add_column(head, justify="right")
    named = [("asked for", found), ("today's", today)] if today else [("today's", found)]
    for name, each in named:
        assert each is not None
        table.add_row(f"{name}: {_in_words(each.policy)}", *_cells(each))
    table.add_row(f"never scaled: {fixed.policy.min_capacity}", *_cells(fixed))
    hours = found.lower_bound_hours
    table.add_row(
        "lower bound: the future known", *["0"] * 2, *[""] * 3, f"{hours:,.1f}", number(found.usd(hours), ",.2f")
    )
    console.print(table)
    tell(console, _verdict(found))
    worst = found.worst
    tell(
        console,
        f"The worst seed is {worst.seed}: {worst.minutes_over_objective:,.0f} minutes over, "
        f"{worst.late_share:.3%} late, {worst.dropped:,.0f} dropped.",
    )
    tell(console, f"The curve: {case.curve.basis}. {_assumed(case.timing)}")


def _cells(result: Result) -> list[str]:
    summary = result.summary()
    return [
        f"{result.minutes_over:,.1f}",
        f"{result.minutes_over_at_confidence:,.0f}",
        f"{summary['late_share']:.3%}",
        f"{summary['dropped']:,.0f}",
        f"{summary['most_instances']:,}",
        f"{result.instance_hours:,.1f}",
        number(result.usd(result.instance_hours), ",.2f"),
    ]


def _in_words(policy: Policy) -> str:
    return f"{policy.min_capacity} to {policy.max_capacity}, {policy.target_invocations_per_instance:,.0f}/min each"


def _verdict(result: Result) -> str:
    tolerance = result.tolerance
    allowed = f"{tolerance.allowed(result.minutes):g} minutes over the objective in {tolerance.confidence:.0%} of seeds"
    if result.kept:
        return f"Within the tolerance: at most {allowed}; {result.exceeding} of {len(result.outcomes)} have more."
    return f"Beyond the tolerance of {allowed}: {result.exceeding} of {len(result.outcomes)} have more."


def _assumed(timing: Timing) -> str:
    ready = timing.provisioning_s + timing.model_load_s
    return (
        f"An instance is taken to serve {ready:g} s after it is asked for, and an alarm to see a minute "
        f"{timing.metric_delay_s} s late: assumptions, which options change."
    )


def _length(minutes: float) -> str:
    days = minutes / (24 * 60)
    return f"{days:g} day{'s' * (days != 1)}" if days >= 1 and days == int(days) else f"{minutes:,.0f} minutes"


def _positive(text: str) -> int:
    value = _whole(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"got {text}. Allowed: a whole number from 1 on.")
    return value


def _whole(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"got {text}. Allowed: a whole number.")
    return int(text)


def _number(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise argparse.ArgumentTypeError(f"got {text}. Allowed: a number from 0 on.")
    return value


def _share(text: str) -> float:
    value = _number(text)
    if not 0 < value < 1:
        raise argparse.ArgumentTypeError(f"got {text}. Allowed: between 0 and 1.")
    return value
