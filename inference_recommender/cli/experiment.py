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
from inference_recommender.cli.arguments import DEFAULT_TRAFFIC
from inference_recommender.cli.folder_report import write_experiment as write_report
from inference_recommender.experiment.cells import baseline_cell, cells
from inference_recommender.experiment.experiment_report import experiment_report
from inference_recommender.experiment.experiment_run import ExperimentRun, PreparedExperiment
from inference_recommender.experiment.folder import ExperimentFolder
from inference_recommender.experiment.images import host_ami, resolved, stand_ins
from inference_recommender.experiment.measure import measure
from inference_recommender.experiment.plan import Experiment, batches, job_plan, lifetime
from inference_recommender.experiment.resources import ExperimentAccess, model_request
from inference_recommender.measure.job_requests import TestedModel
from inference_recommender.output import Commands, JobProgress, add_command, stdout_console, tell, warn
from inference_recommender.report.inputs import read_inputs
from inference_recommender.report.text import show
from workloads import (
    ROOT,
    Interrupted,
    MissingArtifact,
    ModelArtifact,
    NoVerdict,
    ProjectError,
    UsageError,
    WorkloadFolder,
    artifact_file,
    load_artifact,
    load_workload,
)
from workloads.files import from_here
from workloads.instances import needs_host_ami

NO_CELL = 1
TABLE_WIDTH = 190
STAND_IN_ROLE = "arn:aws:iam::000000000000:role/RecommenderRole"
"""The role in a dry run without AWS."""


class MissingBuilds(UsageError):
    """Variants without a build, with the command for each."""


class ExperimentSuspended(ProjectError):
    """Ends a run that can be resumed, with the exit code of the reason."""

    def __init__(self, message: str, exit_code: int) -> None:
        self.exit_code = exit_code
        super().__init__(message)


def add(commands: Commands) -> None:
    parser = add_command(
        commands,
        "experiment",
        "measure every variant on every instance type, as one table",
        "experiment text_classification --traffic production",
    )
    parser.add_argument("workload", nargs="?", metavar="WORKLOAD")
    parser.add_argument(
        "--published",
        nargs="?",
        const="",
        metavar="NAME",
        help="a [published.NAME] of workload.toml with its variants, types, traffic and model; default: the first",
    )
    parser.add_argument(
        "--variants",
        nargs="+",
        default=[],
        metavar="NAME",
        help="variants, targets or patterns (ort-*); default: every variant, or every target without variants",
    )
    parser.add_argument(
        "--instance-types", nargs="+", default=[], metavar="TYPE", help="default: each target's instance_types"
    )
    parser.add_argument("--traffic", metavar="NAME", help="a [traffic.NAME] of workload.toml; default: production")
    parser.add_argument("--baseline", metavar="TYPE[/VARIANT]", help="the cell for ratios; default: none")
    arguments.add_settings(parser, "recommender.KEY", "recommender.load")
    parser.add_argument("--runs", type=Path, metavar="DIR", help="parent of the experiment's folder; default: runs")
    parser.add_argument("--resume", type=Path, metavar="RUN", help="continue an experiment; finished cells are kept")
    parser.add_argument("--dry-run", action="store_true", help="print the plan and its requests as JSON, send nothing")
    parser.add_argument("--json", action="store_true", help="print the result as one JSON document")
    parser.set_defaults(command=_experiment)


def _experiment(options: argparse.Namespace, stderr: Console) -> int:
    aws = SageMakerAccount()
    source, folder = _resumed(options) if options.resume else _begun(options)
    local = aws.is_on_this_machine()
    experiment = folder.experiment() if options.resume else _planned(options, source, folder, local=local)
    if experiment.load == "sagemaker" and not local:
        _refuse_old_drivers(experiment, source)
    if options.dry_run:
        print(json.dumps(_plan_document(options, aws, experiment, source, stderr), indent=2))
        return 0
    artifacts, root = _artifacts(experiment, source), source.builds(ROOT)
    arguments.check_archives(folder.path, experiment.archives, artifacts)
    experiment = experiment.model_copy(update={"archives": {n: a.archive_sha256 for n, a in artifacts.items()}})
    prepared = PreparedExperiment(
        experiment=experiment,
        source=source,
        artifacts=artifacts,
        archives={n: artifact_file(root, source.workload.name, n).with_name(a.archive) for n, a in artifacts.items()},
        access=folder.access() if options.resume else _access(aws, source, experiment),
    )
    folder.begin(experiment, source.workload, prepared.access)
    return _measure(prepared, aws, folder, stderr, as_json=options.json)


def _measure(
    prepared: PreparedExperiment, aws: SageMakerAccount, folder: ExperimentFolder, stderr: Console, *, as_json: bool
) -> int:
    tell(stderr, f"Experiment: {folder}")
    try:
        with JobProgress(stderr) as progress:
            measure(ExperimentRun(prepared=prepared, account=aws, folder=folder, progress=progress))
    except KeyboardInterrupt:
        raise _suspended(Interrupted("Interrupted: nothing was being measured."), prepared, folder) from None
    except (Interrupted, AwsUnavailable) as error:
        raise _suspended(error, prepared, folder) from error
    result = write_report(folder)
    if as_json:
        print(result.model_dump_json(indent=2))
    else:
        report = experiment_report(folder.path.name, result, folder.workload(), read_inputs(folder.path))
        show(report, stdout_console(TABLE_WIDTH))
    tell(stderr, f"Report: {from_here(folder.report)}")
    if result.why_no_verdict:
        raise NoVerdict(f"No verdict: {result.why_no_verdict} The measurements are kept in {folder}.")
    return 0 if result.recommended else NO_CELL


def _suspended(error: ProjectError, prepared: PreparedExperiment, folder: ExperimentFolder) -> ExperimentSuspended:
    if folder.has_measured:
        write_report(folder)
    cells = prepared.experiment.cells
    return ExperimentSuspended(
        f"{error}\n{len(cells) - len(folder.left(cells))} of {len(cells)} cells are measured. Continue with "
        f"`python -m inference_recommender experiment --resume {folder}`.",
        error.exit_code,
    )


def _begun(options: argparse.Namespace) -> tuple[WorkloadFolder, ExperimentFolder]:
    if options.workload is None:
        raise UsageError("WORKLOAD: is missing. Name a workload, or an experiment to continue with --resume RUN.")
    stamp = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
    name = f"{options.workload}-experiment-{stamp}".replace("_", "-")
    source = _source(options.workload, options.published)
    settings = arguments.with_settings(options.settings, "recommender", source.workload.recommender)
    source.workload = source.workload.model_copy(update={"recommender": settings})
    return source, ExperimentFolder((options.runs or ROOT / "runs") / name)


def _source(workload: str, published: str | None) -> WorkloadFolder:
    """Returns the workload, or its published experiment: "" is the first."""
    folder = load_workload(workload)
    if published is None:
        return folder
    return folder.as_published(published or next(iter(folder.workload.published), "NAME"))


def _refuse_old_drivers(experiment: Experiment, source: WorkloadFolder) -> None:
    """Raises `UsageError` before anything is made for cells that no job could start."""
    for batch in batches(experiment, experiment.cells, ()):
        stand_in = TestedModel(model=batch.name, role_arn=STAND_IN_ROLE, payload_url="s3://bucket/payloads")
        job_plan(experiment, batch, source.workload, stand_in).check_drivers()


def _planned(
    options: argparse.Namespace, source: WorkloadFolder, folder: ExperimentFolder, *, local: bool
) -> Experiment:
    asked = source.workload.published.get(source.published_name or "")
    traffic = options.traffic or (asked.traffic if asked else DEFAULT_TRAFFIC)
    source.traffic(traffic)
    chosen = cells(
        source,
        options.variants or (asked.variants if asked else ()),
        options.instance_types or (asked.instance_types if asked else ()),
    )
    baseline = baseline_cell(options.baseline, chosen) if options.baseline else None
    if asked and baseline is None:
        baseline = next((cell for cell in chosen if cell.variant == asked.baseline), None)
    old = any(needs_host_ami(cell.instance_type) for cell in chosen)
    return Experiment(
        name=folder.path.name,
        workload=source.workload.name,
        traffic=traffic,
        load=source.workload.recommender.load or ("load-test" if old and not local else "sagemaker"),
        archives={},
        cells=chosen,
        baseline=baseline,
        published=source.published_name,
    )


def _resumed(options: argparse.Namespace) -> tuple[WorkloadFolder, ExperimentFolder]:
    """Takes workload and plan from the folder. Raises `UsageError`."""
    folder = ExperimentFolder(options.resume)
    experiment = folder.experiment()
    fixed = ("published", "variants", "instance_types", "traffic", "baseline", "settings", "runs")
    named = [
        ("--set" if name == "settings" else f"--{name.replace('_', '-')}")
        for name in fixed
        if getattr(options, name) not in (None, [])
    ]
    if options.workload not in (None, experiment.workload):
        named.insert(0, options.workload)
    if named:
        raise UsageError(
            f"--resume: {options.resume} has the settings of the experiment. Leave out {', '.join(named)}, or start a "
            "new experiment."
        )
    source = _source(experiment.workload, experiment.published)
    source.workload = folder.workload()  # the version of the first cell
    return source, folder


def _artifacts(experiment: Experiment, source: WorkloadFolder) -> dict[str, ModelArtifact]:
    """Returns the artifact of every variant. Raises `MissingBuilds`."""
    artifacts, missing = {}, []
    for variant in dict.fromkeys(cell.variant for cell in experiment.cells):
        try:
            artifacts[variant] = load_artifact(source.builds(ROOT), experiment.workload, variant, source.published_name)
        except MissingArtifact as error:
            missing.append(str(error))
    if missing:
        raise MissingBuilds("\n".join(missing))
    return artifacts


def _access(aws: SageMakerAccount, source: WorkloadFolder, experiment: Experiment) -> ExperimentAccess:
    """Returns role, bucket and images of [recommender], or those of the stack and the project."""
    stack, workload = source.workload.stack_name, source.workload
    settings = workload.recommender
    images = resolved(
        experiment.cells,
        workload,
        settings.images,
        stacks=lambda: aws.image_uri(aws.stack_output(stack, "ModelName")),
        region=lambda: aws.region,
        root=ROOT,
    )
    return ExperimentAccess(
        role_arn=settings.role_arn or aws.stack_output(stack, "RecommenderRoleArn"),
        images=images,
        bucket=settings.bucket or aws.default_bucket(),
        host_ami=settings.host_ami or host_ami(workload, images),
    )


def _plan_document(
    options: argparse.Namespace, aws: SageMakerAccount, experiment: Experiment, source: WorkloadFolder, stderr: Console
) -> dict[str, Any]:
    """Returns the plan and its requests, with placeholders for names from AWS if AWS is unavailable."""
    settings = source.workload.recommender
    try:
        access = ExperimentFolder(options.resume).access() if options.resume else _access(aws, source, experiment)
    except AwsUnavailable as error:
        warn(stderr, f"{error} ACCOUNT, REGION and the names of role and image are placeholders.")
        images = stand_ins(experiment.cells, source.workload, settings.images)
        access = ExperimentAccess(
            role_arn=settings.role_arn or STAND_IN_ROLE,
            images=images,
            bucket=settings.bucket or "sagemaker-REGION-ACCOUNT",
            host_ami=settings.host_ami or host_ami(source.workload, images),
        )
    try:
        artifacts = _artifacts(experiment, source)
    except MissingBuilds as error:
        warn(stderr, f"The plan has no models: {error}")
        artifacts = {}
    planned, begin, workload = batches(experiment, experiment.cells, ()), datetime.now(UTC), source.workload
    plans = [
        job_plan(experiment, batch, source.workload, access.tested_model(source.workload.name, batch.name))
        for batch in planned
    ]
    for warning in dict.fromkeys(warning for plan in plans for warning in plan.warnings):
        warn(stderr, warning)
    return {
        "experiment": experiment.model_dump(mode="json"),
        "models": [
            model_request(batch, artifacts[batch.variant], access, begin + lifetime(experiment, batch, workload))
            for batch in planned
            if batch.variant in artifacts
        ],
        "jobs": [request for plan in plans for request in plan.requests],
    }
