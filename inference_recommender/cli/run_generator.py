"""`run --endpoint` and `run --url`: measure by the load generator of this project."""

import argparse
import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from rich.console import Console

from aws_api.errors import AwsUnavailable
from aws_api.processing_jobs import ProcessingJob
from aws_api.sagemaker import SageMakerAccount
from inference_recommender.cli.run import show_and_write
from inference_recommender.measure.generator_fleet import FleetDrive, plan_fleet
from inference_recommender.measure.load_test import LoadTest
from inference_recommender.measure.open_loop import DURATION_S, OPEN_LOOP, OpenLoopSearch, search_system
from inference_recommender.measure.run import RunSubject, run
from inference_recommender.measure.system import SystemUnderTest, system_at_url, system_of_endpoint
from inference_recommender.measurement import Measurement
from inference_recommender.output import JobProgress, warn
from inference_recommender.run_folder import PAYLOADS, RunFolder, run_name
from workloads import CODE, ROOT, UsageError, Workload, WorkloadFolder, images, load_artifact


def run_generator(
    options: argparse.Namespace, account: SageMakerAccount, folder: WorkloadFolder, stderr: Console
) -> int:
    """Runs phased traffic with --traffic, otherwise an open-loop search."""
    system = _system(options, account, folder)
    traffic = options.traffic or OPEN_LOOP
    name = options.name or run_name(options.workload, traffic)
    run_folder, workload = RunFolder(options.runs / name), folder.workload
    job = _processing_job(options, account, workload, name, system)
    if options.dry_run:
        print(_plans(options, folder, system, run_folder, job))
        return 0
    subject = RunSubject.of(folder, traffic, partial(warn, stderr), options.payloads)
    source: LoadTest | OpenLoopSearch = OpenLoopSearch(system=system, longest_s=options.max_duration_s or DURATION_S)
    search: Callable[..., Measurement] | None = None
    with JobProgress(stderr) as progress:
        if options.traffic:
            test = _load_test(options, folder, system)
            if job:
                generators = f"{job.instances} × {job.instance_type}"
                test = replace(test, drive=FleetDrive(job, account, CODE, progress), generators=generators)
            else:
                search = partial(search_system, system, test.traffic.duration_s)
            source = test
        recommendation = run(source, run_folder, progress, subject=subject, search=search, search_all=options.search)
    return show_and_write(recommendation, folder, run_folder, options, stderr)


def _system(options: argparse.Namespace, account: SageMakerAccount, folder: WorkloadFolder) -> SystemUnderTest:
    """Returns the system of --url or --endpoint, or the stack's endpoint."""
    if options.url is None:
        name = options.endpoint or account.endpoint_name(folder.workload.stack_name)
        return system_of_endpoint(account.endpoint_description(name), account.region)
    artifact = load_artifact(ROOT, options.workload, folder.workload.hosting.target)
    return system_at_url(options.url, artifact.default_model, options.instances, region=_region(account))


def _region(account: SageMakerAccount) -> str:
    """Returns the region of the prices; a URL can be measured without one."""
    try:
        return account.region
    except AwsUnavailable:
        return "unknown"


def _load_test(options: argparse.Namespace, folder: WorkloadFolder, system: SystemUnderTest) -> LoadTest:
    timeout_s = folder.workload.recommender.request_timeout_s
    return LoadTest(system=system, traffic=folder.traffic(options.traffic), request_timeout_s=timeout_s)


def _processing_job(
    options: argparse.Namespace, account: SageMakerAccount, workload: Workload, name: str, system: SystemUnderTest
) -> ProcessingJob | None:
    """Returns the job of several generators; None for a generator on this machine, which open-loop searches use."""
    settings = workload.recommender
    if settings.generators is None or not options.traffic:
        return None
    if system.measured_on == "local":
        raise UsageError(
            f"recommender.generators: {system.name} is on this machine, which a Processing job cannot reach. Measure "
            "another system, or leave generators out."
        )
    instead = ", or set recommender.role_arn to a role that sagemaker.amazonaws.com may assume"
    image = settings.generator_image_uri
    return plan_fleet(
        workload.name,
        name,
        workload.traffic[options.traffic].duration_s,
        generators=settings.generators,
        instance_type=settings.generator_type,
        image_uri=image or images.pytorch_cpu_image(account.region, "--set recommender.generator_image_uri"),
        role_arn=settings.role_arn or account.stack_output(workload.stack_name, "GeneratorRoleArn", instead),
        bucket=settings.bucket or account.default_bucket(),
        region=account.region,
        kms_key=settings.kms_key_arn,
        security_groups=settings.security_groups,
        subnets=settings.subnets,
    )


def _plans(
    options: argparse.Namespace,
    folder: WorkloadFolder,
    system: SystemUnderTest,
    run_folder: RunFolder,
    job: ProcessingJob | None,
) -> str:
    """Returns the generator's plan and the Processing job's request, if there is one, as one JSON document."""
    objective = folder.workload.latency_objective
    if not options.traffic:
        longest_s = options.max_duration_s or DURATION_S
        target = {"url": system.url, "endpoint": None if system.url else system.name}
        limit = {"percentile": objective.percentile, "limit_ms": objective.model_latency_ms}
        return json.dumps({"search": {**target, **limit, "max_duration_s": longest_s}}, indent=2)
    plan = (
        _load_test(options, folder, system)
        .plan(folder.workload, run_folder.path / PAYLOADS)
        .model_dump(mode="json", by_alias=True)
    )
    return json.dumps({"plan": plan, **({"processing_job": job.request()} if job else {})}, indent=2)
