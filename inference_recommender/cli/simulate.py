"""`simulate`: what autoscaling makes of a trace of traffic: minutes over the objective, late requests, cost."""

import argparse
import json
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console

from inference_recommender.cli import arguments
from inference_recommender.output import Commands, add_command, tell
from inference_recommender.simulate.evidence import (
    Service,
    given_minimums,
    least_instances,
    measured_service,
    recommended_service,
    timing_of,
)
from inference_recommender.simulate.optimise import SEARCH_SEEDS, Found, Search, recommended
from inference_recommender.simulate.policy import Outcome, Policy, Timing, Traffic
from inference_recommender.simulate.result import Result, Tolerance, document
from inference_recommender.simulate.seeds import Case, Processes, Workers, steps_of, workers
from inference_recommender.simulate.shapes import SHAPES, shape
from inference_recommender.simulate.simulation import without_policy
from inference_recommender.simulate.terminal import caution, progress, show, show_found
from inference_recommender.simulate.trace import read_trace
from workloads import ROOT, Recommendation, ScheduledMinimum, UsageError, WorkloadFolder, load_workload

NOT_KEPT = 1
SEEDS, SEEDS_OF_LONG = 100, 1
LONG_STEPS = 7 * 24 * 60
"""A trace of more steps has one seed where none are asked for."""
SEARCHED = 80
"""About so many policies does a search try."""

DESCRIPTION = """Puts a trace of traffic through the fleet that the workload's recommendation deploys: CloudWatch's
alarms, target tracking with its cooldowns, instances that take minutes to start, requests that wait, are late or
dropped. TRACE is a CSV file of times and requests per second, or the name of a shape with the objective's peak and
trough: diurnal, weekly, flash-sale, steady-growth, zone-lost, retry-storm. Seeds draw the shape, the arrivals, the
time that instances take, and the service's capacity within its measured interval.

Beside the policy stand a fleet of the recommended size that never changes, and the lower bound: the fewest instances
that keep the objective in every step, had the future been known. With --target-invocations and the other options of a
policy, what they change is compared with today's. With --optimise the cheapest policy within the tolerance is searched
and, where a recommendation was simulated, written into it for review: the next `cdk deploy` has its numbers. Exit code
0: the minutes over the objective are within the tolerance; 1: they are not."""


def add(commands: Commands) -> None:
    parser = add_command(
        commands,
        "simulate",
        "what autoscaling makes of a trace of traffic",
        "simulate spellcheck --trace flash-sale",
        DESCRIPTION,
    )
    parser.add_argument("workload", metavar="WORKLOAD")
    traffic = parser.add_mutually_exclusive_group(required=True)
    traffic.add_argument("--trace", metavar="FILE|SHAPE", help="a CSV file, or one of the shapes")
    traffic.add_argument("--from-cloudwatch", metavar="ENDPOINT", help="the invocations that an endpoint has had")
    parser.add_argument(
        "--days",
        type=arguments.count,
        metavar="N",
        help="length of a shape, default: 1, or 7 of a week's; with --from-cloudwatch the last days, default: 14",
    )
    parser.add_argument(
        "--from",
        type=Path,
        dest="source",
        metavar="PATH",
        help="recommendation.json, or a measurement as `size --from` takes it; default: the workload's recommendation",
    )
    parser.add_argument("--region", metavar="REGION", help="whose prices to take with --from; default: the job's")
    parser.add_argument(
        "--seeds", type=arguments.count, metavar="N", help=f"default: {SEEDS}, or {SEEDS_OF_LONG} for more than a week"
    )
    parser.add_argument("--first-seed", type=_whole, default=0, metavar="N", help="default: 0")
    _add_policy(parser.add_argument_group("another policy than today's"))
    parser.add_argument(
        "--optimise",
        action="store_true",
        help="search the cheapest policy within the tolerance, and write it into the recommendation",
    )
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
    group.add_argument("--target-invocations", type=arguments.positive, metavar="X", help="per minute and instance")
    group.add_argument("--min-instances", type=arguments.count, metavar="N")
    group.add_argument("--max-instances", type=arguments.count, metavar="N")
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
    seeds = _seeds(options, steps_of(case, policy))
    if options.optimise:
        return _optimise(options, stderr, folder, case, service, seeds)
    fixed = without_policy(policy, max(service.candidate.instance_count or 1, policy.min_capacity))
    asked = [policy, *([service.policy] if policy != service.policy else []), fixed]
    with ExitStack() as stack:
        pool = _pool(stack, case, policy, len(seeds) * len(asked))
        done = stack.enter_context(progress(stderr, len(seeds) * len(asked)))
        results = [_result(options, case, service, each, pool.run(each, seeds, done)) for each in asked]
    found, today, never = results[0], results[1] if len(results) == 3 else None, results[-1]
    caution(stderr, case.curve, service, found)
    if options.json:
        print(json.dumps(document(workload.name, case, found, today, never), indent=2))
    else:
        rows = [("asked for", found), ("today's", today)] if today else [("today's", found)]
        show(workload.name, case, workload.latency_objective, [*rows, ("never scaled", never)])
    return 0 if found.kept else NOT_KEPT


def _optimise(
    options: argparse.Namespace,
    stderr: Console,
    folder: WorkloadFolder,
    case: Case,
    service: Service,
    seeds: Sequence[int],
) -> int:
    workload, given = folder.workload, given_minimums(folder.workload)
    with ExitStack() as stack:
        pool = _pool(stack, case, service.policy, SEARCH_SEEDS * SEARCHED)
        found = Search(
            case=case,
            today=service.policy,
            given=given,
            least=least_instances(workload),
            seeds=seeds,
            tolerance=_tolerance(options),
            price_per_hour_usd=service.price_per_hour_usd,
            workers=pool,
            done=stack.enter_context(progress(stderr, None)),
        ).run()
        fixed = without_policy(
            found.today.policy, max(service.candidate.instance_count or 1, least_instances(workload))
        )
        never = _result(options, case, service, fixed, pool.run(fixed, seeds, lambda _: None))
    caution(stderr, case.curve, service, found.chosen)
    if options.json:
        held_out = found.held_out
        confirmed = held_out and {"seeds": len(held_out), "first_seed": held_out.start, "failed": found.failed}
        frontier = {
            "frontier": [each.summary() for each in found.frontier()],
            "policies_tried": len(found.tried),
            "decided_on": {"seeds": len(seeds), "first_seed": seeds[0]},
            "confirmed_on": confirmed,
        }
        print(json.dumps(document(workload.name, case, found.chosen, found.today, never, frontier), indent=2))
    else:
        rows = [("chosen", found.chosen), ("today's", found.today), ("never scaled", never)]
        show(workload.name, case, workload.latency_objective, rows)
        show_found(found)
    if not found.safe:
        why = "was confirmed on the seeds held out" if found.chosen.kept else "keeps the tolerance"
        tell(stderr, f"Nothing was written: no policy that was tried {why}.", "yellow")
        return NOT_KEPT
    _write(options, stderr, folder, service, _recommended_policy(service, found, case, given))
    return 0


def _write(
    options: argparse.Namespace,
    stderr: Console,
    folder: WorkloadFolder,
    service: Service,
    better: Recommendation | None,
) -> None:
    """Writes the recommendation that was simulated, if one was, with the policy that was found."""
    file: Path = options.source or folder.recommendation_file
    if better is None:
        tell(stderr, "Nothing was written: a measurement was simulated, and no recommendation.", "yellow")
    elif better == service.recommendation:
        tell(stderr, f"{file} has this policy already.")
    else:
        better.write_json(file)
        tell(stderr, f"Written for review: {file}")


def _recommended_policy(
    service: Service, found: Found, case: Case, given: Sequence[ScheduledMinimum]
) -> Recommendation | None:
    if service.recommendation is None:
        return None
    if found.choice is None:
        return service.recommendation
    return recommended(service.recommendation, found, case, given)


def _result(
    options: argparse.Namespace, case: Case, service: Service, policy: Policy, outcomes: tuple[Outcome, ...]
) -> Result:
    return Result(
        policy=policy,
        outcomes=outcomes,
        minutes=case.traffic.load(0).minutes,
        price_per_hour_usd=service.price_per_hour_usd,
        tolerance=_tolerance(options),
    )


def _tolerance(options: argparse.Namespace) -> Tolerance:
    return Tolerance(minutes=options.tolerance_minutes, confidence=options.confidence)


def _pool(stack: ExitStack, case: Case, policy: Policy, seeds: int) -> Workers:
    """Returns workers that end with the stack."""
    pool = workers(case, policy, seeds)
    return stack.enter_context(pool) if isinstance(pool, Processes) else pool


def _traffic(options: argparse.Namespace, folder: WorkloadFolder) -> Traffic:
    workload, name = folder.workload, options.trace
    objective = workload.latency_objective
    if options.from_cloudwatch is not None:
        return _recorded(options)
    for known in SHAPES:
        if name == known:
            return shape(known, objective, workload.sizing, options.days)
    if options.days is not None:
        raise UsageError("--days: a file is as long as it is; give it with one of the shapes.")
    if not Path(name).exists():
        raise UsageError(f"--trace: '{name}' is neither a file nor a shape. Shapes: {', '.join(SHAPES)}.")
    return read_trace(Path(name))


def _recorded(options: argparse.Namespace) -> Traffic:
    from aws_api.session import AwsSession  # boto3, which traces and shapes do without
    from inference_recommender.simulate.cloudwatch import DEFAULT_DAYS, check_days, recorded

    days = options.days or DEFAULT_DAYS
    check_days(days)
    return recorded(AwsSession(), options.from_cloudwatch, days, datetime.now(UTC))


def _service(options: argparse.Namespace, folder: WorkloadFolder) -> Service:
    file: Path = options.source or folder.recommendation_file
    if file.name != folder.recommendation_file.name:
        return measured_service(folder.workload, file, options.region)
    if options.region is not None:
        raise UsageError("--region goes with a measurement in --from: a recommendation has its own price.")
    return recommended_service(folder, file, options.runs)


def _policy(options: argparse.Namespace, today: Policy) -> Policy:
    """Returns today's policy with what the options say instead."""
    asked = {
        "target_invocations_per_instance": options.target_invocations,
        "min_capacity": options.min_instances,
        "max_capacity": options.max_instances,
        "scale_out_cooldown_s": options.scale_out_cooldown_s,
        "scale_in_cooldown_s": options.scale_in_cooldown_s,
    }
    given = {name: value for name, value in asked.items() if value is not None}
    if options.optimise and given:
        raise UsageError("--optimise chooses the policy: leave out the options of another one.")
    policy = replace(today, **given)
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
