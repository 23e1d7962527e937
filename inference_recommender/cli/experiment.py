"""`experiment`: every variant of a workload on every instance type, as one table."""

import argparse
import json
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console

from aws_api.errors import AwsUnavailable
from inference_recommender.cli import Commands, add_command, load_source
from inference_recommender.cli.terminal import JobProgress
from inference_recommender.experiment.account import Prepared
from inference_recommender.experiment.aws import ExperimentAws
from inference_recommender.experiment.cells import baseline_cell, cells
from inference_recommender.experiment.folder import ExperimentFolder
from inference_recommender.experiment.measure import run
from inference_recommender.experiment.page import conclude
from inference_recommender.experiment.plan import Experiment, batches, job_plan
from inference_recommender.experiment.resources import Access, model_request
from inference_recommender.experiment.result import Result
from inference_recommender.experiment.terminal import show
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

NO_CELL = 1
TABLE_WIDTH = 150
SETTLED = (
    "variants",
    "instance_types",
    "traffic",
    "load",
    "host_ami",
    "baseline",
    "role_arn",
    "image_uri",
    "payload_bucket",
    "runs",
)
"""Options that a resumed experiment has settled."""
FLAGS = {"load": "with"}


class MissingBuilds(UsageError):
    """Variants that were never built, with the command that builds each."""


class ExperimentSuspended(ProjectError):
    """What was measured is kept; the exit code is that of the reason."""

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
        "--variants",
        nargs="+",
        default=[],
        metavar="NAME",
        help="variants or targets, or patterns (ort-*); default: every variant, or every target where there is none",
    )
    parser.add_argument(
        "--instance-types", nargs="+", default=[], metavar="TYPE", help="default: each target's instance_types"
    )
    parser.add_argument("--traffic", metavar="NAME", help="a [traffic.NAME] of workload.toml; default: production")
    parser.add_argument(
        "--with",
        dest="load",
        type=load_source,
        choices=["sagemaker", "load-test"],
        help="sagemaker: Inference Recommender jobs, the default; load-test: our own generator on endpoints made for "
        "it",
    )
    parser.add_argument("--host-ami", metavar="NAME", help="with load-test: InferenceAmiVersion of GPU instances")
    parser.add_argument("--baseline", metavar="TYPE[/VARIANT]", help="the cell that ratios are to; default: none")
    parser.add_argument("--role-arn", metavar="ARN", help="of jobs and models; default: the stack's recommender role")
    parser.add_argument("--image-uri", metavar="URI", help="of the models; default: that of the stack's model")
    parser.add_argument("--payload-bucket", metavar="BUCKET", help="default: SageMaker's bucket of account and region")
    parser.add_argument("--runs", type=Path, metavar="DIR", help="where the experiment's folder goes; default: runs")
    parser.add_argument("--resume", type=Path, metavar="RUN", help="go on with an experiment; finished cells are kept")
    parser.add_argument("--dry-run", action="store_true", help="print the plan and its requests as JSON, send nothing")
    parser.add_argument("--json", action="store_true", help="print the result as one JSON document")
    parser.set_defaults(command=_experiment)


def _experiment(options: argparse.Namespace, people: Console) -> int:
    aws = ExperimentAws()
    source, kept = _resumed(options) if options.resume else _begun(options)
    experiment = kept.experiment() if options.resume else _planned(options, source, kept)
    if options.dry_run:
        print(json.dumps(_to_show(options, aws, experiment, source, people), indent=2))
        return 0
    artifacts = _artifacts(experiment)
    _refuse_other_archives(kept, experiment, artifacts)
    experiment = experiment.model_copy(update={"archives": {n: a.archive_sha256 for n, a in artifacts.items()}})
    prepared = Prepared(
        experiment=experiment,
        source=source,
        artifacts=artifacts,
        archives={n: artifact_file(ROOT, source.workload.name, n).with_name(a.archive) for n, a in artifacts.items()},
        access=kept.access() if options.resume else _access(options, aws, source),
    )
    kept.begin(experiment, source.workload, prepared.access)
    return _measure(prepared, aws, kept, people, as_json=options.json)


def _measure(prepared: Prepared, aws: ExperimentAws, kept: ExperimentFolder, people: Console, *, as_json: bool) -> int:
    people.print(f"Experiment: {kept.path}", highlight=False, soft_wrap=True)
    try:
        with JobProgress(people) as progress:
            run(prepared, aws, kept, progress)
    except KeyboardInterrupt:
        raise _suspended(Interrupted("Interrupted: nothing was being measured."), prepared, kept) from None
    except (Interrupted, AwsUnavailable) as error:
        raise _suspended(error, prepared, kept) from error
    found = conclude(kept)
    _render(found, as_json)
    people.print(f"Report: {kept.report}", highlight=False, soft_wrap=True)
    if found.why_no_verdict:
        raise NoVerdict(f"No verdict: {found.why_no_verdict} What was measured is kept in {kept.path}.")
    return 0 if found.recommended else NO_CELL


def _suspended(error: ProjectError, prepared: Prepared, kept: ExperimentFolder) -> ExperimentSuspended:
    if kept.has_measured:
        conclude(kept)
    cells = prepared.experiment.cells
    return ExperimentSuspended(
        f"{error}\n{len(cells) - len(kept.left(cells))} of {len(cells)} cells are measured. Go on with "
        f"`python -m inference_recommender experiment --resume {kept.path}`: none of them is measured again.",
        error.exit_code,
    )


def _begun(options: argparse.Namespace) -> tuple[WorkloadFolder, ExperimentFolder]:
    if options.workload is None:
        raise UsageError(
            "WORKLOAD: missing. Name the workload to measure, or an experiment to go on with --resume RUN."
        )
    stamp = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
    name = f"{options.workload}-experiment-{stamp}".replace("_", "-")
    return load_workload(options.workload), ExperimentFolder((options.runs or ROOT / "runs") / name)


def _planned(options: argparse.Namespace, source: WorkloadFolder, kept: ExperimentFolder) -> Experiment:
    traffic = options.traffic or "production"
    source.traffic(traffic)
    chosen = cells(source, options.variants, options.instance_types)
    return Experiment(
        name=kept.path.name,
        workload=source.workload.name,
        traffic=traffic,
        load=options.load or "sagemaker",
        archives={},
        cells=chosen,
        baseline=baseline_cell(options.baseline, chosen) if options.baseline else None,
    )


def _resumed(options: argparse.Namespace) -> tuple[WorkloadFolder, ExperimentFolder]:
    """Takes workload and plan from the folder. Raises `UsageError`."""
    kept = ExperimentFolder(options.resume)
    named = [f"--{FLAGS.get(name, name).replace('_', '-')}" for name in SETTLED if getattr(options, name)]
    experiment = kept.experiment()
    if options.workload not in (None, experiment.workload):
        named.insert(0, options.workload)
    if named:
        raise UsageError(
            f"--resume: {options.resume} says what is measured; leave out {', '.join(named)}, or start a new "
            "experiment."
        )
    source = load_workload(experiment.workload)
    source.workload = kept.workload()  # as it was when the first cell was measured
    return source, kept


def _artifacts(experiment: Experiment) -> dict[str, ModelArtifact]:
    """Returns the artifact of every variant. Raises `MissingBuilds`."""
    found, missing = {}, []
    for variant in dict.fromkeys(cell.variant for cell in experiment.cells):
        try:
            found[variant] = load_artifact(ROOT, experiment.workload, variant)
        except MissingArtifact as error:
            missing.append(str(error))
    if missing:
        raise MissingBuilds("\n".join(missing))
    return found


def _refuse_other_archives(
    kept: ExperimentFolder, experiment: Experiment, artifacts: Mapping[str, ModelArtifact]
) -> None:
    for variant, then in experiment.archives.items():
        if (now := artifacts[variant].archive_sha256) != then:
            raise UsageError(
                f"--resume: {kept.path} began with an archive of '{variant}' whose sha256 is {then}; the one in build/ "
                f"now has {now}. Cells of different archives cannot be compared: start a new experiment."
            )


def _access(options: argparse.Namespace, aws: ExperimentAws, source: WorkloadFolder) -> Access:
    """The role and the image named on the command line; where one is missing, the stack's."""
    role, image = options.role_arn, options.image_uri
    if not (role and image):
        outputs = aws.stack_outputs(source.workload.stack_name)
        role, image = role or outputs.role_arn, image or aws.image_uri(outputs.model_name)
    return Access(
        role_arn=role, image_uri=image, bucket=options.payload_bucket or aws.default_bucket(), host_ami=options.host_ami
    )


def _to_show(
    options: argparse.Namespace, aws: ExperimentAws, experiment: Experiment, source: WorkloadFolder, people: Console
) -> dict[str, Any]:
    """The plan and its requests; where AWS cannot tell, with names that stand for what it would have told."""
    try:
        access = ExperimentFolder(options.resume).access() if options.resume else _access(options, aws, source)
    except AwsUnavailable as error:
        _warn(people, f"{error} Until then ACCOUNT, REGION and the names of role and image stand for the real ones.")
        access = Access(
            role_arn=options.role_arn or "arn:aws:iam::000000000000:role/RecommenderRole",
            image_uri=options.image_uri or "ACCOUNT.dkr.ecr.REGION.amazonaws.com/sagemaker-tritonserver",
            bucket=options.payload_bucket or "sagemaker-REGION-ACCOUNT",
            host_ami=options.host_ami,
        )
    try:
        artifacts = _artifacts(experiment)
    except MissingBuilds as error:
        _warn(people, f"No models are shown: {error}")
        artifacts = {}
    planned = batches(experiment, experiment.cells, ())
    plans = [
        job_plan(experiment, b, source.workload, access.tested_model(source.workload.name, b.name)) for b in planned
    ]
    for warning in dict.fromkeys(warning for plan in plans for warning in plan.warnings_for(local=False)):
        _warn(people, warning)
    return {
        "experiment": experiment.model_dump(mode="json"),
        "models": [model_request(b.name, artifacts[b.variant], access) for b in planned if b.variant in artifacts],
        "jobs": [request for plan in plans for request in plan.requests],
    }


def _warn(people: Console, warning: str) -> None:
    people.print(f"Warning: {warning}", style="yellow", highlight=False, soft_wrap=True, markup=False)


def _render(found: Result, as_json: bool) -> None:
    if as_json:
        print(found.model_dump_json(indent=2))
    else:
        show(found, Console(width=None if sys.stdout.isatty() else TABLE_WIDTH))
