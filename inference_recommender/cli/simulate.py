"""`simulate`: minutes over the objective, late requests and cost of an autoscaled fleet under a traffic trace."""

import argparse
import math
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from inference_recommender.cli import arguments
from inference_recommender.output import Commands, add_command, stdout_console, tell
from inference_recommender.report.inputs import FolderInputs
from inference_recommender.report.simulation_report import simulation_report
from inference_recommender.report.text import show
from inference_recommender.run_folder import RunFolder
from inference_recommender.simulate.policy import Policy, SeedOutcome, TrafficSource
from inference_recommender.simulate.policy_result import PolicyResult, Tolerance
from inference_recommender.simulate.policy_search import (
    SEARCH_SEEDS,
    PolicySearch,
    PolicySearchResult,
    optimised_recommendation,
    seeds_held_out,
)
from inference_recommender.simulate.seeds import InProcess, Processes, SimulationCase, Workers, workers
from inference_recommender.simulate.shapes import SHAPES, shape
from inference_recommender.simulate.simulation import without_policy
from inference_recommender.simulate.simulation_file import (
    FIXED,
    RECOMMENDED,
    NamedResult,
    Simulation,
    frontier_results,
    simulation_of,
    write_folder,
)
from inference_recommender.simulate.sized_service import (
    SizedService,
    given_minimums,
    least_instances,
    measured_service,
    measured_target,
    recommended_service,
    timing_of,
)
from inference_recommender.simulate.trace import Trace, read_trace
from workloads import ROOT, Interrupted, UsageError, Workload, WorkloadFolder, load_workload
from workloads.files import from_here

EXCEEDED = 1
SEEDS, SEEDS_OF_LONG = 100, 1
LONG_STEPS = 7 * 24 * 60
"""A trace with more steps has one seed by default."""
MOST_TIMES_OFF = 2
"""The largest factor between a recorded trace's peak and the objective's."""
MOST_STEPS_KEPT = 366 * 24 * 60
"""Steps of a year of minutes, whose course takes 60 MB."""
SEEDS_IN_TURN = 50
"""Seeds of a policy before those of the next, so that an interrupted simulation has the same seeds of each."""
SEARCHED = 80
"""About the number of policies that a search tries."""
LOG_EVERY_S = 30.0
CLOUDWATCH = "cloudwatch:"
REQUESTED = "requested"
"""The name of the policy of --policy."""
POLICY_KEYS = {
    "target": "target_invocations_per_instance",
    "min": "min_capacity",
    "max": "max_capacity",
    "scale_out_cooldown_s": "scale_out_cooldown_s",
    "scale_in_cooldown_s": "scale_in_cooldown_s",
}
"""A key of --policy → the policy's field."""
DESCRIPTION = """Simulates the recommended fleet under a traffic trace: CloudWatch's alarms, target tracking with its
cooldowns, instances that take minutes to start, and requests that wait, are late or are dropped. Each seed draws the
traffic's noise, the arrivals, the start times of instances, and the capacity within its measured interval.

TRACE is one of
- a CSV file of times and requests per second
- a shape with the objective's peak and trough: diurnal, weekly, flash-sale, steady-growth, zone-lost, retry-storm
- cloudwatch:ENDPOINT, the recorded invocations of an endpoint

The policy is compared with a fixed fleet of the recommended size, and with an ideal fleet that knows the future.
--optimise searches the cheapest policy within the tolerance and writes it into the recommendation for review; the next
`cdk deploy` uses it. [simulation] in workload.toml has the start times, the tolerance and how gaps are filled.

Exit code 0: the minutes over the objective are within the tolerance; 1: they are not. A folder below runs/ keeps the
result; `report` renders it. Ctrl-C keeps the complete seeds, or the frontier of the search."""


def add(commands: Commands) -> None:
    parser = add_command(
        commands,
        "simulate",
        "simulate autoscaling under a traffic trace",
        "simulate spellcheck --trace flash-sale",
        DESCRIPTION,
    )
    parser.add_argument("workload", metavar="WORKLOAD")
    parser.add_argument("--trace", required=True, metavar="TRACE", help="a CSV file, a shape or cloudwatch:ENDPOINT")
    parser.add_argument(
        "--days",
        type=arguments.count,
        metavar="N",
        help="length of a shape, default: 1, or 7 for weekly and steady-growth; with cloudwatch: the last days, "
        "default: 14",
    )
    parser.add_argument(
        "--from",
        type=Path,
        dest="source",
        metavar="PATH",
        help="recommendation.json, or a measurement as `size --from` reads it; default: the workload's recommendation",
    )
    parser.add_argument(
        "--seeds",
        type=arguments.count,
        metavar="N",
        help=f"number of seeds; default: {SEEDS}, or {SEEDS_OF_LONG} for a trace of more than a week",
    )
    parser.add_argument(
        "--policy",
        nargs="+",
        default=[],
        metavar="KEY=VALUE",
        help=f"another policy to compare with the recommended one: {', '.join(POLICY_KEYS)}",
    )
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        dest="settings",
        metavar="simulation.KEY=VALUE",
        help="replace a key of [simulation] or [objective] of workload.toml",
    )
    parser.add_argument(
        "--optimise", action="store_true", help="search the cheapest policy within the tolerance and write it"
    )
    parser.add_argument("--runs", type=Path, default=ROOT / "runs", metavar="DIR", help="default: runs/")
    parser.add_argument("--json", action="store_true", help="print the result as one JSON document")
    parser.set_defaults(command=_simulate)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Request:
    """One simulation: its workload, service, traffic and seeds."""

    options: argparse.Namespace
    folder: WorkloadFolder
    case: SimulationCase
    service: SizedService
    seeds: Sequence[int]

    @property
    def tolerance(self) -> Tolerance:
        settings = self.folder.workload.simulation
        return Tolerance(minutes=settings.tolerance_minutes, confidence=settings.confidence)

    def result(self, policy: Policy, outcomes: tuple[SeedOutcome, ...]) -> PolicyResult:
        return PolicyResult(
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

    def keep(self, named: Sequence[NamedResult], **facts: Any) -> tuple[Simulation, RunFolder]:
        """Writes the run's folder."""
        workload, recorded = self.folder.workload, self.options.trace.startswith(CLOUDWATCH)
        simulation = simulation_of(self.case, self.service, workload, named, datetime.now(UTC), **facts)
        load = self.case.traffic.load(0) if recorded else None
        return simulation, write_folder(self.options.runs, simulation, workload, named, load)

    def conclude(self, stderr: Console, named: Sequence[NamedResult], **facts: Any) -> Simulation:
        """Writes the folder and prints the result."""
        simulation, folder = self.keep(named, **facts)
        if self.options.json:
            print(simulation.model_dump_json(indent=2))
        else:
            report = simulation_report(folder.path.name, simulation, self.folder.workload, FolderInputs())
            show(report, stdout_console())
        tell(stderr, f"Kept in {folder}. `python -m inference_recommender report {folder}` draws it.")
        return simulation

    def interrupted(self, complete: Sequence[NamedResult], what: str) -> Interrupted:
        """Keeps the complete results and returns the error to raise."""
        if not complete:
            return Interrupted("Interrupted before the first results were complete: there is nothing to keep.")
        _, folder = self.keep(complete, complete=False)
        return Interrupted(f"Interrupted: {what} complete. They are kept in {folder}.")


def _simulate(options: argparse.Namespace, stderr: Console) -> int:
    folder = _workload(options)
    traffic = _traffic(options, folder.workload)
    service = _service(options, folder)
    _check_size(traffic, folder.workload, service)
    case = SimulationCase(traffic=traffic, curve=service.curve, timing=timing_of(folder.workload, service.cold_start))
    policy = _policy(options, service.policy)
    seeds = range(options.seeds or (SEEDS_OF_LONG if case.steps(policy) > LONG_STEPS else SEEDS))
    request = _Request(options=options, folder=folder, case=case, service=service, seeds=seeds)
    _check_writable(options.runs)
    return _optimise(request, stderr) if options.optimise else _compare(request, policy, stderr)


def _compare(request: _Request, policy: Policy, stderr: Console) -> int:
    """Simulates a policy beside the recommended one and a fixed fleet."""
    recommended = request.service.policy
    policies = {RECOMMENDED: recommended, FIXED: request.fixed_fleet(policy, policy.min_capacity)}
    if policy != recommended:
        policies = {REQUESTED: policy, **policies}
    simulation = request.conclude(stderr, _results(request, policies, stderr))
    return 0 if simulation.safe else EXCEEDED


def _results(request: _Request, policies: Mapping[str, Policy], stderr: Console) -> list[NamedResult]:
    """Simulates policies by name, some seeds of each in turn. On Ctrl-C keeps the seeds that all policies have, and
    raises `Interrupted`.
    """
    outcomes: list[tuple[SeedOutcome, ...]] = [()] * len(policies)

    def named() -> list[NamedResult]:
        pairs = zip(policies.items(), outcomes, strict=True)
        return [NamedResult(name=name, result=request.result(policy, each)) for (name, policy), each in pairs if each]

    seeds, policy = request.seeds, request.service.policy
    with ExitStack() as stack:
        pool = request.pool(stack, policy, len(seeds) * len(policies))
        if len(seeds) == 1 and request.case.steps(policy) <= MOST_STEPS_KEPT:
            pool = InProcess(request.case, timeline=True)  # this seed's course is kept: no second simulation
        done = stack.enter_context(_progress(stderr, len(seeds) * len(policies)))
        try:
            for first in range(0, len(seeds), SEEDS_IN_TURN):
                some = seeds[first : first + SEEDS_IN_TURN]
                more = [pool.run(each, some, done) for each in policies.values()]
                outcomes = [before + after for before, after in zip(outcomes, more, strict=True)]
        except KeyboardInterrupt:
            raise request.interrupted(named(), f"{len(outcomes[0])} of {len(seeds)} seeds are") from None
    return named()


def _optimise(request: _Request, stderr: Console) -> int:
    """Searches the cheapest policy within the tolerance, and writes it into the recommendation."""
    workload, recommended = request.folder.workload, request.service.policy
    least = least_instances(workload)
    held_out = seeds_held_out(request.tolerance)
    tell(stderr, f"Searching policies on {SEARCH_SEEDS} seeds each. {held_out} held-out seeds confirm the choice.")
    with ExitStack() as stack:
        pool = request.pool(stack, recommended, SEARCH_SEEDS * SEARCHED)
        search = PolicySearch(
            case=request.case,
            today=recommended,
            given=given_minimums(workload),
            least=least,
            seeds=request.seeds,
            tolerance=request.tolerance,
            price_per_hour_usd=request.service.price_per_hour_usd,
            workers=pool,
            done=stack.enter_context(_progress(stderr, None)),
        )
        try:
            found = search.run()
            fixed = request.fixed_fleet(recommended, least)
            never = request.result(fixed, pool.run(fixed, request.seeds, lambda _: None))
        except KeyboardInterrupt:
            best = [NamedResult(name="best so far", result=each) for each in search.best_so_far()[:1]]
            courses = [*best, *frontier_results(search.best_so_far(), best)]
            raise request.interrupted(courses, f"{search.tried} policies of the search are") from None
    named = [NamedResult(name=RECOMMENDED, result=found.today), NamedResult(name=FIXED, result=never)]
    if found.choice is not None:
        named.insert(0, NamedResult(name="chosen" if found.safe else "nearest", result=found.chosen))
    request.conclude(stderr, [*named, *frontier_results(found.frontier(), named)], search=found)
    if not found.safe:
        why = "was confirmed on held-out seeds" if found.chosen.is_within_tolerance else "is within the tolerance"
        tell(stderr, f"Nothing was written: no policy {why}.", "yellow")
        return EXCEEDED
    _write(request, found, stderr)
    return 0


def _write(request: _Request, found: PolicySearchResult, stderr: Console) -> None:
    """Writes the chosen policy into the recommendation, if one was simulated."""
    file: Path = request.options.source or request.folder.recommendation_file
    before = request.service.recommendation
    if before is None:
        tell(stderr, "Nothing was written: --from names a measurement, not a recommendation.", "yellow")
    elif found.choice is None:
        tell(stderr, f"{from_here(file)} has this policy already.")
    else:
        given = given_minimums(request.folder.workload)
        optimised_recommendation(before, found, request.case, given).write_json(file)
        tell(stderr, f"Written: {from_here(file)}. The next `cdk deploy` uses it.")
        if replaced := request.service.simulated_on:
            tell(stderr, f"It replaces the policy that was chosen on {replaced}.")
        tell(stderr, f"Next: review it, then run `cdk deploy {request.folder.workload.stack_name}`.")


@contextmanager
def _progress(stderr: Console, total: int | None) -> Iterator[Callable[[int], None]]:
    """Draws a bar on a terminal; elsewhere prints a line every half minute. `total` is None if it is unknown."""
    bar = Progress(
        TextColumn("simulating"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=stderr,
        disable=not stderr.is_terminal,
        transient=True,
    )
    began = logged = time.monotonic()
    count = 0

    def advance(more: int) -> None:
        nonlocal count, logged
        count += more
        bar.advance(task, more)
        now = time.monotonic()
        if not stderr.is_terminal and now - logged >= LOG_EVERY_S:
            of = f" of {total:,}" if total else ""
            tell(stderr, f"Simulated {count:,}{of} seeds in {now - began:,.0f} s.")
            logged = now

    with bar:
        task = bar.add_task("", total=total)
        yield advance


def _workload(options: argparse.Namespace) -> WorkloadFolder:
    """Returns the workload with the keys of --set."""
    folder = load_workload(options.workload)
    folder = folder.measured_on(measured_target(options.source or folder.recommendation_file))
    of_objective = [each for each in options.settings if each.startswith("objective.")]
    others = [each for each in options.settings if each not in of_objective]
    if of_objective and (options.source is None or options.source.name == folder.recommendation_file.name):
        raise UsageError(
            "--set objective.KEY=VALUE sizes the fleet again. Name the measurement with --from, such as the "
            "recommendation's run: --from runs/NAME."
        )
    workload = folder.workload
    folder.workload = workload.model_copy(
        update={
            "objective": arguments.with_settings(of_objective, "objective", workload.latency_objective),
            "simulation": arguments.with_settings(others, "simulation", workload.simulation),
        }
    )
    return folder


def _check_size(traffic: TrafficSource, workload: Workload, service: SizedService) -> None:
    """Raises `UsageError` if a recorded trace needs a fleet of another size than the objective's peak does."""
    if not isinstance(traffic, Trace):  # a shape is made from the objective
        return
    load, expected = traffic.load(0), workload.latency_objective.peak_invocations_per_minute
    peak = load.peak_per_minute
    if expected <= peak * MOST_TIMES_OFF and peak <= expected * MOST_TIMES_OFF:
        return
    needed = max(math.ceil(peak), 1)
    raise UsageError(
        f"{traffic.name} has a peak of {peak:,.0f} invocations/min (mean {load.mean_per_minute:,.0f}), and the "
        f"objective's peak is {expected:,}. They differ by more than a factor of {MOST_TIMES_OFF}, so the fleet has "
        f"the wrong size for this trace. Size a fleet for it: `python -m inference_recommender size --from "
        f"{service.run} --peak-invocations-per-minute {needed}`. Then simulate with --from {service.run} --set "
        f"objective.peak_invocations_per_minute={needed}."
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


def _traffic(options: argparse.Namespace, workload: Workload) -> TrafficSource:
    name: str = options.trace
    if name.startswith(CLOUDWATCH):
        return _recorded(options)
    for known in SHAPES:
        if name == known:
            return shape(known, workload.latency_objective, workload.sizing, options.days)
    if options.days is not None:
        raise UsageError("--days: sets the length of a shape. A file has its own length.")
    if not Path(name).exists():
        raise UsageError(f"--trace: '{name}' is neither a file nor a shape. Shapes: {', '.join(SHAPES)}.")
    return read_trace(Path(name), workload.simulation.fill_gaps)


def _recorded(options: argparse.Namespace) -> TrafficSource:
    from aws_api.session import AwsSession  # boto3, which traces and shapes do without
    from inference_recommender.simulate.cloudwatch import DEFAULT_DAYS, check_days, recorded

    days = options.days or DEFAULT_DAYS
    check_days(days)
    return recorded(AwsSession(), options.trace.removeprefix(CLOUDWATCH), days, datetime.now(UTC))


def _service(options: argparse.Namespace, folder: WorkloadFolder) -> SizedService:
    file: Path = options.source or folder.recommendation_file
    if file.name != folder.recommendation_file.name:
        return measured_service(folder.workload, file)
    return recommended_service(folder, file)


def _policy(options: argparse.Namespace, recommended: Policy) -> Policy:
    """Returns the recommended policy with the settings of --policy."""
    if options.optimise and options.policy:
        raise UsageError("--optimise chooses the policy itself. Leave out --policy.")
    given: dict[str, Any] = {}
    for setting in options.policy:
        key, _, text = setting.partition("=")
        if key not in POLICY_KEYS:
            raise UsageError(f"--policy: got '{setting}'. Allowed: {', '.join(f'{each}=N' for each in POLICY_KEYS)}.")
        given[POLICY_KEYS[key]] = _policy_value(setting, key, text)
    policy = replace(recommended, **given)
    if policy.min_capacity > policy.max_capacity:
        raise UsageError(
            f"The policy's minimum of {policy.min_capacity} instances is above its maximum of {policy.max_capacity}. "
            "Change --policy min or max."
        )
    return policy


def _policy_value(setting: str, key: str, text: str) -> float | int:
    """Parses a value: seconds are whole numbers from 0 on, counts are whole, and the target is above 0."""
    parse = arguments.whole if key.endswith("_s") else arguments.positive if key == "target" else arguments.count
    try:
        return parse(text)
    except argparse.ArgumentTypeError as error:
        raise UsageError(f"--policy: {setting}: {error}") from error
