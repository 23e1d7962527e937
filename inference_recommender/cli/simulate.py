"""`simulate`: what autoscaling makes of a trace of traffic: minutes over the objective, late requests, cost."""

import argparse
import json
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
from inference_recommender.simulate.kept import Named, keep, kept, on_frontier, trace_csv
from inference_recommender.simulate.optimise import SEARCH_SEEDS, Found, Search, recommended
from inference_recommender.simulate.policy import Outcome, Policy, Timing, Traffic
from inference_recommender.simulate.result import Result, Tolerance, document
from inference_recommender.simulate.seeds import Case, Here, Processes, Workers, steps_of, workers
from inference_recommender.simulate.shapes import SHAPES, shape
from inference_recommender.simulate.simulation import without_policy
from inference_recommender.simulate.terminal import caution, progress, show, show_found
from inference_recommender.simulate.trace import read_trace
from workloads import ROOT, Interrupted, Recommendation, UsageError, WorkloadFolder, load_workload

NOT_KEPT = 1
SEEDS, SEEDS_OF_LONG = 100, 1
LONG_STEPS = 7 * 24 * 60
"""A trace of more steps has one seed where none are asked for."""
TODAY, NEVER = "today's", "never scaled"
MOST_STEPS_KEPT = 366 * 24 * 60
"""Steps of a year of minutes, whose course takes 60 MB."""
SEEDS_IN_TURN = 50
"""After so many seeds of a policy come those of the next: what is interrupted has the same seeds of each."""
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
0: the minutes over the objective are within the tolerance; 1: they are not.

A folder below runs/ keeps all of it, and each policy's course over the worst day; `report` draws it. Ctrl-C keeps the
seeds that every policy was simulated with, or the frontier of the search."""


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
    parser.add_argument("--first-seed", type=arguments.whole, default=0, metavar="N", help="default: 0")
    _add_policy(parser.add_argument_group("another policy than today's"))
    parser.add_argument(
        "--optimise",
        action="store_true",
        help="search the cheapest policy within the tolerance, and write it into the recommendation",
    )
    _add_timing(parser.add_argument_group("what AWS does not document, or only your account knows"))
    parser.add_argument(
        "--tolerance-minutes",
        type=arguments.number,
        default=5.0,
        metavar="M",
        help="over the objective, in a month; default: 5",
    )
    parser.add_argument(
        "--confidence",
        type=arguments.share,
        default=0.99,
        metavar="S",
        help="share of seeds that keep it; default: 0.99",
    )
    parser.add_argument(
        "--runs", type=Path, default=ROOT / "runs", metavar="DIR", help="where the probes are, and this run is kept"
    )
    parser.add_argument("--json", action="store_true", help="print the result as one JSON document")
    parser.set_defaults(command=_simulate)


def _add_policy(group: "argparse._ArgumentGroup") -> None:
    group.add_argument("--target-invocations", type=arguments.positive, metavar="X", help="per minute and instance")
    group.add_argument("--min-instances", type=arguments.count, metavar="N")
    group.add_argument("--max-instances", type=arguments.count, metavar="N")
    group.add_argument("--scale-out-cooldown-s", type=arguments.whole, metavar="S")
    group.add_argument("--scale-in-cooldown-s", type=arguments.whole, metavar="S")


def _add_timing(group: "argparse._ArgumentGroup") -> None:
    group.add_argument(
        "--provisioning-s",
        type=arguments.number,
        metavar="S",
        help="from asking for an instance to its container; default: the cold start's that AWS told, or 300",
    )
    group.add_argument(
        "--model-load-s",
        type=arguments.number,
        metavar="S",
        help="from there to answers within the objective; default: the recommendation's cold start, or 60",
    )
    group.add_argument(
        "--metric-delay-s",
        type=arguments.whole,
        metavar="S",
        help="until an alarm sees a minute; default: 120, AWS's own figure",
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class _Asked:
    """The simulation that the options ask for: its workload, its service, its traffic, its seeds."""

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

    def never_scaled(self, policy: Policy, least: int) -> Policy:
        """Returns a fleet of the recommended size, and of `least` instances at least."""
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
        """Keeps what was simulated as a whole, and returns the error that says so."""
        if not whole:
            return Interrupted("Interrupted before anything was simulated as a whole: there is nothing to keep.")
        said = document(self.folder.workload.name, self.case, whole[0].result, None, None)
        folder = self.keep(said, whole, complete=False, safe=False)
        return Interrupted(f"Interrupted: {what} simulated before, and are kept in {folder}.")


def _simulate(options: argparse.Namespace, stderr: Console) -> int:
    folder = load_workload(options.workload)
    folder = folder.measured_on(measured_target(options.source or folder.recommendation_file))
    traffic = _traffic(options, folder)
    service = _service(options, folder)
    timing = _timing(options, timing_of(folder.workload, service.cold_start))
    case = Case(traffic=traffic, curve=service.curve, timing=timing)
    policy = _policy(options, service.policy)
    seeds = _seeds(options, steps_of(case, policy))
    asked = _Asked(options=options, folder=folder, case=case, service=service, seeds=seeds)
    return _optimise(asked, stderr) if options.optimise else _compare(asked, policy, stderr)


def _compare(asked: _Asked, policy: Policy, stderr: Console) -> int:
    """Simulates a policy beside today's and a fleet that is never scaled."""
    workload, today = asked.folder.workload, asked.service.policy
    policies = {TODAY: today, NEVER: asked.never_scaled(policy, policy.min_capacity)}
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
    """Simulates policies by their names, some seeds of each in turn. Raises `Interrupted`; the seeds that all of them
    have are kept then.
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
            raise asked.interrupted(named(), f"{len(outcomes[0])} of {len(asked.seeds)} seeds were") from None
    return named()


def _optimise(asked: _Asked, stderr: Console) -> int:
    """Searches the cheapest policy within the tolerance, and writes it into the recommendation."""
    workload, least = asked.folder.workload, least_instances(asked.folder.workload)
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
            fixed = asked.never_scaled(asked.service.policy, least)
            never = asked.result(fixed, pool.run(fixed, asked.seeds, lambda _: None))
        except KeyboardInterrupt:
            best = [Named(name="best so far", result=each) for each in search.best_so_far()[:1]]
            courses = [*best, *on_frontier(search.best_so_far(), best)]
            raise asked.interrupted(courses, f"{search.tried} policies of the search were") from None
    caution(stderr, asked.case.curve, asked.service, found.chosen)
    said = document(workload.name, asked.case, found.chosen, found.today, never, _searched(found, asked.seeds))
    compared = [(TODAY, found.today), (NEVER, never)]
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
        why = "was confirmed on the seeds held out" if found.chosen.kept else "keeps the tolerance"
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
    tell(stderr, f"Kept in {folder}; `python -m inference_recommender report {folder}` draws it.")


def _write(asked: _Asked, stderr: Console, better: Recommendation | None) -> None:
    """Writes the recommendation that was simulated, if one was, with the policy that was found."""
    file: Path = asked.options.source or asked.folder.recommendation_file
    if better is None:
        tell(stderr, "Nothing was written: a measurement was simulated, and no recommendation.", "yellow")
    elif better == asked.service.recommendation:
        tell(stderr, f"{file} has this policy already.")
    else:
        better.write_json(file)
        tell(stderr, f"Written for review: {file}")


def _recommended_policy(asked: _Asked, found: Found) -> Recommendation | None:
    before = asked.service.recommendation
    if before is None or found.choice is None:
        return before
    return recommended(before, found, asked.case, given_minimums(asked.folder.workload))


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
    asked = {name: getattr(options, name) for name in _given(options)}
    measured = {name: words for name, words in known.known_by.items() if name not in asked}
    return replace(known, **asked, known_by=measured)


def _given(options: argparse.Namespace) -> dict[str, str]:
    """Returns the fields of the timing that options name, and which."""
    names = ("provisioning_s", "model_load_s", "metric_delay_s")
    return {name: f"--{name.replace('_', '-')}" for name in names if getattr(options, name) is not None}


def _seeds(options: argparse.Namespace, steps: int) -> Sequence[int]:
    count = options.seeds or (SEEDS_OF_LONG if steps > LONG_STEPS else SEEDS)
    return range(options.first_seed, options.first_seed + count)
