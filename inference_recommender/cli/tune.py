"""`tune`: searches the serving configuration with the highest capacity within the latency objective."""

import argparse
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console

from aws_api.errors import AwsUnavailable
from aws_api.session import AwsSession
from inference_recommender.capacity.limit import Limit
from inference_recommender.cli import arguments
from inference_recommender.measure.system import cores, machine_description
from inference_recommender.output import Commands, add_command, stdout_console, tell
from inference_recommender.payloads import payload_archive
from inference_recommender.report.inputs import read_inputs
from inference_recommender.report.text import show
from inference_recommender.sizing.prices import listed_price
from inference_recommender.tune.folder import ProbeLine, TuneFolder, TunePlan, resumed
from inference_recommender.tune.race import EndReason, Race
from inference_recommender.tune.result import TuneResult, patch, result
from inference_recommender.tune.space import Space, default_targets, space
from inference_recommender.tune.triton import SHORTEST_PROBE_S, Built, TritonProbe, TunedTriton
from inference_recommender.tune.tune_report import tune_report
from workloads import (
    ROOT,
    Interrupted,
    ModelArtifact,
    NeuronTarget,
    NoVerdict,
    UsageError,
    Workload,
    WorkloadFolder,
    artifact_file,
    load_artifact,
    load_workload,
)
from workloads.document import Document
from workloads.serving import Tune

NOTHING_KEEPS = 1
PRICED_IN = "us-east-1"
"""Default region of the price."""
DESCRIPTION = """Searches batch size, queue delay, model instances, threads and targets for the configuration with the
highest capacity within the objective. All configurations race in one search: each gets a short probe of Poisson
arrivals at the best rate so far. Overloaded ones drop out, and the others get longer probes until the best is known.
A Triton of this machine (`make triton`) serves them. It starts once and loads the built model with each configuration,
so build the targets first.

The values to try are those of [tune] in workload.toml, which --set replaces: --set tune.threads=1,2. Values that
neither names are chosen for this machine. --dry-run prints what would be tried.

RUN/patch.toml has the best as [variants.tuned]. Append it to workload.toml, build it, and set hosting.target to it. It
is the best for this machine: search on the one that will serve. Ctrl-C keeps every probe, and --resume RUN continues.

Exit code 1: no configuration meets the objective. Exit code 4: the load generator was the bottleneck, or the time was
over before the best was known to 15 %."""


class DryRun(Document):
    """The document that `--dry-run --json` prints."""

    workload: str
    configurations: tuple[str, ...]
    left_out: dict[str, tuple[str, ...]]
    """Labels by reason."""


def add(commands: Commands) -> None:
    parser = add_command(
        commands,
        "tune",
        "search the serving configuration with the highest capacity",
        "tune spellcheck --set tune.targets=cpu,cpu-int8 --set tune.threads=1,2",
        DESCRIPTION,
    )
    parser.add_argument("workload", nargs="?", metavar="WORKLOAD")
    arguments.add_settings(parser, "tune.KEY", "tune.max_duration_s")
    parser.add_argument(
        "--instance-type",
        metavar="TYPE",
        help="type that this machine represents, for the cost per million",
    )
    parser.add_argument("--runs", type=Path, metavar="DIR", help="parent of the search's folder; default: runs")
    parser.add_argument("--resume", type=Path, metavar="RUN", help="continue a search; no probe is repeated")
    parser.add_argument("--dry-run", action="store_true", help="print the configurations; start nothing")
    parser.add_argument("--json", action="store_true", help="print the result as one JSON document")
    parser.set_defaults(command=_tune)


def _tune(options: argparse.Namespace, stderr: Console) -> int:
    if options.resume:
        source, folder, plan = _resumed(options)
    else:
        source, folder, plan = _begun(options)
    if options.dry_run:
        _show_space(plan, as_json=options.json)
        return 0
    artifacts = {each.target: load_artifact(ROOT, plan.workload, each.target) for each in plan.configurations}
    arguments.check_archives(folder.path, plan.archives, artifacts)
    plan = plan.model_copy(update={"archives": {name: each.archive_sha256 for name, each in artifacts.items()}})
    rows = source.workload.latency_objective.rows_per_invocation
    folder.begin(plan, source.workload, payload_archive(source.payloads(), rows))
    tell(stderr, f"{len(plan.configurations)} configurations. Kept in {folder}")
    return _search(plan, source.workload, folder, artifacts, stderr, as_json=options.json)


def _search(
    plan: TunePlan,
    workload: Workload,
    folder: TuneFolder,
    artifacts: dict[str, ModelArtifact],
    stderr: Console,
    *,
    as_json: bool,
) -> int:
    objective = workload.latency_objective
    limit = Limit(percentile=objective.percentile_rank, latency_ms=objective.model_latency_ms)
    built = {
        name: Built(repository=_repository(plan, name), environment=each.environment)
        for name, each in artifacts.items()
    }

    def print_probe(line: ProbeLine, number: int) -> None:
        tell(stderr, f"probe {number}: {_in_words(line, objective.percentile)}")

    with TunedTriton(plan.workload, built, folder.path, lambda text: tell(stderr, text)) as triton:
        race = Race(
            configurations=plan.configurations,
            send=resumed(folder, TritonProbe(triton, folder, limit), print_probe),
            limit=limit,
            shortest_s=SHORTEST_PROBE_S,
            longest_s=plan.longest_s,
        )
        try:
            race.run()
        except KeyboardInterrupt:
            _keep(race, plan, workload, folder)
            raise Interrupted(
                f"Interrupted: {len(folder.lines())} probes are kept in {folder}. Go on with "
                f"`python -m inference_recommender tune --resume {folder}`."
            ) from None
    return _conclude(_keep(race, plan, workload, folder), race, folder, as_json=as_json)


def _begun(options: argparse.Namespace) -> tuple[WorkloadFolder, TuneFolder, TunePlan]:
    if options.workload is None:
        raise UsageError("WORKLOAD: missing. Name the workload to tune, or a search to go on with --resume RUN.")
    source = load_workload(options.workload)
    workload = source.workload
    tune = _tune_table(options, source)
    found = _space(tune, source)
    stamp = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
    plan = TunePlan(
        workload=workload.name,
        configurations=found.configurations,
        left_out=found.left_out,
        archives={},
        instance_type=options.instance_type,
        longest_s=tune.max_duration_s,
    )
    folder = TuneFolder((options.runs or ROOT / "runs") / f"{workload.name}-tune-{stamp}")
    return source, folder, plan


def _tune_table(options: argparse.Namespace, source: WorkloadFolder) -> Tune:
    """Returns `[tune]` with the settings of the command line, and with targets that run here."""
    workload = source.workload
    workload.latency_objective  # noqa: B018 - raises for a batch, which has no latency objective
    tune = arguments.with_settings(options.settings, "tune", workload.tune)
    if not tune.targets:
        tune = tune.model_copy(update={"targets": default_targets(workload, gpu=Path("/dev/nvidia0").exists())})
    for name in tune.targets:
        if isinstance(source.target(name), NeuronTarget):
            raise UsageError(f"tune.targets: {name} is for Inferentia, and tune loads configurations into Triton.")
    return tune


def _space(tune: Tune, source: WorkloadFolder) -> Space:
    found = space(source.workload, tune, cores())
    if not found.configurations:
        reasons = "; ".join(each.reason for each in found.left_out) or "the values exclude each other"
        raise UsageError(f"{source.file}: tune: no configuration is left to try: {reasons}.")
    return found


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


def _keep(race: Race, plan: TunePlan, workload: Workload, folder: TuneFolder) -> TuneResult:
    found = result(
        race,
        workload,
        plan.left_out,
        instance_type=plan.instance_type,
        price_per_hour_usd=_price(plan.instance_type),
        machine=machine_description(),
        measured_at=datetime.now(UTC).isoformat(timespec="seconds"),
    )
    folder.keep_result(found, patch(workload, found) if found.is_known else None)
    return found


def _price(instance_type: str | None) -> float | None:
    if instance_type is None:
        return None
    try:
        region = AwsSession().region
    except AwsUnavailable:
        region = PRICED_IN
    return listed_price(instance_type, region).usd_per_hour


def _conclude(found: TuneResult, race: Race, folder: TuneFolder, *, as_json: bool) -> int:
    if race.reason is EndReason.BOTTLENECK:
        raise NoVerdict(
            f"No verdict: {race.complaint}. Run it on a machine with more cores or without other work. The "
            f"measurements are kept in {folder}."
        )
    if race.reason is not EndReason.NOTHING_KEEPS and not found.is_known:
        raise NoVerdict(
            f"No verdict: after {found.load_s:,.0f} s of probes the best is not known to 15 %. Raise "
            f"tune.max_duration_s, on a machine without other work. The measurements are kept in {folder}."
        )
    if as_json:
        print(found.model_dump_json(indent=2))
    else:
        show(tune_report(folder.path.name, folder, read_inputs(folder.path)), stdout_console())
    return 0 if found.best is not None else NOTHING_KEEPS


def _show_space(plan: TunePlan, *, as_json: bool) -> None:
    shown = DryRun(
        workload=plan.workload,
        configurations=tuple(each.label for each in plan.configurations),
        left_out={each.reason: tuple(one.label for one in each.configurations) for each in plan.left_out},
    )
    if as_json:
        print(shown.model_dump_json(indent=2))
        return
    console = stdout_console()
    for label in shown.configurations:
        tell(console, label)
    count = len(shown.configurations)
    tell(console, f"{count} configuration{'s' * (count != 1)}.")
    for reason, labels in shown.left_out.items():
        tell(console, f"Left out: {len(labels)}, because {reason}.")


def _in_words(line: ProbeLine, percentile: str) -> str:
    asked = f"{line.label}: {line.invocations_per_minute:,.0f}/min for {line.duration_s:.0f} s"
    if line.counts is None:
        return f"{asked}: not loaded"
    latency = "no answer" if line.counts.latency_ms is None else f"{line.counts.latency_ms:,.1f} ms"
    return f"{asked}: {percentile} {latency}, {line.counts.late_share:.1%} late"
