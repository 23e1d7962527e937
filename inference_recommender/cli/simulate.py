"""`simulate`: minutes over the objective, late requests and cost of an autoscaled fleet under a trace of traffic."""

import argparse
import json
import math
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console

from inference_recommender.cli import arguments
from inference_recommender.output import Commands, add_command, tell
from inference_recommender.run_folder import RunFolder
from inference_recommender.simulate.evidence import (
    Service,
    given_minimums,
    least_instances,
    measured_service,
    measured_target,
    recommended_service,
    timing_of,
)
from inference_recommender.simulate.kept import FIXED, RECOMMENDED, Named, keep, kept, on_frontier, trace_csv
from inference_recommender.simulate.optimise import SEARCH_SEEDS, Found, Search, recommended, seeds_held_out
from inference_recommender.simulate.policy import Outcome, Policy, Timing, Traffic
from inference_recommender.simulate.result import Result, Tolerance, document
from inference_recommender.simulate.seeds import Case, Here, Processes, Workers, steps_of, workers
from inference_recommender.simulate.shapes import SHAPES, shape
from inference_recommender.simulate.simulation import without_policy
from inference_recommender.simulate.terminal import caution, progress, show, show_found
from inference_recommender.simulate.trace import Trace, read_trace
from workloads import ROOT, Interrupted, Recommendation, UsageError, Workload, WorkloadFolder, load_workload
from workloads.files import from_here

NOT_KEPT = 1
SEEDS, SEEDS_OF_LONG = 100, 1
LONG_STEPS = 7 * 24 * 60
"""A trace of more steps has one seed by default."""
MOST_TIMES_OFF = 2
"""The largest factor between a recorded trace's peak and the objective's."""
MOST_STEPS_KEPT = 366 * 24 * 60
"""Steps of a year of minutes, whose course takes 60 MB."""
SEEDS_IN_TURN = 50
"""Seeds of a policy before those of the next, so that an interrupted simulation has the same seeds of each."""
SEARCHED = 80
"""About the number of policies that a search tries."""

DESCRIPTION = """Simulates the recommended fleet under a trace of traffic: CloudWatch's alarms, target tracking with its
cooldowns, instances that take minutes to start, and requests that wait, are late or are dropped. TRACE is a CSV file of
times and requests per second, or a shape with the objective's peak and trough: diurnal, weekly, flash-sale,
steady-growth, zone-lost, retry-storm. Each seed draws the shape, the arrivals, the start times of instances, and the
capacity within its measured interval.

The policy is compared with a fixed fleet of the recommended size and with an ideal fleet, which knows the future and
has in each step the fewest instances that meet the objective. --target-invocations and the other options of a policy
compare another policy with the recommended one. --optimise searches the cheapest policy within the tolerance and
writes it into the recommendation for review; the next `cdk deploy` uses it. Exit code 0: the minutes over the objective
are within the tolerance; 1: they are not.

A folder below runs/ keeps the result and each policy's worst day; `report` draws it. Ctrl-C keeps the seeds that are
complete for every policy, or the frontier of the search."""


def add(commands: Commands) -> None:
    parser = add_command(
        commands,
        "simulate",
        "simulate autoscaling under a trace of traffic",
        "simulate spellcheck --trace flash-sale",
        DESCRIPTION,
    )
    parser.add_argument("workload", metavar="WORKLOAD")
    traffic = parser.add_mutually_exclusive_group(required=True)
    traffic.add_argument("--trace", metavar="FILE|SHAPE", help="a CSV file, or one of the shapes")
    traffic.add_argument("--from-cloudwatch", metavar="ENDPOINT", help="the recorded invocations of an endpoint")
    parser.add_argument(
        "--days",
        type=arguments.count,
        metavar="N",
        help="length of a shape, default: 1, or 7 for weekly and steady-growth; with --from-cloudwatch the last days, "
        "default: 14",
    )
    parser.add_argument(
        "--fill-gaps",
        choices=["zero", "last"],
        help="fill missing lines of a CSV file: zero if there was no traffic, last if the monitoring failed",
    )
    parser.add_argument(
        "--from",
        type=Path,
        dest="source",
        metavar="PATH",
        help="recommendation.json, or a measurement as `size --from` reads it; default: the workload's recommendation",
    )
    parser.add_argument(
        "--peak-invocations-per-minute",
        type=arguments.count,
        metavar="N",
        help="size the fleet for this peak instead of the objective's; only if --from names a measurement",
    )
    parser.add_argument(
        "--region", metavar="REGION", help="region of the prices if --from names a measurement; default: the job's"
    )
    parser.add_argument(
        "--seeds",
        type=arguments.count,
        metavar="N",
        help=f"number of seeds; default: {SEEDS}, or {SEEDS_OF_LONG} for a trace of more than a week",
    )
    parser.add_argument(
        "--first-seed", type=arguments.whole, default=0, metavar="N", help="number of the first seed; default: 0"
    )
    _add_policy(parser.add_argument_group("a policy to compare with the recommended one"))
    parser.add_argument(
        "--optimise",
        action="store_true",
        help="search the cheapest policy within the tolerance and write it into the recommendation",
    )
    _add_timing(parser.add_argument_group("times that AWS does not document"))
    parser.add_argument(
        "--tolerance-minutes",
        type=arguments.number,
        default=5.0,
        metavar="M",
        help="tolerated minutes over the objective in a month; default: 5",
    )
    parser.add_argument(
        "--confidence",
        type=arguments.share,
        default=0.99,
        metavar="S",
        help="share of seeds that must be within the tolerance; default: 0.99",
    )
    parser.add_argument(
        "--runs", type=Path, default=ROOT / "runs", metavar="DIR", help="where the simulation's folder goes"
    )
    parser.add_argument("--json", action="store_true", help="print the result as one JSON document")
    parser.set_defaults(command=_simulate)


def _add_policy(group: "argparse._ArgumentGroup") -> None:
    group.add_argument(
        "--target-invocations",
        type=arguments.positive,
        metavar="X",
        help="target value of the scaling: invocations per minute and instance",
    )
    group.add_argument("--min-instances", type=arguments.count, metavar="N", help="minimum of the fleet")
    group.add_argument("--max-instances", type=arguments.count, metavar="N", help="maximum of the fleet")
    group.add_argument("--scale-out-cooldown-s", type=arguments.whole, metavar="S", help="wait after adding instances")
    group.add_argument("--scale-in-cooldown-s", type=arguments.whole, metavar="S", help="wait after removing instances")


def _add_timing(group: "argparse._ArgumentGroup") -> None:
    group.add_argument(
        "--provisioning-s",
        type=arguments.number,
        metavar="S",
        help="from the request for an instance to its container's start; default: measured on AWS, or 300",
    )
    group.add_argument(
        "--model-load-s",
        type=arguments.number,
        metavar="S",
        help="from there to the first answer within the objective; default: the measured cold start, or 60",
    )
    group.add_argument(
        "--metric-delay-s",
        type=arguments.whole,
        metavar="S",
        help="until an alarm sees a minute; default: 120",
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class _Asked:
    """One simulation: its workload, service, traffic and seeds."""

    options: argparse.Namespace
    folder: WorkloadFolder
    case: Case
    service: Service
    seeds: Sequence[int]

    @property
    def tolerance(self) -> Tolerance:
        return Tolerance(minutes=self.options.tolerance_minutes, confidence=self.options.confidence)

    def result(self, policy: Policy, outcomes: tuple[Outcome, ...]) -> Result:
        return Result(
            policy=policy,
            outcomes=outcomes,
            minutes=self.case.traffic.load(0).minutes,
            price_per_hour_usd=self.service.price_per_hour_usd,
            tolerance=self.tolerance,
        )

    def fixed_fleet(self, policy: Policy, least: int) -> Policy:
        """Returns a fleet of the recommended size, or of `least` instances if these are more."""
        return without_policy(policy, max(self.service.candidate.instance_count or 1, least))

    def pool(self, stack: ExitStack, policy: Policy, seeds: int) -> Workers:
        """Returns workers that end with the stack."""
        pool = workers(self.case, policy, seeds)
        return stack.enter_context(pool) if isinstance(pool, Processes) else pool

    def keep(self, said: Mapping[str, Any], named: Sequence[Named], **facts: Any) -> RunFolder:
        """Writes the run's folder."""
        assumed = {**self.case.timing.known_by, **_given(self.options)}
        known = {"complete": True, "assumed": assumed, "tried": None, **facts}
        trace = None if self.options.from_cloudwatch is None else trace_csv(self.case.traffic.load(0))
        content = kept(said, self.case, self.service, named, **known)
        return keep(self.options.runs, datetime.now(UTC), content, self.folder.workload, named, trace)

    def interrupted(self, whole: Sequence[Named], what: str) -> Interrupted:
        """Keeps the complete results and returns the error to raise."""
        if not whole:
            return Interrupted("Interrupted before the first results were complete: there is nothing to keep.")
        said = document(self.folder.workload.name, self.case, whole[0].result, None, None)
        folder = self.keep(said, whole, complete=False, safe=False)
        return Interrupted(f"Interrupted: {what} complete. They are kept in {folder}.")


def _simulate(options: argparse.Namespace, stderr: Console) -> int:
    folder = _workload(options)
    traffic = _traffic(options, folder)
    service = _service(options, folder)
    _check_size(traffic, folder.workload, service)
    timing = _timing(options, timing_of(folder.workload, service.cold_start))
    case = Case(traffic=traffic, curve=service.curve, timing=timing)
    policy = _policy(options, service.policy)
    seeds = _seeds(options, steps_of(case, policy))
    asked = _Asked(options=options, folder=folder, case=case, service=service, seeds=seeds)
    _check_writable(options.runs)
    return _optimise(asked, stderr) if options.optimise else _compare(asked, policy, stderr)


def _compare(asked: _Asked, policy: Policy, stderr: Console) -> int:
    """Simulates a policy beside the recommended one and a fixed fleet."""
    workload, today = asked.folder.workload, asked.service.policy
    policies = {RECOMMENDED: today, FIXED: asked.fixed_fleet(policy, policy.min_capacity)}
    if policy != today:
        policies = {"asked for": policy, **policies}
    named = _simulated(asked, policies, stderr)
    found = named[0].result
    beside = None if policy == today else named[1].result
    said = document(workload.name, asked.case, found, beside, named[-1].result)
    caution(stderr, asked.case.curve, asked.service, found)
    if asked.options.json:
        print(json.dumps(said, indent=2))
    else:
        show(workload.name, asked.case, workload.latency_objective, [(each.name, each.result) for each in named])
    _tell_kept(stderr, asked.keep(said, named, safe=found.kept))
    return 0 if found.kept else NOT_KEPT


def _simulated(asked: _Asked, policies: Mapping[str, Policy], stderr: Console) -> list[Named]:
    """Simulates policies by their names, some seeds of each in turn. Raises `Interrupted` after it has kept the seeds
    that are complete for all of them.
    """
    outcomes: list[tuple[Outcome, ...]] = [()] * len(policies)

    def named() -> list[Named]:
        pairs = zip(policies.items(), outcomes, strict=True)
        return [Named(name=name, result=asked.result(policy, found)) for (name, policy), found in pairs if found]

    with ExitStack() as stack:
        pool = asked.pool(stack, asked.service.policy, len(asked.seeds) * len(policies))
        if len(asked.seeds) == 1 and steps_of(asked.case, asked.service.policy) <= MOST_STEPS_KEPT:
            pool = Here(asked.case, timeline=True)  # the course that is kept is this seed's: no second simulation
        done = stack.enter_context(progress(stderr, len(asked.seeds) * len(policies)))
        try:
            for first in range(0, len(asked.seeds), SEEDS_IN_TURN):
                some = asked.seeds[first : first + SEEDS_IN_TURN]
                more = [pool.run(policy, some, done) for policy in policies.values()]
                outcomes = [before + after for before, after in zip(outcomes, more, strict=True)]
        except KeyboardInterrupt:
            raise asked.interrupted(named(), f"{len(outcomes[0])} of {len(asked.seeds)} seeds are") from None
    return named()


def _optimise(asked: _Asked, stderr: Console) -> int:
    """Searches the cheapest policy within the tolerance, and writes it into the recommendation."""
    workload, least = asked.folder.workload, least_instances(asked.folder.workload)
    tell(
        stderr,
        f"Searching policies on {SEARCH_SEEDS} seeds each. {seeds_held_out(asked.tolerance)} held-out seeds confirm "
        "the choice.",
    )
    with ExitStack() as stack:
        pool = asked.pool(stack, asked.service.policy, SEARCH_SEEDS * SEARCHED)
        search = Search(
            case=asked.case,
            today=asked.service.policy,
            given=given_minimums(workload),
            least=least,
            seeds=asked.seeds,
            tolerance=asked.tolerance,
            price_per_hour_usd=asked.service.price_per_hour_usd,
            workers=pool,
            done=stack.enter_context(progress(stderr, None)),
        )
        try:
            found = search.run()
            fixed = asked.fixed_fleet(asked.service.policy, least)
            never = asked.result(fixed, pool.run(fixed, asked.seeds, lambda _: None))
        except KeyboardInterrupt:
            best = [Named(name="best so far", result=each) for each in search.best_so_far()[:1]]
            courses = [*best, *on_frontier(search.best_so_far(), best)]
            raise asked.interrupted(courses, f"{search.tried} policies of the search are") from None
    caution(stderr, asked.case.curve, asked.service, found.chosen)
    said = document(workload.name, asked.case, found.chosen, found.today, never, _searched(found, asked.seeds))
    compared = [(RECOMMENDED, found.today), (FIXED, never)]
    if asked.options.json:
        print(json.dumps(said, indent=2))
    else:
        show(workload.name, asked.case, workload.latency_objective, [("chosen", found.chosen), *compared])
        show_found(found)
    if found.choice is not None:
        compared.insert(0, ("chosen" if found.safe else "the nearest", found.chosen))
    named = [Named(name=name, result=result) for name, result in compared]
    tried = [(each.instance_hours, each.minutes_over) for each in found.tried]
    _tell_kept(stderr, asked.keep(said, [*named, *on_frontier(found.frontier(), named)], safe=found.safe, tried=tried))
    if not found.safe:
        why = "was confirmed on held-out seeds" if found.chosen.kept else "is within the tolerance"
        tell(stderr, f"Nothing was written: no policy that was tried {why}.", "yellow")
        return NOT_KEPT
    _write(asked, stderr, _recommended_policy(asked, found))
    return 0


def _searched(found: Found, seeds: Sequence[int]) -> dict[str, Any]:
    """Returns what a search adds to the document."""
    held_out = found.held_out
    return {
        "frontier": [each.summary() for each in found.frontier()],
        "policies_tried": len(found.tried),
        "decided_on": {"seeds": len(seeds), "first_seed": seeds[0]},
        "confirmed_on": held_out and {"seeds": len(held_out), "first_seed": held_out.start, "failed": found.failed},
    }


def _tell_kept(stderr: Console, folder: RunFolder) -> None:
    tell(stderr, f"Kept in {folder}. `python -m inference_recommender report {folder}` draws it.")


def _write(asked: _Asked, stderr: Console, better: Recommendation | None) -> None:
    """Writes the policy that was found into the recommendation, if one was simulated."""
    file: Path = asked.options.source or asked.folder.recommendation_file
    if better is None:
        tell(stderr, "Nothing was written: --from names a measurement, not a recommendation.", "yellow")
    elif better == asked.service.recommendation:
        tell(stderr, f"{from_here(file)} has this policy already.")
    else:
        better.write_json(file)
        tell(stderr, f"Written: {from_here(file)}. The next `cdk deploy` uses it.")
        if replaced := asked.service.simulated_on:
            tell(stderr, f"It replaces the policy that was chosen on {replaced}.")
        tell(stderr, f"Next: review it, then run `cdk deploy {asked.folder.workload.stack_name}`.")


def _recommended_policy(asked: _Asked, found: Found) -> Recommendation | None:
    before = asked.service.recommendation
    if before is None or found.choice is None:
        return before
    return recommended(before, found, asked.case, given_minimums(asked.folder.workload))


def _workload(options: argparse.Namespace) -> WorkloadFolder:
    """Returns the workload, with the peak that --peak-invocations-per-minute names."""
    folder, peak = load_workload(options.workload), options.peak_invocations_per_minute
    folder = folder.measured_on(measured_target(options.source or folder.recommendation_file))
    objective = folder.workload.latency_objective
    if peak is None:
        return folder
    if options.source is None or options.source.name == folder.recommendation_file.name:
        raise UsageError(
            "--peak-invocations-per-minute sizes the fleet again. Name the measurement with --from, such as the "
            "recommendation's run: --from runs/NAME."
        )
    trough = min(objective.trough_invocations_per_minute, peak)
    changed = {"peak_invocations_per_minute": peak, "trough_invocations_per_minute": trough}
    folder.workload = folder.workload.model_copy(update={"objective": objective.model_copy(update=changed)})
    return folder


def _check_size(traffic: Traffic, workload: Workload, service: Service) -> None:
    """Raises `UsageError` if a recorded trace needs a fleet of another size than the objective's peak does."""
    if not isinstance(traffic, Trace):  # a shape is made from the objective
        return
    load, expected = traffic.load(0), workload.latency_objective.peak_invocations_per_minute
    peak = load.peak_per_minute
    if expected <= peak * MOST_TIMES_OFF and peak <= expected * MOST_TIMES_OFF:
        return
    sized = f"--from {service.run} --peak-invocations-per-minute {max(math.ceil(peak), 1)}"
    raise UsageError(
        f"{traffic.name} has a peak of {peak:,.0f} invocations/min (mean {load.mean_per_minute:,.0f}), and the "
        f"objective's peak is {expected:,}. They differ by more than a factor of {MOST_TIMES_OFF}, so the fleet has "
        f"the wrong size for this trace. Size a fleet for it: `python -m inference_recommender size {sized}`. Then "
        f"simulate with {sized}."
    )


def _check_writable(runs: Path) -> None:
    """Raises `UsageError` if the simulation's folder cannot be written, before anything is computed."""
    existing = next(folder for folder in (runs, *runs.absolute().parents) if folder.exists())
    try:
        with tempfile.TemporaryFile(dir=existing) as file:
            file.write(b"x")
    except OSError as error:
        raise UsageError(
            f"--runs: {existing} cannot be written: {error.strerror}. Name a folder that can be written."
        ) from error


def _traffic(options: argparse.Namespace, folder: WorkloadFolder) -> Traffic:
    workload, name = folder.workload, options.trace
    objective = workload.latency_objective
    is_file = name is not None and name not in SHAPES
    if options.fill_gaps is not None and not is_file:
        raise UsageError("--fill-gaps: goes with a CSV file. Shapes and CloudWatch's minutes have no gaps.")
    if options.from_cloudwatch is not None:
        return _recorded(options)
    for known in SHAPES:
        if name == known:
            return shape(known, objective, workload.sizing, options.days)
    if options.days is not None:
        raise UsageError("--days: sets the length of a shape. A file has its own length.")
    if not Path(name).exists():
        raise UsageError(f"--trace: '{name}' is neither a file nor a shape. Shapes: {', '.join(SHAPES)}.")
    return read_trace(Path(name), options.fill_gaps)


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
        raise UsageError("--region: only if --from names a measurement. A recommendation has its own price.")
    return recommended_service(folder, file)


def _policy(options: argparse.Namespace, today: Policy) -> Policy:
    """Returns the recommended policy with the settings of the options."""
    asked = {
        "target_invocations_per_instance": options.target_invocations,
        "min_capacity": options.min_instances,
        "max_capacity": options.max_instances,
        "scale_out_cooldown_s": options.scale_out_cooldown_s,
        "scale_in_cooldown_s": options.scale_in_cooldown_s,
    }
    given = {name: value for name, value in asked.items() if value is not None}
    if options.optimise and given:
        raise UsageError("--optimise chooses the policy itself. Leave out the options of a policy.")
    policy = replace(today, **given)
    if policy.min_capacity > policy.max_capacity:
        raise UsageError(
            f"The policy's minimum of {policy.min_capacity} instances is above its maximum of {policy.max_capacity}. "
            "Change --min-instances or --max-instances."
        )
    return policy


def _timing(options: argparse.Namespace, known: Timing) -> Timing:
    asked = {name: getattr(options, name) for name in _given(options)}
    measured = {name: words for name, words in known.known_by.items() if name not in asked}
    return replace(known, **asked, known_by=measured)


def _given(options: argparse.Namespace) -> dict[str, str]:
    """Returns the fields of the timing that were given, with their options."""
    names = ("provisioning_s", "model_load_s", "metric_delay_s")
    return {name: f"--{name.replace('_', '-')}" for name in names if getattr(options, name) is not None}


def _seeds(options: argparse.Namespace, steps: int) -> Sequence[int]:
    count = options.seeds or (SEEDS_OF_LONG if steps > LONG_STEPS else SEEDS)
    return range(options.first_seed, options.first_seed + count)
