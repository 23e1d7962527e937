"""`simulate`: minutes over the objective, late requests and cost of an autoscaled fleet under a traffic trace."""

import argparse
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from itertools import count
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from inference_recommender.capacity.arrivals import fit, markov_arrivals
from inference_recommender.cli import arguments
from inference_recommender.load_generator.time_stamps import arrivals_of, fitted, read_stamps
from inference_recommender.output import Commands, add_command, tell
from inference_recommender.report.inputs import read_inputs
from inference_recommender.report.simulation_report import (
    FIXED,
    RECOMMENDED,
    SIMULATION,
    CompletedSimulation,
    arrivals_report,
    simulation_document,
)
from inference_recommender.report.text import print_result
from inference_recommender.run_folder import RunFolder, run_name
from inference_recommender.simulate.functions import BUILT_IN, policy_function
from inference_recommender.simulate.policy import Policy, TrafficSource
from inference_recommender.simulate.policy_search import (
    SEARCH_SEEDS,
    PolicySearch,
    PolicySearchResult,
    optimised_recommendation,
    seeds_held_out,
)
from inference_recommender.simulate.seeds import PolicyResult, SimulationCase, Tolerance, workers
from inference_recommender.simulate.shapes import SHAPES, shape
from inference_recommender.simulate.sized_service import (
    SizedService,
    given_minimums,
    least_instances,
    measured_target,
    recommended_policy,
    sized_service,
)
from inference_recommender.simulate.trace import DEFAULT_DAYS, Trace, following, read_trace, recorded, trace_csv
from inference_recommender.simulate.tracking import MINUTE_S
from inference_recommender.simulate.unseen import UnseenResult, judge, rise_that_tracking_misses
from workloads import ROOT, UsageError, Workload, WorkloadFolder, load_workload
from workloads.files import from_here
from workloads.folder import table_with_settings

EXCEEDED = 1
SEEDS, SEEDS_OF_LONG = 100, 1
UNSEEN_SEEDS = 5
"""The most seeds of --judge-on."""
LONG_MINUTES = 7 * 24 * 60
"""A longer trace has one seed by default."""
MOST_TIMES_OFF = 2
"""The largest factor between a recorded trace's peak and the objective's."""
SEARCHED = 80
"""About the number of policies that a search tries."""
CLOUDWATCH = "cloudwatch:"
REQUESTED = "requested"
"""The name of the policy of --set policy.KEY=VALUE."""
DESCRIPTION = """Simulates the recommended fleet under a traffic trace: CloudWatch's alarms, target tracking with its
cooldowns, instances that take minutes to start, and requests that wait, are late or are dropped. Each seed draws the
traffic's noise, the arrivals, the start times of instances, and the capacity within its measured interval.

TRACE is one of
- a CSV file of times and requests per second
- a shape with the objective's peak and trough: diurnal, weekly, flash-sale, steady-growth, zone-lost
- cloudwatch:ENDPOINT, the recorded invocations of an endpoint

The policy is compared with a fixed fleet of the recommended size, and with an ideal fleet that knows the future.
--fit reads a file of time stamps, one request a line, and prints the arrival process that fits it.
--set policy.KEY=VALUE adds another policy, with keys of `autoscaling` in recommendation.json. --policy adds a function:
- step: step scaling; predictive: the mean of earlier days; growth: the growth at this time of earlier days
- FILE.py:FUNCTION: your own. It gets the metrics of each minute and returns a number of instances.
--optimise searches the cheapest policy within the tolerance and writes it into the recommendation for review; the next
`cdk deploy` uses it. --judge-on judges all policies on each day of a trace that follows --trace. [simulation] in
workload.toml has the start times, the tolerance and how gaps are filled.

Exit code 0: the minutes over the objective are within the tolerance, with --judge-on on 95 % of the days; 1: they are
not. A folder below runs/ keeps the result; `report` renders it."""


def add(commands: Commands) -> None:
    parser = add_command(commands, "simulate spellcheck --trace flash-sale", DESCRIPTION)
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
    arguments.add_settings(parser, "simulation.KEY", "simulation.provisioning_s")
    parser.add_argument("--optimise", action="store_true", help="write the cheapest policy within the tolerance")
    parser.add_argument(
        "--policy",
        action="append",
        default=[],
        dest="policies",
        metavar="POLICY",
        help=f"{', '.join(BUILT_IN)} or FILE.py:FUNCTION; can be repeated. A function is compared, never written",
    )
    parser.add_argument("--judge-on", metavar="TRACE", help="CSV file that follows --trace; its days judge policies")
    parser.add_argument("--fit", action="store_true", help="fit an arrival process to time stamps; simulates nothing")
    parser.add_argument("--runs", type=Path, default=ROOT / "runs", metavar="DIR", help="default: runs/")
    parser.add_argument("--json", action="store_true", help="print the result as one JSON document")
    parser.set_defaults(command=_simulate)


def _simulate(options: argparse.Namespace, stderr: Console) -> int:
    if options.fit:
        found = fit(read_stamps(Path(options.trace)))
        print_result(arrivals_report(Path(options.trace).name, options.workload, found), json=options.json)
        return 0
    folder = _workload(options)
    workload, settings = folder.workload, folder.workload.simulation
    traffic = _traffic(options, workload)
    for name in options.policies:
        policy_function(name)  # raises for a wrong one
    service = sized_service(folder, options.source or folder.recommendation_file)
    unseen = following(read_trace(Path(options.judge_on), settings.fill_gaps), traffic) if options.judge_on else None
    _check_size(traffic if unseen is None else unseen, workload, service)
    policy = _policy(options, service, workload)
    case = SimulationCase(
        traffic=traffic,
        curve=service.curve,
        timing=service.timing,
        tolerance=Tolerance(minutes=settings.tolerance_minutes, confidence=settings.confidence),
        dispersion=_dispersion(folder, traffic),
    )
    seeds = range(options.seeds or (SEEDS_OF_LONG if case.minutes > LONG_MINUTES else SEEDS))
    judged = replace(case, traffic=unseen) if unseen else case
    if rise := rise_that_tracking_misses(judged, policy):
        tell(stderr, f"Caution: {rise}", "yellow")
    search = _searched(case, service.policy, seeds, workload, stderr) if options.optimise else None
    functions = {name: replace(service.policy, function=name) for name in options.policies}
    results = _results(case, service, policy, functions, seeds, search, stderr)
    days: dict[str, UnseenResult] = {}
    if unseen:
        least, few = least_instances(workload), seeds[:UNSEEN_SEEDS]
        with _progress(stderr, len(results) * len(few)) as step:
            days = {name: judge(judged, each.policy, few, least, step) for name, each in results.items()}
    done = CompletedSimulation(
        case=case, service=service, workload=workload, results=results, search=search, unseen=days, rise=rise
    )
    run = _new_folder(options.runs, workload)
    run.keep_workload(workload)
    if options.trace.startswith(CLOUDWATCH):
        run.keep_text("trace.csv", trace_csv(traffic.load(0)))
    simulation = simulation_document(run.path.name, done, read_inputs(run.path), datetime.now(UTC))
    simulation.write_json(run.path / SIMULATION)
    print_result(simulation.report, json=options.json, document=simulation)
    tell(stderr, f"Kept in {run}. `python -m inference_recommender report {run}` draws it.")
    if search:
        _write(options.source or folder.recommendation_file, done, search, stderr)
    return 0 if done.safe else EXCEEDED


def _dispersion(folder: WorkloadFolder, traffic: TrafficSource) -> float:
    """Returns the index of dispersion of the requests in a minute at the trace's mean rate."""
    rate = traffic.load(0).mean_per_minute
    arrivals = fitted(arrivals_of(folder.workload.latency_objective, folder.path), rate)
    return markov_arrivals(arrivals, rate / MINUTE_S).dispersion(MINUTE_S)


def _searched(
    case: SimulationCase, recommended: Policy, seeds: range, workload: Workload, stderr: Console
) -> PolicySearchResult:
    held_out = seeds_held_out(case.tolerance)
    tell(stderr, f"Searching policies on {SEARCH_SEEDS} seeds each. {held_out} held-out seeds confirm the choice.")
    with workers(case, SEARCH_SEEDS * SEARCHED) as pool, _progress(stderr, None) as done:
        return PolicySearch(
            case=case,
            today=recommended,
            given=given_minimums(workload),
            least=least_instances(workload),
            seeds=seeds,
            workers=pool,
            done=done,
        ).run()


def _results(
    case: SimulationCase,
    service: SizedService,
    policy: Policy,
    functions: Mapping[str, Policy],
    seeds: range,
    found: PolicySearchResult | None,
    stderr: Console,
) -> dict[str, PolicyResult]:
    """Returns the judged policy, the functions, the recommended policy and a fixed fleet by name."""
    size = max(service.candidate.instance_count or 1, policy.min_capacity)
    fixed = replace(policy, min_capacity=size, max_capacity=size, scheduled_minimums=())
    policies = {REQUESTED: policy, **functions, RECOMMENDED: service.policy, FIXED: fixed}
    if policy == service.policy:
        policies.pop(REQUESTED)
    if found:
        policies = {**functions, FIXED: fixed}
    total = len(seeds) * len(policies)
    with workers(case, total) as pool, _progress(stderr, total) as done:
        results = {name: pool.run(each, seeds, done) for name, each in policies.items()}
    if found is None:
        return results
    results = {RECOMMENDED: found.today, **results}
    if found.chosen is not found.today:
        results = {"chosen" if found.safe else "nearest": found.chosen, **results}
    return results


def _new_folder(runs: Path, workload: Workload) -> RunFolder:
    name = run_name(workload.name, "simulation")
    paths = (runs / (f"{name}-{number}" if number > 1 else name) for number in count(1))
    return RunFolder(next(path for path in paths if not path.exists()))


def _write(file: Path, done: CompletedSimulation, found: PolicySearchResult, stderr: Console) -> None:
    """Writes the chosen policy into the recommendation, if it is confirmed and one was simulated."""
    workload, service = done.workload, done.service
    if not found.safe:
        why = "was confirmed on held-out seeds" if found.chosen.is_within_tolerance else "is within the tolerance"
        tell(stderr, f"Nothing was written: no policy {why}.", "yellow")
    elif not done.safe:
        tell(stderr, "Nothing was written: the policy exceeds the tolerance on too many of the unseen days.", "yellow")
    elif service.recommendation is None:
        tell(stderr, "Nothing was written: --from names a measurement, not a recommendation.", "yellow")
    elif found.chosen is found.today:
        tell(stderr, f"{from_here(file)} has this policy already.")
    else:
        optimised_recommendation(service.recommendation, found, done.case, given_minimums(workload)).write_json(file)
        tell(stderr, f"Written: {from_here(file)}. The next `cdk deploy` uses it.")
        if before := service.autoscaling.simulated:
            tell(stderr, f"It replaces the policy that was chosen on {before.trace}.")
        tell(stderr, f"Next: review it, then run `cdk deploy {workload.stack_name}`.")


@contextmanager
def _progress(stderr: Console, total: int | None) -> Iterator[Callable[[int], None]]:
    """Draws a bar on a terminal. `total` is None if it is unknown."""
    columns = (TextColumn("simulating"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=stderr, disable=not stderr.is_terminal, transient=True) as bar:
        task = bar.add_task("", total=total)
        yield lambda more: bar.advance(task, more)


def _workload(options: argparse.Namespace) -> WorkloadFolder:
    folder = load_workload(options.workload)
    folder = folder.measured_on(measured_target(options.source or folder.recommendation_file))
    of_objective = [each for each in options.settings if each.startswith("objective.")]
    others = [each for each in options.settings if not each.startswith(("objective.", "policy."))]
    if of_objective and (options.source is None or options.source.name == folder.recommendation_file.name):
        raise UsageError(
            "--set objective.KEY=VALUE sizes the fleet again. Name the measurement with --from, such as the "
            "recommendation's run: --from runs/NAME."
        )
    workload = folder.workload
    objective = table_with_settings(of_objective, "objective", workload.latency_objective)
    simulation = table_with_settings(others, "simulation", workload.simulation)
    folder.workload = workload.model_copy(update={"objective": objective, "simulation": simulation})
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


def _traffic(options: argparse.Namespace, workload: Workload) -> TrafficSource:
    name: str = options.trace
    if name.startswith(CLOUDWATCH):
        from aws_api.session import AwsSession  # boto3, which traces and shapes do without

        return recorded(AwsSession(), name.removeprefix(CLOUDWATCH), options.days or DEFAULT_DAYS, datetime.now(UTC))
    for known in SHAPES:
        if name == known:
            return shape(known, workload.latency_objective, workload.sizing, options.days)
    if options.days is not None:
        raise UsageError("--days: sets the length of a shape. A file has its own length.")
    if not Path(name).exists():
        raise UsageError(f"--trace: '{name}' is neither a file nor a shape. Shapes: {', '.join(SHAPES)}.")
    return read_trace(Path(name), workload.simulation.fill_gaps)


def _policy(options: argparse.Namespace, service: SizedService, workload: Workload) -> Policy:
    """Returns the recommended policy with the settings of --set policy.KEY=VALUE."""
    settings = [each for each in options.settings if each.startswith("policy.")]
    if options.optimise and settings:
        raise UsageError("--optimise chooses the policy itself. Leave out --set policy.")
    return recommended_policy(workload, table_with_settings(settings, "policy", service.autoscaling))
