"""`run`: measure a workload with Inference Recommender jobs, decide, report; a load test is `cli.load_test`'s."""

import argparse
import json
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from rich.console import Console

from aws_api.errors import AwsUnavailable
from inference_recommender.cli import DEFAULT_TRAFFIC, GENERATOR_TYPE
from inference_recommender.measure.aws import Aws, deployed_workload
from inference_recommender.measure.job import AfterJob, Prepared, candidates_of, payload_key, resume, run
from inference_recommender.measure.job_requests import (
    PARALLEL_TESTS,
    SERVICE_DEFAULT,
    JobPlan,
    plan_default_job,
    plan_job,
)
from inference_recommender.measure.scaling_advice import WithScalingAdvice
from inference_recommender.measure.tested_model import JobEnvironment, Tested, TestedModel, TestedPackage, key_problem
from inference_recommender.output import Commands, JobProgress, add_command, stdout_console, tell, warn
from inference_recommender.payload_lengths import known_lengths
from inference_recommender.progress import Progress
from inference_recommender.report.run_report import recommendation_report
from inference_recommender.report.text import show
from inference_recommender.run_folder import RunFolder
from workloads import ROOT, Recommendation, UsageError, WorkloadFolder, load_artifact, load_workload
from workloads.files import from_here
from workloads.instances import needs_host_ami

NO_CANDIDATE = 1
LOAD_TEST_OPTIONS = (
    "url",
    "model",
    "instance_type",
    "instances",
    "generators",
    "generator_type",
    "generator_image_uri",
    "request_timeout_s",
)
"""Options that have a meaning with `--with load-test` only."""


def load_source(word: str) -> str:
    """Returns the argument of `--with`. Raises `UsageError` for the word that load-test replaced."""
    if word == "harness":
        raise UsageError("--with harness: is called --with load-test now.")
    return word


def add(commands: Commands) -> None:
    parser = add_command(
        commands,
        "run",
        "run a job and size the endpoint from its measurements",
        "run spellcheck --job advanced --traffic quick",
    )
    parser.add_argument("workload", nargs="?", default="spellcheck", metavar="WORKLOAD", help="default: spellcheck")
    what = parser.add_mutually_exclusive_group()
    what.add_argument(
        "--job",
        choices=["default", "advanced"],
        help="advanced (the default): a load test with your own traffic; default: traffic that the service chooses, "
        "at most 45 minutes",
    )
    what.add_argument(
        "--with",
        dest="load",
        type=load_source,
        choices=["load-test"],
        help="load-test: the traffic from our own generator, without a job, against --endpoint, --url or the stack's "
        "endpoint; the default on ml.g4dn and ml.g5, where a job cannot start the model",
    )
    what.add_argument("--resume", type=Path, metavar="RUN", help="continue a run that was killed or cut off")
    parser.add_argument(
        "--search",
        action="store_true",
        help="also search the capacity with open-loop arrivals, on a temporary endpoint for each candidate of a job; "
        "default: the estimate from the closed-loop test. An estimate below 40 %% of the closed-loop rate is always "
        "checked by such a search",
    )
    parser.add_argument("--traffic", metavar="NAME", help="a [traffic.NAME] of workload.toml; default: production")
    parser.add_argument(
        "--from-default",
        type=Path,
        metavar="RUN",
        help="test the candidates of a default job's run, as it configured them",
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
    _add_tested_model(parser.add_argument_group("what is tested"))
    _add_environment(parser.add_argument_group("the job's environment"))
    _add_load_test(parser.add_argument_group("with --with load-test"))
    parser.set_defaults(command=_run)


def _add_tested_model(group: "argparse._ArgumentGroup") -> None:
    model = group.add_mutually_exclusive_group()
    model.add_argument("--model-name", metavar="NAME", help="SageMaker model; default: the one the stack deployed")
    model.add_argument("--model-package", metavar="ARN", help="a version in the model registry, as `register` prints")
    group.add_argument(
        "--target", metavar="NAME", help="what the model was built for; default: what the stack deployed"
    )
    group.add_argument("--endpoint", metavar="NAME", help="an endpoint to test beside the types; default jobs only")
    group.add_argument("--role-arn", metavar="ARN", help="that the job assumes, or --generators'; default: the stack's")
    group.add_argument("--payload-bucket", metavar="BUCKET", help="default: SageMaker's bucket of account and region")


def _add_environment(group: "argparse._ArgumentGroup") -> None:
    group.add_argument(
        "--parallel-tests",
        type=int,
        metavar="N",
        help="tests of an advanced job at once; each needs an instance of the account's quota of endpoints; default: "
        f"{PARALLEL_TESTS}",
    )
    group.add_argument("--subnet", action="append", default=[], metavar="ID", help="of its endpoints; may be repeated")
    group.add_argument(
        "--security-group", action="append", default=[], metavar="ID", help="of its endpoints; may be repeated"
    )
    group.add_argument(
        "--kms-key",
        metavar="KEY",
        help="encrypts its endpoints' volumes and its output; the stack's roles may use recommender.kms_key_arn alone",
    )
    group.add_argument("--tag", action="append", default=[], metavar="K=V", help="may be repeated")
    group.add_argument("--description", metavar="TEXT", help="of the job; default: the workload's and its traffic")


def _add_load_test(group: "argparse._ArgumentGroup") -> None:
    group.add_argument("--url", metavar="URL", help="a KServe v2 server to measure, as of an ECS service")
    group.add_argument("--model", metavar="NAME", help="of the server; default: the workload's own")
    group.add_argument("--instance-type", metavar="TYPE", help="what serves at the URL; default: not known")
    group.add_argument("--instances", type=int, metavar="N", help="how many serve at the URL; default: 1")
    group.add_argument(
        "--generators",
        type=int,
        metavar="N",
        help="number of generators, as one SageMaker Processing job; such a test has no open-loop search",
    )
    group.add_argument("--generator-type", metavar="TYPE", help=f"instance type of each; default: {GENERATOR_TYPE}")
    group.add_argument("--generator-image-uri", metavar="URI", help="default: AWS's PyTorch image for CPUs")
    group.add_argument(
        "--request-timeout-s",
        type=float,
        metavar="S",
        help="a request without its whole answer by then has failed; default: 60, as SageMaker gives an invocation",
    )


def _run(options: argparse.Namespace, stderr: Console) -> int:
    aws = Aws()
    if not (options.job or options.load or options.resume):
        _choose(options, aws, stderr)
    if options.load:
        return _load_test(options, stderr)
    for name in LOAD_TEST_OPTIONS:
        if getattr(options, name) is not None:
            raise UsageError(
                f"--{name.replace('_', '-')}: only with --with load-test; a job of Inference Recommender makes its own "
                "load."
            )
    if options.resume:
        return _resume(options, aws, stderr)
    named = options.model_name or options.model_package
    folder = deployed_workload(options.workload, options.target, None if named else aws)
    plan = (_default if options.job == "default" else _advanced)(options, aws, folder, stderr)
    local = aws.is_on_this_machine()
    plan.refuse_old_drivers(f"python -m inference_recommender run {options.workload} --with load-test", local=local)
    for warning in plan.warnings_for(local=local):
        warn(stderr, warning)
    if options.dry_run:
        shown = plan.requests if len(plan.requests) > 1 else plan.request
        print(json.dumps(shown, indent=2))
        return 0
    artifact = load_artifact(ROOT, options.workload, folder.workload.hosting.target)
    traffic = _traffic(options) if options.job == "advanced" else SERVICE_DEFAULT
    lengths = known_lengths(folder, partial(warn, stderr))
    prepared = Prepared(folder=folder, artifact=artifact, plan=plan, traffic_name=traffic, lengths=lengths)
    run_folder = RunFolder(options.runs / plan.job_name)
    with JobProgress(stderr) as progress:
        recommendation = run(prepared, aws, run_folder, progress, after_job=_after_job(options, progress))
    return _conclude(recommendation, folder, run_folder, stderr, as_json=options.json)


def _choose(options: argparse.Namespace, aws: Aws, stderr: Console) -> None:
    """Chooses a load test where a job could not start the model or a server is named, else an advanced job."""
    known = None if options.model_name or options.model_package else aws
    old: list[str] = []
    if not options.url:
        types = deployed_workload(options.workload, options.target, known, options.endpoint).workload.instance_types
        old = [name for name in types if needs_host_ami(name) and not aws.is_on_this_machine()]
    if old or options.url:
        options.load = "load-test"
        why = f"a job's hosts of {', '.join(old)} cannot start it" if old else "--url names a server"
        tell(stderr, f"Measuring with --with load-test: {why}.")
    else:
        options.job = "advanced"


def _load_test(options: argparse.Namespace, stderr: Console) -> int:
    from inference_recommender.cli import load_test  # the generator, which a job does without

    aws = load_test.account()
    traffic = _traffic(options)
    begun = load_test.begin(options, aws, traffic, options.job_name or _job_name(options.workload, traffic))
    if options.dry_run:
        print(load_test.show(begun))
        return 0
    recommendation = load_test.measure(begun, aws, stderr, search=options.search)
    return _conclude(recommendation, begun.prepared.source, begun.run_folder, stderr, as_json=options.json)


def _resume(options: argparse.Namespace, aws: Aws, stderr: Console) -> int:
    run_folder = RunFolder(options.resume)
    run_folder.jobs()
    folder = load_workload(run_folder.workload().name)
    with JobProgress(stderr) as progress:
        recommendation = resume(folder, aws, run_folder, progress, after_job=_after_job(options, progress))
    return _conclude(recommendation, folder, run_folder, stderr, as_json=options.json)


def _after_job(options: argparse.Namespace, progress: Progress) -> AfterJob:
    """Returns the steps after a job: an open-loop search if one is needed, then AWS's own scaling policy."""
    from inference_recommender.experiment.aws import ExperimentAws
    from inference_recommender.measure.load_test import machine_description
    from inference_recommender.measure.search import TemporaryEndpoints

    aws = ExperimentAws()
    local = aws.is_on_this_machine()
    search = TemporaryEndpoints(aws, progress, machine_description() if local else "", search_all=bool(options.search))
    if local:  # the local account has no GetScalingConfigurationRecommendation
        return search
    advise = WithScalingAdvice(aws)
    return lambda measured, run_folder: advise(search(measured, run_folder), run_folder)


def _default(options: argparse.Namespace, aws: Aws, folder: WorkloadFolder, stderr: Console) -> JobPlan:
    given = {
        "--traffic": options.traffic,
        "--from-default": options.from_default,
        "--parallel-tests": options.parallel_tests,
    }
    if odd := [f"{flag}: is of an advanced job: say --job advanced." for flag, value in given.items() if value]:
        raise UsageError("\n".join(odd))
    tested, environment = _tested(options, aws, folder, stderr), _environment(options)
    deployed = aws.deployed_endpoint(options.endpoint) if options.endpoint and not options.dry_run else None
    name = options.job_name or _job_name(options.workload, "default")
    return plan_default_job(folder.workload, tested, name, environment, deployed)


def _advanced(options: argparse.Namespace, aws: Aws, folder: WorkloadFolder, stderr: Console) -> JobPlan:
    name = _traffic(options)
    traffic, environment = folder.traffic(name), _environment(options)
    default_run = options.from_default and RunFolder(options.from_default)
    candidates = candidates_of(default_run, folder.workload.name) if default_run else None
    tested = _tested(options, aws, folder, stderr)
    job_name = options.job_name or _job_name(options.workload, name)
    parallel = options.parallel_tests
    return plan_job(folder.workload, name, traffic, tested, job_name, environment, candidates, parallel)


def _traffic(options: argparse.Namespace) -> str:
    return options.traffic or DEFAULT_TRAFFIC


def _environment(options: argparse.Namespace) -> JobEnvironment:
    pairs = [text.partition("=") for text in options.tag]
    if odd := [f"--tag: got '{key}'. Allowed: KEY=VALUE." for key, equals, _ in pairs if not equals]:
        raise UsageError("\n".join(odd))
    return JobEnvironment(
        subnets=tuple(options.subnet),
        security_groups=tuple(options.security_group),
        kms_key=options.kms_key,
        tags={key: value for key, _, value in pairs},
        description=options.description,
    )


def _tested(options: argparse.Namespace, aws: Aws, folder: WorkloadFolder, stderr: Console) -> Tested:
    """Returns the model, role and bucket named on the command line, or else the stack's. A dry run without AWS gets
    names that stand for what AWS would have told.
    """
    workload = folder.workload
    if problem := key_problem(workload, options.kms_key, options.role_arn):
        raise UsageError(problem)
    model, role, bucket = options.model_package or options.model_name, options.role_arn, options.payload_bucket
    try:
        if not (model and role):
            outputs = aws.stack_outputs(workload.stack_name)
            model, role = model or outputs.model_name, role or outputs.role_arn
        bucket = bucket or aws.default_bucket()
    except AwsUnavailable as error:
        if not options.dry_run:
            raise
        warn(stderr, f"{error} Until then ACCOUNT, REGION and the names of model and role stand for the real ones.")
        model = model or f"{workload.stack_name}-ServingModel"
        role = role or "arn:aws:iam::000000000000:role/RecommenderRole"
        bucket = bucket or "sagemaker-REGION-ACCOUNT"
    url = f"s3://{bucket}/{payload_key(workload.name)}"
    if options.model_package is None:
        return TestedModel(model_name=model, role_arn=role, payload_url=url, endpoint_name=options.endpoint)
    return TestedPackage(model_package_arn=model, role_arn=role, payload_url=url, endpoint_name=options.endpoint)


def _conclude(
    recommendation: Recommendation, folder: WorkloadFolder, run_folder: RunFolder, stderr: Console, *, as_json: bool
) -> int:
    if as_json:
        print(recommendation.model_dump_json(indent=2))
    else:
        show(recommendation_report(recommendation), stdout_console())
    tell(stderr, f"Report: {from_here(run_folder.report)}")
    if recommendation.recommended is None:
        return NO_CANDIDATE
    tell(stderr, f"Written: {from_here(folder.recommendation_file)}. The next `cdk deploy` uses it.")
    return 0


def _job_name(workload: str, traffic: str) -> str:
    stamp = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
    return f"{workload}-{traffic}-{stamp}".replace("_", "-")
