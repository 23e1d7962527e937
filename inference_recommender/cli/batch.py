"""`batch`: a batch's shards and cost from its measured rows a second, and the saving against another fleet."""

import argparse
from datetime import UTC, datetime
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from inference_recommender.cli import arguments
from inference_recommender.measure.system import machine_description
from inference_recommender.output import Commands, add_command, number, stdout_console, tell
from inference_recommender.sizing.batch import Throughput, check_one_model, measured, saving, sized
from workloads import (
    ROOT,
    BatchFleet,
    BatchRecommendation,
    BatchSizing,
    ModelArtifact,
    ScheduledBatchHosting,
    ThroughputObjective,
    UsageError,
    WorkloadFolder,
    load_artifact,
    load_workload,
)
from workloads.files import from_here

DESCRIPTION = """A report is the summary that `python -m containers.batch` writes, on AWS one for each shard below
runs/DAY/ of the stack's output bucket. An instance's throughput is the mean of the reports. Where nothing was measured,
--rows-per-second takes a figure that a document states, and the result says so. --baseline compares the cost of a row
with that on other instances. --recommend writes recommendation.json, whose shards the stack deploys."""


def add(commands: Commands) -> None:
    parser = add_command(
        commands,
        "batch",
        "a batch's shards and cost from its rows a second",
        "batch duplicates --from summaries/ --baseline cpu.json --baseline-instance-type c5.xlarge --recommend",
        DESCRIPTION,
    )
    parser.add_argument("workload", metavar="WORKLOAD", help="whose objective and [sizing] count")
    rate = parser.add_mutually_exclusive_group(required=True)
    rate.add_argument("--from", type=Path, nargs="+", dest="reports", metavar="PATH", help="reports, or their folders")
    rate.add_argument(
        "--rows-per-second", type=arguments.positive, metavar="X", help="of one instance, as --source states it"
    )
    parser.add_argument("--source", metavar="TEXT", help="the document that states it: of what model, and when")
    parser.add_argument("--target", metavar="T", help="that was measured; default: the one that is hosted")
    parser.add_argument("--instance-type", metavar="TYPE", help="that was measured; default: the target's first")
    other = parser.add_argument_group("what to compare with")
    other.add_argument("--baseline", type=Path, nargs="+", metavar="PATH", help="reports, or their folders")
    other.add_argument(
        "--baseline-rows-per-second", type=arguments.positive, metavar="X", help="of one instance, as stated"
    )
    other.add_argument("--baseline-source", metavar="TEXT", help="the document that states it")
    other.add_argument("--baseline-instance-type", metavar="TYPE", help="that answered so many")
    parser.add_argument(
        "--rows-per-run", type=arguments.count, metavar="N", help="default: those that the reports answered"
    )
    parser.add_argument("--region", default="us-east-1", metavar="REGION", help="whose prices; default: us-east-1")
    parser.add_argument("--recommend", action="store_true", help="write the workload's recommendation.json for review")
    parser.add_argument("--json", action="store_true", help="print the result as one JSON document")
    parser.set_defaults(command=_batch)


def _batch(options: argparse.Namespace, stderr: Console) -> int:
    _refuse(options)
    folder = load_workload(options.workload)
    found = _sized(options, folder)
    if options.json:
        print(found.model_dump_json(indent=2))
    else:
        _show(found)
    if options.recommend:
        found.write_json(folder.recommendation_file)
        tell(stderr, f"Written: {from_here(folder.recommendation_file)}. The next `cdk deploy` uses it.")
    return 0


def _refuse(options: argparse.Namespace) -> None:
    if options.recommend and options.rows_per_second is not None:
        raise UsageError(
            "--recommend: a recommendation is of what was measured: give --from REPORTS. Shards by a stated figure go "
            "into workload.toml, hosting.shards, with their source."
        )
    pairs = (
        ("rows_per_second", "source"),
        ("baseline_rows_per_second", "baseline_source"),
    )
    for rate, source in pairs:
        if (getattr(options, rate) is None) != (getattr(options, source) is None):
            raise UsageError(f"--{_dashed(rate)} X and --{_dashed(source)} TEXT go together: give both.")
    if options.baseline and options.baseline_rows_per_second:
        raise UsageError("--baseline and --baseline-rows-per-second both give the baseline: leave one out.")
    named = bool(options.baseline or options.baseline_rows_per_second)
    if named != (options.baseline_instance_type is not None):
        raise UsageError(
            "A baseline has --baseline PATH, or --baseline-rows-per-second X, and --baseline-instance-type TYPE: give "
            "both."
        )


def _sized(options: argparse.Namespace, folder: WorkloadFolder) -> BatchSizing:
    """Returns a `BatchRecommendation` where the rate was measured."""
    workload, hosting = folder.workload, folder.workload.hosting
    objective = workload.objective
    if not isinstance(objective, ThroughputObjective) or not isinstance(hosting, ScheduledBatchHosting):
        raise UsageError(
            f"{folder.file}: hosting.kind: is no scheduled-batch. Measure it with `python -m inference_recommender run "
            f"{workload.name}`."
        )
    target = options.target or hosting.target
    types = folder.target(folder.variant(target).target).instance_types
    instance_type = options.instance_type or (types[0] if types else None)
    if instance_type is None:
        raise UsageError(f"{folder.file}: targets.{target} names no instance_types: give --instance-type TYPE.")
    here = machine_description()
    throughput = (
        measured(options.reports, hosting.max_bad_share, here)
        if options.reports
        else Throughput.stated(options.rows_per_second, options.source)
    )
    rows = options.rows_per_run or throughput.rows
    chosen = sized(throughput, instance_type, objective, workload.sizing, rows, options.region)
    other = _baseline(options, hosting.max_bad_share, here)
    baseline = (
        sized(other, options.baseline_instance_type, objective, workload.sizing, rows, options.region)
        if other is not None
        else None
    )
    percent, reason = saving(chosen, baseline)
    result = BatchSizing(
        workload=workload.name,
        target=target,
        objective=objective,
        rows_per_run=rows,
        recommended=chosen,
        baseline=baseline,
        saving_percent=percent,
        reason=reason,
        region=options.region,
        decided_at=datetime.now(UTC).isoformat(timespec="seconds"),
    )
    if throughput.archive_sha256 is None:
        return result
    artifact = load_artifact(ROOT, workload.name, target)
    _check_archive(throughput.archive_sha256, artifact)
    if other is not None and other.archive_sha256 is not None:
        check_one_model(artifact, _built(folder).get(other.archive_sha256), other.archive_sha256)
    return BatchRecommendation(**dict(result), archive_sha256=throughput.archive_sha256)


def _baseline(options: argparse.Namespace, max_bad_share: float, machine: str) -> Throughput | None:
    if options.baseline:
        return measured(options.baseline, max_bad_share, machine)
    if options.baseline_rows_per_second:
        return Throughput.stated(options.baseline_rows_per_second, options.baseline_source)
    return None


def _check_archive(measured_sha256: str, built: ModelArtifact) -> None:
    if measured_sha256 != built.archive_sha256:
        raise UsageError(
            f"--from: was measured on the archive {measured_sha256[:12]}…, but build/{built.workload}/{built.variant} "
            f"has {built.archive_sha256[:12]}…. Measure that one, or name the --target that was measured."
        )


def _built(folder: WorkloadFolder) -> dict[str, ModelArtifact]:
    """Returns the artifacts of the workload that are built here, by their archive's sha256."""
    files = (ROOT / "build" / folder.workload.name).glob("*/artifact.json")
    return {artifact.archive_sha256: artifact for artifact in map(ModelArtifact.from_json, files)}


def _show(recommendation: BatchSizing) -> None:
    console = stdout_console()
    asked = f"{recommendation.workload}: {recommendation.objective.rows_per_second:,g} rows a second"
    if recommendation.rows_per_run:
        asked += f", {recommendation.rows_per_run:,} rows a run"
    table = Table(title=asked, title_justify="left", box=SIMPLE_HEAD)
    for head in ("", "instance type", "rate is"):
        table.add_column(head)
    for head in ("rows/s", "shards", "run\ns", "USD/h", "USD/run", "USD/1M"):
        table.add_column(head, justify="right")
    fleets = {"recommended": recommendation.recommended, "baseline": recommendation.baseline}
    for name, fleet in fleets.items():
        if fleet is not None:
            table.add_row(name, *_cells(fleet))
    console.print(table)
    for name, fleet in fleets.items():
        if fleet is not None:
            tell(
                console,
                f"{name.capitalize()}: {fleet.rows_per_second:,.4g} rows/s on {fleet.instance_type}: "
                f"{fleet.source}. Price: {fleet.cost_reason}",
            )
    if recommendation.saving_percent is not None:
        change = "less" if recommendation.saving_percent >= 0 else "more"
        tell(console, f"A row costs {abs(recommendation.saving_percent):.1f} % {change} than on the baseline.")
    tell(console, recommendation.reason)


def _cells(fleet: BatchFleet) -> tuple[str, ...]:
    return (
        fleet.instance_type,
        fleet.known_by if fleet.known_by == "stated" else f"measured, {fleet.known_by}",
        f"{fleet.rows_per_second:,.4g}",
        str(fleet.shards),
        number(fleet.run_s, ",.0f"),
        number(fleet.cost_per_hour_usd, ",.3f"),
        number(fleet.cost_per_run_usd, ",.4f"),
        number(fleet.cost_per_million_rows_usd, ",.4f"),
    )


def _dashed(name: str) -> str:
    return name.replace("_", "-")
