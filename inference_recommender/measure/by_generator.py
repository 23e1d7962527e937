"""Measures by the load generator of this project: phased traffic, or an open-loop search of the capacity."""

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from aws_api.errors import AwsUnavailable
from aws_api.processing_jobs import ProcessingJob
from aws_api.sagemaker import SageMakerAccount
from inference_recommender.measure.generator_fleet import FleetDrive, plan_fleet
from inference_recommender.measure.load_test import LoadTest
from inference_recommender.measure.open_loop import DURATION_S, OpenLoopSearch, search_system
from inference_recommender.measure.run import RunSubject, run
from inference_recommender.measure.system import SystemUnderTest, system_at_url, system_of_endpoint
from inference_recommender.measurement import Measurement
from inference_recommender.progress import Progress
from inference_recommender.run_folder import RunFolder
from workloads import (
    CODE,
    ROOT,
    MissingArtifact,
    Recommendation,
    UsageError,
    Workload,
    WorkloadFolder,
    images,
    load_artifact,
)


def system_to_measure(
    account: SageMakerAccount, workload: Workload, endpoint: str | None, url: str | None, fleet: str | None
) -> SystemUnderTest:
    """Returns the server at `url` with `fleet` behind it, the endpoint, or the stack's endpoint.

    A server at a URL is assumed to serve the latest build. Raises `UsageError` or `Unavailable`.
    """
    if url is None:
        if fleet is not None:
            raise UsageError("--instances: only with --url. AWS reports it for an endpoint.")
        name = endpoint or account.endpoint_name(workload.stack_name)
        return system_of_endpoint(account.endpoint_description(name), account.region)
    model = workload.name
    sha256: str | None = None
    with contextlib.suppress(MissingArtifact):
        built = load_artifact(ROOT, workload.name, workload.hosting.target)
        model, sha256 = built.default_model, built.archive_sha256
    try:
        region = account.region
    except AwsUnavailable:  # a URL can be measured without one
        region = "unknown"
    return system_at_url(url, model, fleet, archive_sha256=sha256, region=region)


@dataclass(frozen=True, kw_only=True, slots=True)
class GeneratorTest:
    """Phased traffic if there is a `traffic`, otherwise an open-loop search of at most `longest_s`."""

    folder: WorkloadFolder
    account: SageMakerAccount
    system: SystemUnderTest
    traffic: str | None
    longest_s: float | None

    def run(
        self, run_folder: RunFolder, progress: Progress, subject: RunSubject, *, search_all: bool = False
    ) -> Recommendation:
        source: LoadTest | OpenLoopSearch = OpenLoopSearch(system=self.system, longest_s=self.longest_s or DURATION_S)
        search: Callable[..., Measurement] | None = None
        if self.traffic:
            test = self.load_test(self.traffic)
            if job := self.processing_job(run_folder.path.name, self.traffic):
                generators = f"{job.instances} × {job.instance_type}"
                test = replace(test, drive=FleetDrive(job, self.account, CODE, progress), generators=generators)
            else:
                search = partial(search_system, self.system, test.traffic.duration_s)
            source = test
        return run(source, run_folder, progress, subject=subject, search=search, search_all=search_all)

    def load_test(self, traffic: str) -> LoadTest:
        timeout_s = self.folder.workload.recommender.request_timeout_s
        return LoadTest(system=self.system, traffic=self.folder.traffic(traffic), request_timeout_s=timeout_s)

    def processing_job(self, name: str, traffic: str) -> ProcessingJob | None:
        """Returns the job of several generators; None for a generator on this machine."""
        account, workload = self.account, self.folder.workload
        settings = workload.recommender
        if settings.generators is None:
            return None
        if self.system.measured_on == "local":
            raise UsageError(
                f"recommender.generators: {self.system.name} is on this machine, which a Processing job cannot reach. "
                "Measure another system, or leave generators out."
            )
        instead = ", or set recommender.role_arn to a role that sagemaker.amazonaws.com may assume"
        image = settings.generator_image_uri
        return plan_fleet(
            workload.name,
            name,
            workload.traffic[traffic].duration_s,
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
