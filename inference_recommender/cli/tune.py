"""`tune`: searches the serving configuration with the highest capacity within the latency objective."""

import argparse
import contextlib
import json
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console

from aws_api.errors import AwsUnavailable
from aws_api.session import AwsSession
from inference_recommender.cli import arguments
from inference_recommender.measure.system import cores, machine_description
from inference_recommender.measurement import limit_of
from inference_recommender.output import Commands, add_command, stdout_console, tell
from inference_recommender.payloads import payload_archive
from inference_recommender.report.document import Report
from inference_recommender.report.text import print_result
from inference_recommender.run_folder import run_name
from inference_recommender.sizing.prices import listed_price
from inference_recommender.tune.folder import ProbeLine, TuneFolder, TunePlan, resumed
from inference_recommender.tune.race import EndReason, Race
from inference_recommender.tune.space import default_targets, space
from inference_recommender.tune.triton import SHORTEST_PROBE_S, Builds, TunedTriton
from inference_recommender.tune.tune_report import tune_report
from workloads import (
    ROOT,
    Interrupted,
    NeuronTarget,
    UsageError,
    Workload,
    WorkloadFolder,
    artifact_file,
    load_artifact,
    load_workload,
)
from workloads.folder import table_with_settings

NOTHING_KEEPS = 1
PRICED_IN = "us-east-1"
"""Default region of the price."""
DESCRIPTION = """Searches batch size, queue delay, model instances, threads and targets for the configuration with the
highest capacity within the objective. All configurations race in one search: each gets a short probe of Poisson
arrivals at the best rate so far. Overloaded ones drop out, and the others get longer probes until the best is known.
A Triton of this machine (`make triton`) serves them. It starts for each target and loads the built model with each
configuration, so build the targets first.

The values to try are those of [tune] in workload.toml, which --set replaces: --set tune.threads=1,2. Values that
neither names are chosen for this machine. --dry-run prints what would be tried.

RUN/patch.toml has the best as [variants.tuned]. Append it to workload.toml, build it, and set hosting.target to it. It
is the best for this machine: search on the one that will serve. Ctrl-C keeps every probe, and --resume RUN continues.

Exit code 1: no configuration meets the objective. Exit code 4: the load generator was the bottleneck, or the time was
over before the best was known to 15 %."""


def add(commands: Commands) -> None:
    example = "tune spellcheck --set tune.targets=cpu,cpu-int8 --set tune.threads=1,2"
    parser = add_command(commands, example, DESCRIPTION)
    parser.add_argument("workload", nargs="?", metavar="WORKLOAD")
    arguments.add_settings(parser, "tune.KEY", "tune.max_duration_s")
    parser.add_argument("--instance-type", metavar="TYPE", help="the type that this machine stands for, for the cost")
    parser.add_argument("--runs", type=Path, metavar="DIR", help="parent of the search's folder; default: runs")
    parser.add_argument("--resume", type=Path, metavar="RUN", help="continue a search; no probe is repeated")
    parser.add_argument("--dry-run", action="store_true", help="print the configurations; start nothing")
    parser.add_argument("--json", action="store_true", help="print the result as one JSON document")
    parser.set_defaults(command=_tune)


def _tune(options: argparse.Namespace, stderr: Console) -> int:
    source, folder, plan = (_resumed if options.resume else _begun)(options)
    if options.dry_run:
        _show_space(plan, json_document=options.json)
        return 0
    artifacts = {each.target: load_artifact(ROOT, plan.workload, each.target) for each in plan.configurations}
    arguments.check_archives(folder.path, plan.archives, artifacts)
    plan = plan.model_copy(update={"archives": {name: each.archive_sha256 for name, each in artifacts.items()}})
    folder.begin(plan, source.workload, payload_archive(source.payloads(), source.workload.latency_objective))
    tell(stderr, f"{len(plan.configurations)} configurations. Kept in {folder}")
    builds = {name: (_repository(plan, name), each.environment) for name, each in artifacts.items()}
    race, report = _search(plan, source.workload, folder, builds, stderr)
    if race.reason is EndReason.BOTTLENECK:
        raise folder.no_verdict(f"{race.complaint}. Run it on a machine with more cores or without other work.")
    if report.verdict == "unknown":
        raise folder.no_verdict(
            f"after {race.spent_s:,.0f} s of probes the best is not known to 15 %. Raise tune.max_duration_s, on a "
            "machine without other work."
        )
    print_result(report, json=options.json)
    return 0 if report.verdict == "met" else NOTHING_KEEPS


def _search(
    plan: TunePlan, workload: Workload, folder: TuneFolder, builds: Builds, stderr: Console
) -> tuple[Race, Report]:
    """Returns the race and its report, which it keeps. Raises `Interrupted`."""
    objective = workload.latency_objective
    limit = limit_of(objective)

    def print_probe(line: ProbeLine, number: int) -> None:
        tell(stderr, f"probe {number}: {_in_words(line, objective.percentile)}")

    with contextlib.closing(TunedTriton(plan.workload, builds, folder, limit)) as triton:
        race = Race(
            configurations=plan.configurations,
            send=resumed(folder, triton, print_probe),
            limit=limit,
            shortest_s=SHORTEST_PROBE_S,
            longest_s=plan.longest_s,
        )
        with contextlib.suppress(KeyboardInterrupt):
            race.run()
    report = tune_report(
        folder,
        race,
        price_per_hour_usd=_price(plan.instance_type),
        machine=machine_description(),
        measured_at=datetime.now(UTC).isoformat(timespec="seconds"),
    )
    folder.keep_result(report)
    if race.reason is EndReason.INTERRUPTED:
        raise Interrupted(
            f"Interrupted: {len(folder.lines())} probes are kept in {folder}. Go on with "
            f"`python -m inference_recommender tune --resume {folder}`."
        )
    return race, report


def _begun(options: argparse.Namespace) -> tuple[WorkloadFolder, TuneFolder, TunePlan]:
    if options.workload is None:
        raise UsageError("WORKLOAD: missing. Name the workload to tune, or a search to go on with --resume RUN.")
    source = load_workload(options.workload)
    workload = source.workload
    _ = workload.latency_objective  # a batch has none
    if workload.models:
        raise UsageError(
            f"{source.file}: models: `tune` searches the settings of one model. Allowed: no [[models]]. Remove "
            "them, and tune each workload."
        )
    tune = table_with_settings(options.settings, "tune", workload.tune)
    if not tune.targets:
        tune = tune.model_copy(update={"targets": default_targets(workload, gpu=Path("/dev/nvidia0").exists())})
    for name in tune.targets:
        if isinstance(source.target(name), NeuronTarget):
            raise UsageError(f"tune.targets: {name} is for Inferentia, and tune loads configurations into Triton.")
    configurations, left_out = space(workload, tune, cores())
    if not configurations:
        reasons = "; ".join(left_out) or "the values exclude each other"
        raise UsageError(f"{source.file}: tune: no configuration is left to try: {reasons}.")
    plan = TunePlan(
        workload=workload.name,
        configurations=configurations,
        left_out=left_out,
        archives={},
        instance_type=options.instance_type,
        longest_s=tune.max_duration_s,
    )
    path = (options.runs or ROOT / "runs") / run_name(workload.name, "tune")
    return source, TuneFolder(path), plan


def _resumed(options: argparse.Namespace) -> tuple[WorkloadFolder, TuneFolder, TunePlan]:
    """Takes workload and plan from the folder. Raises `UsageError`."""
    folder = TuneFolder(options.resume)
    plan = folder.plan()
    if options.settings or options.instance_type or options.runs or options.workload not in (None, plan.workload):
        raise UsageError(
            f"--resume: {options.resume} has the settings of the search. Only --json and --dry-run may go with it."
        )
    source = load_workload(plan.workload)
    source.workload = folder.workload()  # the version of the first probe
    return source, folder, plan


def _repository(plan: TunePlan, target: str) -> Path:
    repository = artifact_file(ROOT, plan.workload, target).with_name("repository")
    if not repository.is_dir():
        raise UsageError(
            f"{repository} is missing, from which Triton loads. Build it here: `python -m model_build build "
            f"{plan.workload} --target {target}`."
        )
    return repository


def _price(instance_type: str | None) -> float | None:
    if instance_type is None:
        return None
    try:
        region = AwsSession().region
    except AwsUnavailable:
        region = PRICED_IN
    return listed_price(instance_type, region).usd_per_hour


def _show_space(plan: TunePlan, *, json_document: bool) -> None:
    labels = [each.label for each in plan.configurations]
    if json_document:
        shown = {"workload": plan.workload, "configurations": labels, "left_out": plan.left_out}
        print(json.dumps(shown, indent=2, ensure_ascii=False))
        return
    console, count = stdout_console(), len(labels)
    for label in labels:
        tell(console, label)
    tell(console, f"{count} configuration{'s' * (count != 1)}.")
    for reason, left_out in plan.left_out.items():
        tell(console, f"Left out: {len(left_out)}, because {reason}.")


def _in_words(line: ProbeLine, percentile: str) -> str:
    rate = f"{line.label}: {line.invocations_per_minute:,.0f}/min for {line.duration_s:.0f} s"
    if line.counts is None:
        return f"{rate}: not loaded"
    latency = "no answer" if line.counts.latency_ms is None else f"{line.counts.latency_ms:,.1f} ms"
    return f"{rate}: {percentile} {latency}, {line.counts.late_share:.1%} late"
