"""`run`: measure a workload with Inference Recommender jobs, decide, report."""

import argparse
import json
import sys
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console

from aws_api.errors import AwsUnavailable
from inference_recommender.cli import Commands
from inference_recommender.cli import load_test as harness
from inference_recommender.cli.subject import add_subject, add_surroundings, stand_in, subject, surroundings
from inference_recommender.cli.terminal import JobProgress, show
from inference_recommender.errors import RefusedRequest
from inference_recommender.jobs.aws import Aws
from inference_recommender.jobs.from_default import candidates_of
from inference_recommender.jobs.job_run import Prepared, resume, run
from inference_recommender.jobs.requests import SERVICES_OWN, JobPlan, plan_default_job, plan_job
from inference_recommender.jobs.tested_model import AnySubject
from inference_recommender.load_test.aws import HarnessAws
from inference_recommender.run_folder import RunFolder
from workloads import ROOT, Recommendation, WorkloadFolder, load_artifact, load_workload

DEFAULT_TRAFFIC = "production"
NO_CANDIDATE = 1
LOG_WIDTH = 120


def add(commands: Commands) -> None:
    parser = commands.add_parser("run", help="run a job and size the endpoint from what it measures")
    parser.add_argument("workload", nargs="?", default="spellcheck", metavar="WORKLOAD", help="default: spellcheck")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument(
        "--job",
        choices=["default", "advanced"],
        help="default: the service's own traffic, at most 45 minutes; advanced: a load test of your own traffic",
    )
    what.add_argument(
        "--with",
        dest="load",
        choices=["harness"],
        help="harness: the traffic by our own generator, against --endpoint or --url, without a job",
    )
    what.add_argument("--resume", type=Path, metavar="RUN", help="go on with a run that was killed or cut off")
    parser.add_argument("--traffic", metavar="NAME", help="a [traffic.NAME] of workload.toml; default: production")
    parser.add_argument(
        "--from-default", type=Path, metavar="RUN", help="test what a default job's run found, as it configured it"
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="print the request as JSON, a list where there are several; send nothing"
    )
    parser.add_argument("--json", action="store_true", help="print the recommendation as one JSON document")
    parser.add_argument(
        "--job-name",
        metavar="NAME",
        help="default: workload, traffic and time; begin with the workload: the role allows no other",
    )
    parser.add_argument("--runs", type=Path, default=ROOT / "runs", metavar="DIR", help="where run folders go")
    add_subject(parser)
    add_surroundings(parser)
    harness.add_options(parser)
    parser.set_defaults(command=_run)


def _run(options: argparse.Namespace, people: Console) -> int:
    if options.load == "harness":
        return _with_harness(options, people)
    harness.refuse_without_harness(options)
    aws = Aws()
    if options.resume:
        return _resume(options, aws, people)
    folder = load_workload(options.workload)
    plan = _plan(options, aws, folder, people)
    for warning in plan.warnings:
        _warn(people, warning)
    if options.dry_run:
        shown = plan.requests if len(plan.requests) > 1 else plan.request
        print(json.dumps(shown, indent=2))
        return 0
    artifact = load_artifact(ROOT, options.workload, folder.workload.hosting.target)
    traffic = _traffic(options) if options.job == "advanced" else SERVICES_OWN
    prepared = Prepared(folder=folder, artifact=artifact, plan=plan, traffic_name=traffic)
    kept = RunFolder(options.runs / plan.job_name)
    with JobProgress(people) as progress:
        recommendation = run(prepared, aws, kept, progress)
    return _told(recommendation, folder, kept, people, as_json=options.json)


def _with_harness(options: argparse.Namespace, people: Console) -> int:
    aws = HarnessAws()
    begun = harness.begin(options, aws, options.job_name or _job_name(options.workload, options.traffic))
    if options.dry_run:
        print(harness.show(begun))
        return 0
    recommendation = harness.measure(begun, aws, people)
    return _told(recommendation, begun.prepared.source, begun.kept, people, as_json=options.json)


def _resume(options: argparse.Namespace, aws: Aws, people: Console) -> int:
    kept = RunFolder(options.resume)
    kept.jobs()
    folder = load_workload(kept.workload().name)
    with JobProgress(people) as progress:
        recommendation = resume(folder, aws, kept, progress)
    return _told(recommendation, folder, kept, people, as_json=options.json)


def _plan(options: argparse.Namespace, aws: Aws, folder: WorkloadFolder, people: Console) -> JobPlan:
    return (_default if options.job == "default" else _advanced)(options, aws, folder, people)


def _default(options: argparse.Namespace, aws: Aws, folder: WorkloadFolder, people: Console) -> JobPlan:
    given = {"--traffic": options.traffic, "--from-default": options.from_default}
    if odd := [f"{flag}: is of an advanced job: say --job advanced." for flag, value in given.items() if value]:
        raise RefusedRequest(odd)
    tested, around = _subject(options, aws, folder, people), surroundings(options)
    deployed = aws.deployed_endpoint(options.endpoint) if options.endpoint and not options.dry_run else None
    name = options.job_name or _job_name(options.workload, "default")
    return plan_default_job(folder.workload, tested, name, around, deployed)


def _advanced(options: argparse.Namespace, aws: Aws, folder: WorkloadFolder, people: Console) -> JobPlan:
    name = _traffic(options)
    traffic, around = folder.traffic(name), surroundings(options)
    run = options.from_default and RunFolder(options.from_default)
    candidates = candidates_of(run, folder.workload.name) if run else None
    tested = _subject(options, aws, folder, people)
    job_name = options.job_name or _job_name(options.workload, name)
    return plan_job(folder.workload, name, traffic, tested, job_name, around, candidates)


def _traffic(options: argparse.Namespace) -> str:
    return options.traffic or DEFAULT_TRAFFIC


def _subject(options: argparse.Namespace, aws: Aws, folder: WorkloadFolder, people: Console) -> AnySubject:
    try:
        return subject(options, aws, folder.workload)
    except AwsUnavailable as error:
        if not options.dry_run:
            raise
        _warn(people, f"{error} Until then ACCOUNT, REGION and the names of model and role stand for the real ones.")
        return stand_in(options, folder.workload)


def _told(
    recommendation: Recommendation, folder: WorkloadFolder, kept: RunFolder, people: Console, *, as_json: bool
) -> int:
    _render(recommendation, as_json)
    people.print(f"Report: {kept.report}", highlight=False, soft_wrap=True)
    if recommendation.recommended is None:
        return NO_CANDIDATE
    people.print(f"Written for review: {folder.recommendation_file}", highlight=False, soft_wrap=True)
    return 0


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
