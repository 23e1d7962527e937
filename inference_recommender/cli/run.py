"""`run`: measure a workload by a job or by the load generator, size its fleet, and write the recommendation."""

import argparse
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

from rich.console import Console

from aws_api.errors import AwsUnavailable
from aws_api.sagemaker import SageMakerAccount
from inference_recommender.cli import arguments
from inference_recommender.measure.job import JobSource, candidates_of, job_model, payload_key
from inference_recommender.measure.job_requests import (
    DEFAULT_TRAFFIC,
    SERVICE_DEFAULT,
    JobPlan,
    TestedModel,
    plan_default_job,
    plan_job,
)
from inference_recommender.measure.run import RunSubject, SearchMeasurement, run, workload_to_measure
from inference_recommender.measure.system import UNKNOWN_TYPE, system_of_endpoint
from inference_recommender.output import Commands, JobProgress, add_command, tell, warn
from inference_recommender.report.inputs import FolderInputs
from inference_recommender.report.run_report import run_report
from inference_recommender.report.text import print_result
from inference_recommender.run_folder import RunFolder, run_name
from workloads import ROOT, Recommendation, UsageError, Workload, WorkloadFolder, load_workload
from workloads.files import from_here

NO_CANDIDATE = 1
DESCRIPTION = """Measures a workload and sizes its fleet.

With --job, SageMaker Inference Recommender sends the load. With --endpoint or --url, the load generator of this project
does: phased traffic with --traffic NAME, otherwise an open-loop search of the capacity. The default is an advanced job,
or an open-loop search of the stack's endpoint on instance types that a job cannot test. Account settings such as role,
subnets and tags are in [recommender] of workload.toml."""


Generator = Callable[[argparse.Namespace, SageMakerAccount, WorkloadFolder, Console], int]
"""Runs one of the ways that need the load generator: `run_generator` or `run_cold_start`."""
MakeSearch = Callable[[SageMakerAccount], SearchMeasurement]
"""Returns the search of a job's candidates, which needs the load generator."""


def add(commands: Commands, *, make_search: MakeSearch, generator: Generator, cold_start: Generator) -> None:
    """`__main__` imports the three parts, which need the load generator, when they are called."""
    parser = add_command(commands, "run spellcheck --job advanced --traffic quick", DESCRIPTION)
    parser.add_argument("workload", nargs="?", default="spellcheck", metavar="WORKLOAD", help="default: spellcheck")
    source = parser.add_argument_group("measurement")
    source.add_argument(
        "--job",
        choices=["default", "advanced"],
        help="advanced: a load test with the workload's traffic; default: the service's traffic, at most 45 minutes",
    )
    source.add_argument("--endpoint", metavar="NAME", help="endpoint to measure; a default job tests it, too")
    source.add_argument("--url", metavar="URL", help="KServe v2 server to measure, or the infer URL of its model")
    source.add_argument("--instances", metavar="[Nx]TYPE", help="instances behind --url, such as 2xml.inf2.xlarge")
    source.add_argument("--traffic", metavar="NAME", help="a [traffic.NAME]; a job's default: production")
    source.add_argument(
        "--search",
        action="store_true",
        help="also search the capacity with open-loop arrivals; a job's candidates on temporary "
        "endpoints. An estimate below 40 %% of the closed-loop rate is always checked by such a search",
    )
    source.add_argument("--cold-start", action="store_true", help="time only the start of new endpoints or --endpoint")
    source.add_argument("--target", metavar="NAME", help="target of the build; default: what the stack deployed")
    source.add_argument("--from-default", type=Path, metavar="RUN", help="test the candidates of a default job's run")
    source.add_argument("--payloads", type=Path, metavar="FILE", help="other payloads, in the form of payloads.jsonl")
    source.add_argument("--max-duration-s", type=arguments.positive, metavar="S", help="search time; default: 270")
    source.add_argument("--rows", type=arguments.count, metavar="N", help="rows a request; default: the objective's")
    source.add_argument("--payload-format", choices=["json", "binary"], help="of requests; default: the objective's")
    arguments.add_settings(parser)
    parser.add_argument("--name", metavar="NAME", help="of job and run folder; default: workload, traffic and time")
    parser.add_argument("--resume", type=Path, metavar="RUN", help="continue the run of an interrupted job")
    parser.add_argument("--dry-run", action="store_true", help="print the requests as JSON and send nothing")
    parser.add_argument("--json", action="store_true", help="print the recommendation as one JSON document")
    parser.add_argument("--runs", type=Path, default=ROOT / "runs", metavar="DIR", help="folder for run folders")
    parser.set_defaults(command=partial(_run, make_search, generator, cold_start))


def _run(
    make_search: MakeSearch, generator: Generator, cold_start: Generator, options: argparse.Namespace, stderr: Console
) -> int:
    _check_options(options)
    form = {"rows_per_invocation": options.rows, "payload_format": options.payload_format}
    options.settings += [f"objective.{key}={value}" for key, value in form.items() if value]
    account = SageMakerAccount()
    if options.resume:
        return _resume(options, account, make_search(account), stderr)
    known = None if options.url else account
    folder = workload_to_measure(options.workload, options.settings, options.target, known, options.endpoint)
    _ = folder.workload.latency_objective  # a batch has none
    if options.cold_start:
        return cold_start(options, account, folder, stderr)
    if options.job or not (options.url or options.endpoint or _cannot_run_a_job(folder, account, stderr)):
        return _run_job(options, account, folder, make_search(account), stderr)
    return generator(options, account, folder, stderr)


def _check_options(options: argparse.Namespace) -> None:
    """Raises `UsageError` for options that do not belong together."""
    generator = options.url or (options.endpoint and not options.job)
    for wrong, problem in (
        (options.url and (options.job or options.endpoint), "--url: cannot be combined with --job or --endpoint."),
        (options.instances and not options.url, "--instances: only with --url. AWS reports it for an endpoint."),
        (options.endpoint and options.job == "advanced", "--endpoint: an advanced job tests none. Use --job default."),
        (options.traffic and options.job == "default", "--traffic: a default job has its own. Use --job advanced."),
        (options.from_default and (generator or options.job == "default"), "--from-default: only with --job advanced."),
        (options.payloads and not generator, "--payloads: only with --url or --endpoint. A job sends payloads.jsonl."),
        (
            options.max_duration_s and (options.job or options.traffic),
            "--max-duration-s: only for an open-loop search.",
        ),
    ):
        if wrong:
            raise UsageError(problem)


def _cannot_run_a_job(folder: WorkloadFolder, account: SageMakerAccount, stderr: Console) -> bool:
    workload = folder.workload
    if workload.recommender.ignore_driver or workload.recommender.model:
        return False
    if types := workload.failing_hosts():
        names = ", ".join(types)
        tell(stderr, f"A job's hosts of {names} cannot start the model. Measuring the stack's endpoint instead.")
    return bool(types)


def _run_job(
    options: argparse.Namespace,
    account: SageMakerAccount,
    folder: WorkloadFolder,
    search: SearchMeasurement,
    stderr: Console,
) -> int:
    plan = _plan(options, account, folder, stderr)
    for warning in (*plan.warnings, *_driver_warnings(plan, folder.workload, options)):
        warn(stderr, warning)
    if options.dry_run:
        print(json.dumps(plan.requests if len(plan.requests) > 1 else plan.request, indent=2))
        return 0
    traffic = SERVICE_DEFAULT if plan.traffic is None else options.traffic or DEFAULT_TRAFFIC
    subject = RunSubject.of(folder, traffic, partial(warn, stderr), options.payloads)
    run_folder = RunFolder(options.runs / plan.job_name)
    source = JobSource(plan=plan, account=account)
    with JobProgress(stderr) as progress:
        recommendation = run(source, run_folder, progress, subject=subject, search=search, search_all=options.search)
    return show_and_write(recommendation, folder, run_folder, options, stderr)


def _driver_warnings(plan: JobPlan, workload: Workload, options: argparse.Namespace) -> list[str]:
    """A dry run prints the request of a job that would be refused, too."""
    try:
        return plan.check_drivers(workload)
    except UsageError as error:
        if not options.dry_run:
            raise
        return [f"This job would be refused. {error}"]


def _resume(options: argparse.Namespace, account: SageMakerAccount, search: SearchMeasurement, stderr: Console) -> int:
    run_folder = RunFolder(options.resume)
    run_folder.jobs()
    folder = load_workload(run_folder.workload().name)
    source = JobSource(plan=None, account=account)
    with JobProgress(stderr) as progress:
        recommendation = run(source, run_folder, progress, search=search, search_all=options.search)
    return show_and_write(recommendation, folder, run_folder, options, stderr)


def _plan(options: argparse.Namespace, account: SageMakerAccount, folder: WorkloadFolder, stderr: Console) -> JobPlan:
    workload, traffic = folder.workload, options.traffic or DEFAULT_TRAFFIC
    job_name = options.name or run_name(options.workload, "default" if options.job == "default" else traffic)
    if options.job == "default":
        tested, existing = _tested(options, account, folder, stderr), None
        if options.endpoint and not options.dry_run:
            existing = system_of_endpoint(account.endpoint_description(options.endpoint), account.region)
        return plan_default_job(workload, tested, job_name, existing)
    profile = folder.traffic(traffic)
    candidates = candidates_of(RunFolder(options.from_default), workload.name) if options.from_default else None
    tested = _tested(options, account, folder, stderr)
    return plan_job(workload, traffic, profile, tested, job_name, candidates)


def _tested(
    options: argparse.Namespace, account: SageMakerAccount, folder: WorkloadFolder, stderr: Console
) -> TestedModel:
    """Returns the model, role and bucket of [recommender], or the stack's. A dry run without AWS gets placeholders."""
    workload, settings = folder.workload, folder.workload.recommender
    try:
        return job_model(account, workload, options.endpoint)
    except AwsUnavailable as error:
        if not options.dry_run:
            raise
        warn(stderr, f"{error} The requests below have placeholders for account, region, model and role.")
    return TestedModel(
        model=settings.model or f"{workload.stack_name}-ServingModel",
        role_arn=settings.role_arn or "arn:aws:iam::000000000000:role/RecommenderRole",
        payload_url=f"s3://{settings.bucket or 'sagemaker-REGION-ACCOUNT'}/{payload_key(workload)}",
        endpoint_name=options.endpoint,
    )


def show_and_write(
    recommendation: Recommendation,
    folder: WorkloadFolder,
    run_folder: RunFolder,
    options: argparse.Namespace,
    stderr: Console,
) -> int:
    """Prints the recommendation, writes it to the workload's folder for review, and returns the exit code."""
    report = run_report(run_folder.path.resolve().name, folder.workload, recommendation, FolderInputs())
    print_result(report, json=options.json, document=recommendation)
    tell(stderr, f"Report: {from_here(run_folder.report)}")
    if recommendation.recommended is None:
        tell(stderr, "Not written to the workload's folder: no candidate meets the objective.")
        return NO_CANDIDATE
    if recommendation.recommended.instance_type == UNKNOWN_TYPE:
        tell(stderr, "Not written to the workload's folder: the instance type is unknown. State it with --instances.")
        return 0
    own_account = all(setting.startswith("recommender.") for setting in options.settings)
    if options.payloads is not None or not own_account:
        tell(stderr, "Not written to the workload's folder: other payloads or settings were measured.")
        return 0
    recommendation.write_json(folder.recommendation_file)
    tell(stderr, f"Written: {from_here(folder.recommendation_file)}. The next `cdk deploy` uses it.")
    return 0
