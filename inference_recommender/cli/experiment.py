"""`experiment`: every variant of a workload on every instance type, as one table."""

import argparse
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console

from aws_api.errors import AwsUnavailable
from aws_api.sagemaker import SageMakerAccount
from inference_recommender.cli import arguments
from inference_recommender.cli.report import write_page
from inference_recommender.experiment.measure import ExperimentRun, measure_cells
from inference_recommender.experiment.plan import (
    Experiment,
    ExperimentAccess,
    baseline_cell,
    batches,
    cells,
    default_image,
    host_ami,
    images,
    job_plan,
    lifetime,
    placeholder_image,
    types_without_job,
)
from inference_recommender.experiment.result import ExperimentFolder
from inference_recommender.measure.job_requests import DEFAULT_TRAFFIC
from inference_recommender.output import Commands, JobProgress, add_command, tell, warn
from inference_recommender.report.text import print_result
from inference_recommender.run_folder import run_name
from workloads import (
    ROOT,
    Interrupted,
    MissingArtifact,
    ModelArtifact,
    NoVerdict,
    UsageError,
    WorkloadFolder,
    artifact_file,
    load_artifact,
    load_workload,
)
from workloads.files import from_here
from workloads.folder import table_with_settings
from workloads.images import newest_on

NO_CELL = 1
TABLE_WIDTH = 190
ROLE_PLACEHOLDER = "arn:aws:iam::000000000000:role/RecommenderRole"


def add(commands: Commands) -> None:
    parser = add_command(commands, "experiment text_classification --traffic production")
    parser.add_argument("workload", nargs="?", metavar="WORKLOAD")
    parser.add_argument("--published", nargs="?", const="", metavar="NAME", help="[published.NAME]; default: the first")
    parser.add_argument(
        "--variants",
        nargs="+",
        default=[],
        metavar="NAME",
        help="variants, targets or patterns (ort-*); default: every variant, or every target if a target is hosted",
    )
    parser.add_argument("--instance-types", nargs="+", default=[], metavar="TYPE", help="default: the targets' own")
    parser.add_argument("--traffic", metavar="NAME", help="a [traffic.NAME] of workload.toml; default: production")
    parser.add_argument("--baseline", metavar="TYPE[/VARIANT]", help="the cell for ratios; default: none")
    arguments.add_prices(parser)
    arguments.add_settings(parser, "recommender.KEY", "recommender.load")
    parser.add_argument("--runs", type=Path, metavar="DIR", help="parent of the experiment's folder; default: runs")
    parser.add_argument("--resume", type=Path, metavar="RUN", help="continue an experiment; finished cells are kept")
    parser.add_argument("--dry-run", action="store_true", help="print the plan and its requests as JSON, send nothing")
    parser.add_argument("--json", action="store_true", help="print the result as one JSON document")
    parser.set_defaults(command=_experiment)


def _experiment(options: argparse.Namespace, stderr: Console) -> int:
    account = SageMakerAccount()
    if options.resume:
        source, folder = _resumed(options)
        experiment = folder.experiment()
    else:
        source, folder = _begun(options)
        experiment = _planned(options, source, folder, account)
    artifacts, missing = _artifacts(experiment, source)
    if options.dry_run:
        if missing:
            warn(stderr, f"The plan has no models: {missing}")
        print(json.dumps(_plan_document(options, account, experiment, source, artifacts, stderr), indent=2))
        return 0
    if missing:
        raise UsageError(missing)
    arguments.check_archives(folder.path, experiment.archives, artifacts)
    experiment = experiment.model_copy(update={"archives": {n: a.archive_sha256 for n, a in artifacts.items()}})
    root, name = source.builds(ROOT), source.workload.name
    access = folder.access() if options.resume else _access(account, source, experiment)
    folder.begin(experiment, source.workload, access)
    tell(stderr, f"Experiment: {folder}")
    with JobProgress(stderr) as progress:
        run = ExperimentRun(
            experiment=experiment,
            source=source,
            artifacts=artifacts,
            archives={n: artifact_file(root, name, n).with_name(a.archive) for n, a in artifacts.items()},
            access=access,
            account=account,
            folder=folder,
            progress=progress,
        )
        _measure(run, stderr)
    report = write_page(folder.path)
    print_result(report, json=options.json, log_width=TABLE_WIDTH)
    tell(stderr, f"Report: {from_here(folder.report)}")
    if report.verdict == "unknown":
        raise NoVerdict(f"{report.decision} The measurements are kept in {folder}.")
    return 0 if report.verdict == "met" else NO_CELL


def _measure(run: ExperimentRun, stderr: Console) -> None:
    """Measures the remaining cells. If that ends early, writes a report and prints how to continue."""
    try:
        measure_cells(run)
    except (KeyboardInterrupt, Interrupted, AwsUnavailable) as error:
        if run.folder.measured():
            write_page(run.folder.path)
        count = len(run.experiment.cells)
        tell(
            stderr,
            f"{count - len(run.folder.left())} of {count} cells are measured. Continue with "
            f"`python -m inference_recommender experiment --resume {run.folder}`.",
        )
        if isinstance(error, KeyboardInterrupt):
            raise Interrupted("Interrupted: nothing was being measured.") from None
        raise


def _begun(options: argparse.Namespace) -> tuple[WorkloadFolder, ExperimentFolder]:
    if options.workload is None:
        raise UsageError("WORKLOAD: is missing. Name a workload, or an experiment to continue with --resume RUN.")
    name = run_name(options.workload, "experiment")
    source = _source(options.workload, options.published)
    settings = table_with_settings(options.settings, "recommender", source.workload.recommender)
    source.workload = source.workload.model_copy(update={"recommender": settings})
    return source, ExperimentFolder((options.runs or ROOT / "runs") / name)


def _source(workload: str, published: str | None) -> WorkloadFolder:
    """Returns the workload, or its published experiment: "" is the first."""
    folder = load_workload(workload)
    if published is None:
        return folder
    return folder.as_published(published or next(iter(folder.workload.published), "NAME"))


def _planned(
    options: argparse.Namespace, source: WorkloadFolder, folder: ExperimentFolder, account: SageMakerAccount
) -> Experiment:
    """Raises `UsageError`, also for cells that no job could start."""
    published = source.workload.published.get(source.published_name or "")
    traffic = options.traffic or (published.traffic if published else DEFAULT_TRAFFIC)
    source.traffic(traffic)
    chosen = cells(
        source,
        options.variants or (published.variants if published else ()),
        options.instance_types or (published.instance_types if published else ()),
    )
    baseline = baseline_cell(options.baseline, chosen) if options.baseline else None
    if published and baseline is None:
        baseline = next((cell for cell in chosen if cell.variant == published.baseline), None)
    settings = source.workload.recommender
    failing = [] if settings.ignore_driver else types_without_job(source.workload, chosen)
    load = settings.load or ("load-test" if failing else "sagemaker")
    if failing and load == "sagemaker":
        raise UsageError(
            f"recommender.load: got 'sagemaker', but the image does not start with the GPU driver of a job's hosts of "
            f"{', '.join(failing)}. Set it to load-test or leave it out, set hosting.triton_version to "
            f"{newest_on(failing[0])}, or set recommender.ignore_driver=true."
        )
    return Experiment(
        name=folder.path.name,
        workload=source.workload.name,
        traffic=traffic,
        load=load,
        archives={},
        cells=chosen,
        baseline=baseline,
        published=source.published_name,
        prices=options.prices,
        rows=published.rows if published else {},
    )


def _resumed(options: argparse.Namespace) -> tuple[WorkloadFolder, ExperimentFolder]:
    """Takes workload and plan from the folder. Raises `UsageError`."""
    folder = ExperimentFolder(options.resume)
    experiment = folder.experiment()
    fixed = (options.published, options.variants, options.instance_types, options.traffic, options.baseline)
    given = any(each not in (None, []) for each in (*fixed, options.settings, options.runs))
    if given or options.workload not in (None, experiment.workload):
        raise UsageError(
            f"--resume: {options.resume} has the settings of the experiment. Only --json and --dry-run may go with it."
        )
    source = _source(experiment.workload, experiment.published)
    source.workload = folder.workload()  # the version of the first cell
    return source, folder


def _artifacts(experiment: Experiment, source: WorkloadFolder) -> tuple[dict[str, ModelArtifact], str]:
    """Returns the artifact of every variant, and for those without a build a line each with its command."""
    artifacts, missing = {}, []
    for variant in dict.fromkeys(cell.variant for cell in experiment.cells):
        try:
            artifacts[variant] = load_artifact(source.builds(ROOT), experiment.workload, variant, source.published_name)
        except MissingArtifact as error:
            missing.append(str(error))
    return artifacts, "\n".join(missing)


def _access(account: SageMakerAccount | None, source: WorkloadFolder, experiment: Experiment) -> ExperimentAccess:
    """Returns role, bucket and images of [recommender], or those of the stack and the project. Without an account,
    placeholders replace them.
    """
    workload, settings = source.workload, source.workload.recommender
    role, bucket = settings.role_arn or ROLE_PLACEHOLDER, settings.bucket or "sagemaker-REGION-ACCOUNT"
    if account is not None:
        role = settings.role_arn or account.stack_output(workload.stack_name, "RecommenderRoleArn")
        bucket = settings.bucket or account.default_bucket()

    def image(instance_type: str, runtime: str) -> str:
        if account is None:
            return placeholder_image(workload, instance_type, runtime)
        return default_image(workload, instance_type, runtime, account, ROOT)

    chosen = images(experiment.cells, workload, settings.images, image)
    types = dict.fromkeys(cell.instance_type for cell in experiment.cells)
    amis = {name: ami for name in types if (ami := host_ami(workload, chosen, name))}
    return ExperimentAccess(role_arn=role, images=chosen, bucket=bucket, host_amis=amis)


def _plan_document(
    options: argparse.Namespace,
    account: SageMakerAccount,
    experiment: Experiment,
    source: WorkloadFolder,
    artifacts: dict[str, ModelArtifact],
    stderr: Console,
) -> dict[str, Any]:
    """Returns the plan and its requests, with placeholders for names from AWS if AWS is unavailable."""
    try:
        access = ExperimentFolder(options.resume).access() if options.resume else _access(account, source, experiment)
    except AwsUnavailable as error:
        warn(stderr, f"{error} ACCOUNT, REGION and the names of role and image are placeholders.")
        access = _access(None, source, experiment)
    planned, workload, now = batches(experiment, experiment.cells, ()), source.workload, datetime.now(UTC)
    plans = [
        job_plan(experiment, batch, own, access.tested_model(own, batch.name))
        for batch in planned
        for own in [experiment.workload_of(batch.variant, workload)]
    ]
    for warning in dict.fromkeys(warning for plan in plans for warning in plan.warnings):
        warn(stderr, warning)
    return {
        "experiment": experiment.model_dump(mode="json"),
        "models": [
            access.model_request(
                batch, artifacts[batch.variant], now + lifetime(experiment, workload, len(batch.cells))
            )
            for batch in planned
            if batch.variant in artifacts
        ],
        "jobs": [request for plan in plans for request in plan.requests],
    }
