"""`run --with load-test`: a workload's traffic by our own generator, against an endpoint or a URL, without a job."""

import argparse
import json
import re
from dataclasses import dataclass, replace
from functools import partial

from rich.console import Console

from aws_api.errors import AwsUnavailable, is_this_machine
from aws_api.processing_jobs import ProcessingJob
from inference_recommender.capacity.search import SendProbe
from inference_recommender.cli import GENERATOR_TYPE
from inference_recommender.measure.aws import deployed_workload
from inference_recommender.measure.generator_fleet import FleetDrive
from inference_recommender.measure.generator_request import Fleet, image_uri, plan_fleet
from inference_recommender.measure.load_test import PAYLOADS, Drive, Prepared, alone, machine_description, run
from inference_recommender.measure.load_test_aws import LoadTestAws
from inference_recommender.measure.probe import GeneratorProbe
from inference_recommender.measure.search import SEARCH
from inference_recommender.measure.served import Served, endpoint_served, load_plan, url_served
from inference_recommender.measure.tested_model import key_problem
from inference_recommender.output import JobProgress, warn
from inference_recommender.payload_lengths import known_lengths
from inference_recommender.progress import Progress
from inference_recommender.run_folder import RunFolder
from inference_recommender.triton_statistics import TritonStatistics
from workloads import ROOT, ModelArtifact, Recommendation, UsageError, Workload, load_artifact

UNKNOWN_TYPE = "unknown"
JOB_OPTIONS = ("from_default", "model_package", "parallel_tests", "tag", "description")
"""Options of jobs that a load test has no use for."""
COUNTS = ("instances", "generators")


@dataclass(frozen=True, kw_only=True, slots=True)
class Begun:
    """A load test of which nothing is sent yet."""

    prepared: Prepared
    fleet: ProcessingJob | None
    run_folder: RunFolder


def account() -> LoadTestAws:
    return LoadTestAws()


def begin(options: argparse.Namespace, aws: LoadTestAws, traffic_name: str, name: str) -> Begun:
    """Plans a workload's traffic against what the options name, and asks AWS for what they leave out. Nothing is sent.
    Raises `UsageError` or `AwsUnavailable`.
    """
    _refuse(options)
    source = deployed_workload(options.workload, options.target, None if options.url else aws, options.endpoint)
    traffic, objective = source.traffic(traffic_name), source.workload.latency_objective
    artifact = load_artifact(ROOT, options.workload, source.workload.hosting.target)
    served = _served(options, aws, artifact, source.workload)
    run_folder = RunFolder(options.runs / name)
    prepared = Prepared(
        source=source,
        artifact=artifact,
        traffic_name=traffic_name,
        traffic=traffic,
        served=served,
        plan=load_plan(traffic, objective, served, (run_folder.path / PAYLOADS).absolute()).with_request_timeout(
            options.request_timeout_s
        ),
        machine=_generators(options),
    )
    fleet = None
    if options.generators:
        fleet = plan_fleet(options.workload, name, traffic.duration_s, _fleet(options, aws, source.workload))
    return Begun(prepared=prepared, fleet=fleet, run_folder=run_folder)


def show(begun: Begun) -> str:
    """Returns the generator's plan, and the Processing job's request if there is one, as one JSON document."""
    plan = begun.prepared.plan.without_secrets().model_dump(mode="json", by_alias=True)
    request = {"processing_job": begun.fleet.request()} if begun.fleet else {}
    return json.dumps({"plan": plan, **request}, indent=2)


def measure(begun: Begun, aws: LoadTestAws, stderr: Console, *, search: bool) -> Recommendation:
    """Returns the recommendation after the traffic's time. Raises what `load_test.run` raises."""
    lengths = known_lengths(begun.prepared.source, partial(warn, stderr))
    prepared = replace(begun.prepared, lengths=lengths)
    with JobProgress(stderr) as progress:
        served, drive = prepared.served, _drive(begun, aws, progress)
        statistics = TritonStatistics(served.url or served.server_url)
        return run(prepared, drive, begun.run_folder, progress, _probe(begun), statistics, search=search)


def _drive(begun: Begun, aws: LoadTestAws, progress: Progress) -> Drive:
    return FleetDrive(begun.fleet, aws, ROOT, progress) if begun.fleet else alone


def _probe(begun: Begun) -> SendProbe | None:
    """Returns the probe of a search from this machine; a fleet takes minutes to start, too long for each of them."""
    if begun.fleet is not None:
        return None
    plan, path, served = begun.prepared.plan, begun.run_folder.path, begun.prepared.served
    return GeneratorProbe(
        path / PAYLOADS, path / SEARCH, url=plan.url, endpoint=plan.endpoint, served_at=served.server_url
    )


def _refuse(options: argparse.Namespace) -> None:
    for name in JOB_OPTIONS:
        if getattr(options, name):
            raise UsageError(f"{_flag(name)}: not with --with load-test, which runs a workload's own traffic as it is.")
    for name in COUNTS:
        if (count := getattr(options, name)) is not None and count < 1:
            raise UsageError(f"{_flag(name)}: got {count}. Allowed: 1 or more.")
    if options.url is not None and options.endpoint is not None:
        raise UsageError(f"--endpoint {options.endpoint} and --url {options.url}: give one of them.")
    if options.url is not None and not re.fullmatch(r"https?://[^/]+(/.*)?", options.url):
        raise UsageError(f"--url: got '{options.url}', but a URL is http://HOST:PORT or https://HOST.")


def _served(options: argparse.Namespace, aws: LoadTestAws, artifact: ModelArtifact, workload: Workload) -> Served:
    """Returns what --url or --endpoint names, or else the stack's endpoint."""
    if options.url is None:
        name = options.endpoint or aws.endpoint_name(workload.stack_name)
        host = aws.runtime_host()
        server_url = aws.invocations_url(name) if is_this_machine(host) else None
        return endpoint_served(aws.deployed_endpoint(name), aws.region, host, server_url)
    served = url_served(
        options.url,
        options.model or artifact.default_model,
        options.instance_type or UNKNOWN_TYPE,
        options.instances or 1,
        _region(aws),
    )
    if served.measured_on == "local" and options.generators:
        raise UsageError(
            f"--url: got '{options.url}', which is this machine, but with --generators the load comes from AWS. Name "
            "an address that a Processing job can reach, or leave out --generators."
        )
    return served


def _region(aws: LoadTestAws) -> str | None:
    """Returns the region whose prices hold; a URL can be measured without any."""
    try:
        return aws.region
    except AwsUnavailable:
        return None


def _fleet(options: argparse.Namespace, aws: LoadTestAws, workload: Workload) -> Fleet:
    if problem := key_problem(workload, options.kms_key, options.role_arn):
        raise UsageError(problem)
    return Fleet(
        generators=options.generators,
        instance_type=options.generator_type or GENERATOR_TYPE,
        image_uri=options.generator_image_uri or image_uri(aws.region),
        role_arn=options.role_arn or aws.generator_role(workload.stack_name),
        bucket=options.payload_bucket or aws.default_bucket(),
        region=aws.region,
        kms_key=options.kms_key,
        security_groups=tuple(options.security_group),
        subnets=tuple(options.subnet),
    )


def _generators(options: argparse.Namespace) -> str:
    if options.generators:
        return f"{options.generators} × {options.generator_type or GENERATOR_TYPE}"
    return machine_description()


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"
