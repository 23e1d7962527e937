"""What `run … --with harness` adds to the command line, and what it does.

begin     a workload's traffic against what is named, with AWS asked for what was not given
show      the document of --dry-run
measure   the recommendation, after the traffic's time
"""

import argparse
import json
import re
from dataclasses import dataclass

from rich.console import Console

from aws_api.errors import AwsUnavailable
from inference_recommender.cli.terminal import JobProgress
from inference_recommender.load_test import image, machine
from inference_recommender.load_test.aws import HarnessAws
from inference_recommender.load_test.errors import (
    NoGeneratorRole,
    NotACount,
    NotAUrl,
    NothingServed,
    NotWithHarness,
    OnlyWithHarness,
    TwoServed,
    UnreachableFromAws,
)
from inference_recommender.load_test.generator_fleet import FleetDrive
from inference_recommender.load_test.load_test import PAYLOADS, Drive, Prepared, alone, run
from inference_recommender.load_test.plan import load_plan
from inference_recommender.load_test.request import Fleet, FleetPlan, plan_fleet
from inference_recommender.load_test.served import Served, endpoint_served, url_served
from inference_recommender.progress import Progress
from inference_recommender.run_folder import RunFolder
from workloads import ROOT, ModelArtifact, Recommendation, WorkloadFolder, load_artifact, load_workload

UNKNOWN_TYPE = "unknown"
GENERATOR_TYPE = "ml.c5.2xlarge"
"""A generator uses one core; the second is for the network."""
NO_JOBS = ("from_default", "model_package", "tag", "description")
"""Options of jobs that a harness has no use for."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """All of them, for the `run` command; of no use without --with harness, but for --endpoint, which is `run`'s."""
    harness = parser.add_argument_group("with --with harness")
    harness.add_argument("--url", metavar="URL", help="a KServe v2 server to measure, as of an ECS service")
    harness.add_argument("--model", metavar="NAME", help="of the server; default: the workload's own")
    harness.add_argument("--instance-type", metavar="TYPE", help="what serves at the URL; default: not known")
    harness.add_argument("--instances", type=int, metavar="N", help="how many serve at the URL; default: 1")
    harness.add_argument("--generators", type=int, metavar="N", help="so many, as one SageMaker Processing job")
    harness.add_argument("--generator-type", metavar="TYPE", help=f"instance type of each; default: {GENERATOR_TYPE}")
    harness.add_argument("--generator-image-uri", metavar="URI", help="default: AWS's PyTorch image for CPUs")


OWN = ("url", "model", "instance_type", "instances", "generators", "generator_type", "generator_image_uri")
COUNTS = ("instances", "generators")


def refuse_without_harness(options: argparse.Namespace) -> None:
    """Raises `OnlyWithHarness`."""
    for name in OWN:
        if getattr(options, name) is not None:
            raise OnlyWithHarness(_flag(name))


@dataclass(frozen=True, kw_only=True, slots=True)
class Begun:
    prepared: Prepared
    fleet: FleetPlan | None
    kept: RunFolder


def begin(options: argparse.Namespace, aws: HarnessAws, name: str) -> Begun:
    """Nothing is sent. Raises what is wrong with the options, or `AwsUnavailable`."""
    _refuse(options)
    source = load_workload(options.workload)
    traffic, objective = source.traffic(options.traffic), source.workload.latency_objective
    artifact = load_artifact(ROOT, options.workload, source.workload.hosting.target)
    served = _served(options, aws, artifact)
    kept = RunFolder(options.runs / name)
    prepared = Prepared(
        source=source,
        artifact=artifact,
        traffic_name=options.traffic,
        traffic=traffic,
        served=served,
        plan=load_plan(traffic, objective, served, (kept.path / PAYLOADS).absolute()),
        machine=_generators(options),
    )
    fleet = None
    if options.generators:
        fleet = plan_fleet(options.workload, name, traffic.duration_s, _fleet(options, aws, source))
    return Begun(prepared=prepared, fleet=fleet, kept=kept)


def show(begun: Begun) -> str:
    """The generator's plan, and the Processing job's request where there is one, as one JSON document."""
    plan = begun.prepared.plan.model_dump(mode="json", by_alias=True)
    request = {"processing_job": begun.fleet.request} if begun.fleet else {}
    return json.dumps({"plan": plan, **request}, indent=2)


def measure(begun: Begun, aws: HarnessAws, people: Console) -> Recommendation:
    """Raises what `harness.run.run` raises."""
    with JobProgress(people) as progress:
        return run(begun.prepared, _drive(begun, aws, progress), begun.kept, progress)


def _drive(begun: Begun, aws: HarnessAws, progress: Progress) -> Drive:
    return FleetDrive(begun.fleet, aws, ROOT, progress) if begun.fleet else alone


def _refuse(options: argparse.Namespace) -> None:
    for name in NO_JOBS:
        if getattr(options, name):
            raise NotWithHarness(_flag(name))
    for name in COUNTS:
        if (count := getattr(options, name)) is not None and count < 1:
            raise NotACount(_flag(name), count)
    if options.url is None and options.endpoint is None:
        raise NothingServed()
    if options.url is not None and options.endpoint is not None:
        raise TwoServed(options.endpoint, options.url)
    if options.url is not None and not re.fullmatch(r"https?://[^/]+(/.*)?", options.url):
        raise NotAUrl(options.url)


def _served(options: argparse.Namespace, aws: HarnessAws, artifact: ModelArtifact) -> Served:
    if options.endpoint:
        return endpoint_served(aws.deployed_endpoint(options.endpoint), aws.region, aws.runtime_host())
    served = url_served(
        options.url,
        options.model or artifact.default_model,
        options.instance_type or UNKNOWN_TYPE,
        options.instances or 1,
        _region(aws),
    )
    if served.measured_on == "local" and options.generators:
        raise UnreachableFromAws(options.url)
    return served


def _region(aws: HarnessAws) -> str | None:
    """Whose prices hold; a URL can be measured without any."""
    try:
        return aws.region
    except AwsUnavailable:
        return None


def _fleet(options: argparse.Namespace, aws: HarnessAws, source: WorkloadFolder) -> Fleet:
    if options.role_arn is None:
        raise NoGeneratorRole()
    return Fleet(
        generators=options.generators,
        instance_type=options.generator_type or GENERATOR_TYPE,
        image_uri=options.generator_image_uri or image.image_uri(aws.region),
        role_arn=options.role_arn,
        bucket=options.payload_bucket or aws.payload_bucket(),
        region=aws.region,
        kms_key=options.kms_key,
        security_groups=tuple(options.security_group),
        subnets=tuple(options.subnet),
    )


def _generators(options: argparse.Namespace) -> str:
    if options.generators:
        return f"{options.generators} × {options.generator_type or GENERATOR_TYPE}"
    return machine.description()


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"
