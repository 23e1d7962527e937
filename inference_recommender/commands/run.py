"""`run`: measure a workload with an Inference Recommender job, decide, report."""

import argparse
import json
import sys
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console

from inference_recommender.aws import Aws
from inference_recommender.commands import Commands
from inference_recommender.errors import AwsUnavailable
from inference_recommender.job import Subject, plan_job
from inference_recommender.run import Prepared, payload_key, run
from inference_recommender.run_folder import RunFolder
from inference_recommender.terminal import JobProgress, show
from workloads import ROOT, Recommendation, WorkloadFolder, load_artifact, load_workload

NO_CANDIDATE = 1
LOG_WIDTH = 120


def add(commands: Commands) -> None:
    parser = commands.add_parser("run", help="run a job and size the endpoint from what it measures")
    parser.add_argument("workload", nargs="?", default="spellcheck", metavar="WORKLOAD", help="default: spellcheck")
    parser.add_argument("--job", required=True, choices=["advanced"], help="advanced: a load test of your own traffic")
    parser.add_argument("--traffic", default="production", metavar="NAME", help="a [traffic.NAME] of workload.toml")
    parser.add_argument("--dry-run", action="store_true", help="print the request as JSON, send nothing")
    parser.add_argument("--json", action="store_true", help="print the recommendation as one JSON document")
    parser.add_argument(
        "--job-name",
        metavar="NAME",
        help="default: workload, traffic and time; begin with the workload: the role allows no other",
    )
    parser.add_argument("--model-name", metavar="NAME", help="SageMaker model; default: the one the stack deployed")
    parser.add_argument("--role-arn", metavar="ARN", help="role the job assumes; default: the stack's")
    parser.add_argument("--payload-bucket", metavar="BUCKET", help="default: SageMaker's bucket of account and region")
    parser.add_argument("--runs", type=Path, default=ROOT / "runs", metavar="DIR", help="where run folders go")
    parser.set_defaults(command=_run)


def _run(options: argparse.Namespace, people: Console) -> int:
    aws = Aws()
    folder = load_workload(options.workload)
    traffic = folder.traffic(options.traffic)
    subject = _subject_to_show(options, aws, folder, people) if options.dry_run else _subject(options, aws, folder)
    name = options.job_name or _job_name(options.workload, options.traffic)
    plan = plan_job(folder.workload, options.traffic, traffic, subject, name)
    for warning in plan.warnings:
        _warn(people, warning)
    if options.dry_run:
        print(json.dumps(plan.request, indent=2))
        return 0
    artifact = load_artifact(ROOT, options.workload, folder.workload.hosting.target)
    prepared = Prepared(folder=folder, artifact=artifact, plan=plan, traffic_name=options.traffic)
    return _measure(prepared, aws, RunFolder(options.runs / plan.job_name), people, as_json=options.json)


def _measure(prepared: Prepared, aws: Aws, kept: RunFolder, people: Console, *, as_json: bool) -> int:
    with JobProgress(people) as progress:
        recommendation = run(prepared, aws, kept, progress)
    _render(recommendation, as_json)
    people.print(f"Report: {kept.report}", highlight=False, soft_wrap=True)
    if recommendation.recommended is None:
        return NO_CANDIDATE
    people.print(f"Written for review: {prepared.folder.recommendation_file}", highlight=False, soft_wrap=True)
    return 0


def _subject(options: argparse.Namespace, aws: Aws, folder: WorkloadFolder) -> Subject:
    """The model and role named on the command line; where one is missing, the stack's."""
    model, role = options.model_name, options.role_arn
    if not (model and role):
        outputs = aws.stack_outputs(folder.workload.stack_name)
        model, role = model or outputs.model_name, role or outputs.role_arn
    bucket = options.payload_bucket or aws.payload_bucket()
    return Subject(model_name=model, role_arn=role, payload_url=f"s3://{bucket}/{payload_key(folder.workload.name)}")


def _subject_to_show(options: argparse.Namespace, aws: Aws, folder: WorkloadFolder, people: Console) -> Subject:
    """As `_subject`; where AWS cannot tell, names that stand for what it would have told."""
    try:
        return _subject(options, aws, folder)
    except AwsUnavailable as error:
        _warn(people, f"{error} Until then ACCOUNT, REGION and the names of model and role stand for the real ones.")
    return Subject(
        model_name=options.model_name or f"{folder.workload.stack_name}-ServingModel",
        role_arn=options.role_arn or "arn:aws:iam::000000000000:role/RecommenderRole",
        payload_url=f"s3://{options.payload_bucket or 'sagemaker-REGION-ACCOUNT'}/{payload_key(folder.workload.name)}",
    )


def _warn(people: Console, warning: str) -> None:
    people.print(f"Warning: {warning}", style="yellow", highlight=False, soft_wrap=True, markup=False)


def _job_name(workload: str, traffic: str) -> str:
    stamp = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
    return f"{workload}-{traffic}-{stamp}".replace("_", "-")


def _render(recommendation: Recommendation, as_json: bool) -> None:
    if as_json:
        print(recommendation.model_dump_json(indent=2))
    else:
        show(recommendation, Console(width=None if sys.stdout.isatty() else LOG_WIDTH))
