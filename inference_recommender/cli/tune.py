"""`tune`: the configuration of a Triton that bears most within the workload's latency objective."""

import argparse
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console

from aws_api.errors import AwsUnavailable
from aws_api.session import AwsSession
from inference_recommender.capacity.limit import Limit
from inference_recommender.measure.probe import GeneratorProbe
from inference_recommender.measure.system import cores, machine_description, system_at_url
from inference_recommender.output import Commands, add_command, stdout_console, tell
from inference_recommender.payloads import payload_archive
from inference_recommender.sizing.prices import listed_price
from inference_recommender.tune.evidence import Glimpse, glimpse
from inference_recommender.tune.folder import PATCH, Line, TuneFolder, TunePlan, remembered
from inference_recommender.tune.race import Race, Reason
from inference_recommender.tune.result import TuneResult, patch, result, sentences
from inference_recommender.tune.space import Configuration, Machine, Space, default_targets, space
from inference_recommender.tune.triton import Built, TunedTriton
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
from workloads.files import from_here
from workloads.serving import Tune

NOTHING_KEEPS = 1
SHORTEST_PROBE_S = 2.0
"""A generator that is a process of its own tells little of less."""
WARM_UP_S = 2.0
PRICED_IN = "us-east-1"
"""The region whose price counts where none is configured."""
ANSWERED = (
    "targets",
    "threads",
    "model_instances",
    "max_batch_sizes",
    "preferred_batch_sizes",
    "max_queue_delays_ms",
    "instance_type",
    "max_duration_s",
    "runs",
)
"""Options that the folder of a resumed search answers."""

DESCRIPTION = """Which batch size, queue delay, number of model instances and threads, which precision or runtime
bears most requests within the objective? Instead of a capacity search of each combination, all race in one: every
configuration gets a short probe of Poisson arrivals at what the best so far bears; what is overloaded there is out,
with all that differs from it in the queue delay alone; those that are left are probed longer and longer, until one is
known to be the best, or nearly. A Triton of this machine (`make triton`) serves: it is started once, and loads the
built model again with another configuration, so nothing is built anew. A target has to be built first.

The values to try are those of [tune] in workload.toml, or of the options, one for each of its keys; what neither says
is chosen to fit the machine. --dry-run prints what would be tried, and what not, and why.

The result names the best and the runner-up, how sure that order is, and what was not tried. RUN/patch.toml is the
best as [variants.tuned]: append it to workload.toml, build it, and set hosting.target to it. It is of this machine;
search on the one that will serve. Ctrl-C keeps every probe, and --resume RUN goes on.

Exit code 1: no configuration keeps the objective; 4: the generator was the bottleneck, or the time was over before the
best was known to 15 %."""


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
        "search the configuration that bears most within the objective",
        "tune spellcheck --targets cpu cpu-int8 --threads 1 2",
        DESCRIPTION,
    )
    parser.add_argument("workload", nargs="?", metavar="WORKLOAD")
    parser.add_argument(
        "--targets", nargs="+", metavar="NAME", help="runtimes and precisions; default: the hosted one, else the CPU's"
    )
    parser.add_argument("--threads", nargs="+", type=int, metavar="N", help="of each model instance")
    parser.add_argument("--model-instances", nargs="+", type=int, metavar="N")
    parser.add_argument("--max-batch-sizes", nargs="+", type=int, metavar="N", help="1: no batching")
    parser.add_argument(
        "--preferred-batch-sizes", nargs="+", type=_sizes, metavar="N,N", help='lists, such as "4,8"; "none" is none'
    )
    parser.add_argument("--max-queue-delays-ms", nargs="+", type=float, metavar="MS")
    parser.add_argument(
        "--instance-type", metavar="TYPE", help="what this machine stands for; prices a million requests"
    )
    parser.add_argument(
        "--max-duration-s", type=float, metavar="S", help="of all probes together; default: 1800; loading takes its own"
    )
    parser.add_argument("--runs", type=Path, metavar="DIR", help="where the search's folder goes; default: runs")
    parser.add_argument("--resume", type=Path, metavar="RUN", help="go on with a search; no probe is made again")
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
    _refuse_other_archives(options, plan, artifacts)
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

    def told(line: Line, number: int) -> None:
        tell(stderr, f"probe {number}: {_in_words(line, objective.percentile)}")

    with TunedTriton(plan.workload, built, folder.path, lambda text: tell(stderr, text)) as triton:
        race = Race(
            configurations=plan.configurations,
            probe=remembered(folder, Served(triton, folder, limit), told),
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


class Served:
    """The search's probe: loads a configuration into Triton where another is loaded, warms it up and sends arrivals."""

    def __init__(self, triton: TunedTriton, folder: TuneFolder, limit: Limit) -> None:
        self._triton = triton
        self._folder = folder
        self._limit = limit
        self._count = len(folder.lines())

    def __call__(self, configuration: Configuration, rate: float, duration_s: float) -> Glimpse:
        self._count += 1
        warm_up = 0
        if self._triton.loaded != configuration:
            self._triton.load(configuration)
            warm_up = len(self._drive("warm-up")(rate / 2, WARM_UP_S).intended_s)
        seen = glimpse(rate, self._drive("probe")(rate, duration_s), self._limit)
        return seen.model_copy(update={"sent": seen.sent + warm_up})

    def _drive(self, name: str) -> GeneratorProbe:
        folder = self._folder.path / "probes" / f"{self._count:04}-{name}"
        return GeneratorProbe(self._folder.payloads, folder, system_at_url(self._triton.url, ""), seed=self._count)


def _begun(options: argparse.Namespace) -> tuple[WorkloadFolder, TuneFolder, TunePlan]:
    if options.workload is None:
        raise UsageError("WORKLOAD: missing. Name the workload to tune, or a search to go on with --resume RUN.")
    source = load_workload(options.workload)
    workload = source.workload
    duration = 1800.0 if options.max_duration_s is None else options.max_duration_s
    if not 0 < duration < float("inf"):
        raise UsageError(f"--max-duration-s: got {duration:g}. Allowed: more than 0.")
    found = _space(options, source)
    stamp = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
    plan = TunePlan(
        workload=workload.name,
        configurations=found.configurations,
        left_out=found.left_out,
        archives={},
        instance_type=options.instance_type,
        longest_s=duration,
    )
    folder = TuneFolder((options.runs or ROOT / "runs") / f"{workload.name}-tune-{stamp}")
    return source, folder, plan


def _space(options: argparse.Namespace, source: WorkloadFolder) -> Space:
    """Returns the space of `[tune]`, in which options replace keys. Raises `UsageError`."""
    workload = source.workload
    workload.latency_objective  # noqa: B018 - a batch has none, and says so
    given = {name: tuple(getattr(options, name)) for name in Tune.model_fields if getattr(options, name)}
    tune = Tune.from_table(Path("options of tune"), {**workload.tune.model_dump(mode="json"), **given})
    if not tune.targets:
        tune = tune.model_copy(update={"targets": default_targets(workload, gpu=Path("/dev/nvidia0").exists())})
    for name in tune.targets:
        if isinstance(source.target(name), NeuronTarget):
            raise UsageError(f"--targets: {name} is for Inferentia, and tune loads configurations into a Triton.")
    machine = Machine(cores=cores())
    found = space(workload, tune, machine)
    if not found.configurations:
        reasons = "; ".join(each.reason for each in found.left_out)
        raise UsageError(
            f"[tune] of {source.file}: no configuration is left to try: {reasons or 'nothing fits together'}."
        )
    return found


def _resumed(options: argparse.Namespace) -> tuple[WorkloadFolder, TuneFolder, TunePlan]:
    """Takes workload and plan from the folder. Raises `UsageError`."""
    folder = TuneFolder(options.resume)
    plan = folder.plan()
    named = [f"--{name.replace('_', '-')}" for name in ANSWERED if getattr(options, name) is not None]
    if options.workload not in (None, plan.workload):
        named.insert(0, options.workload)
    if named:
        raise UsageError(
            f"--resume: {options.resume} says what is searched; leave out {', '.join(named)}, or start a new search."
        )
    source = load_workload(plan.workload)
    source.workload = folder.workload()  # as it was when the first probe was made
    return source, folder, plan


def _refuse_other_archives(options: argparse.Namespace, plan: TunePlan, artifacts: dict[str, ModelArtifact]) -> None:
    for name, then in plan.archives.items():
        if (now := artifacts[name].archive_sha256) != then:
            raise UsageError(
                f"--resume: {options.resume} began with an archive of '{name}' whose sha256 is {then}; the one in "
                f"build/ now has {now}. Probes of different archives cannot be compared: start a new search."
            )


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
    folder.keep(found, patch(workload, found) if found.is_known else None)
    return found


def _price(instance_type: str | None) -> float | None:
    if instance_type is None:
        return None
    try:
        region = AwsSession().region
    except AwsUnavailable:
        region = PRICED_IN
    listed = listed_price(instance_type, region)
    return listed.usd_per_hour if listed else None


def _conclude(found: TuneResult, race: Race, folder: TuneFolder, *, as_json: bool) -> int:
    if race.reason is Reason.BOTTLENECK:
        raise NoVerdict(
            f"No verdict: {race.complaint}. Run it on a machine with more cores, or with nothing else to do. What was "
            f"measured is kept in {folder}."
        )
    if race.reason is not Reason.NOTHING_KEEPS and not found.is_known:
        raise NoVerdict(
            f"No verdict: after {found.load_s:,.0f} s of probes the best is not known to 15 %. Give it longer with "
            f"--max-duration-s, on a machine with nothing else to do. What was measured is kept in {folder}."
        )
    if as_json:
        print(found.model_dump_json(indent=2))
    else:
        console = stdout_console()
        for line in sentences(found):
            tell(console, line)
        if found.is_known:
            tell(console, f"As [variants.tuned], to be appended to workload.toml: {from_here(folder.path / PATCH)}")
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
        tell(console, f"Left out: {len(labels)}, since {reason}.")


def _in_words(line: Line, percentile: str) -> str:
    asked = f"{line.label}: {line.invocations_per_minute:,.0f}/min for {line.duration_s:.0f} s"
    if line.seen is None:
        return f"{asked}: not loaded"
    latency = "no answer" if line.seen.latency_ms is None else f"{line.seen.latency_ms:,.1f} ms"
    return f"{asked}: {percentile} {latency}, {line.seen.late_share:.1%} late"


def _sizes(text: str) -> Sequence[int]:
    if text == "none":
        return ()
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(f'got \'{text}\', but a list of sizes is "4,8", or "none".') from None
