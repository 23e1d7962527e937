"""`inference_recommender.run`, and what the command `run` shares with it: the system and the test of the generator."""

import contextlib
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Literal

from aws_api.errors import AwsUnavailable
from aws_api.processing_jobs import ProcessingJob
from aws_api.sagemaker import SageMakerAccount
from inference_recommender.measure import run as use_case
from inference_recommender.measure.generator_fleet import FleetDrive, plan_fleet
from inference_recommender.measure.job import JobSource, job_model
from inference_recommender.measure.job_requests import DEFAULT_TRAFFIC, SERVICE_DEFAULT, plan_default_job, plan_job
from inference_recommender.measure.load_test import LoadTest
from inference_recommender.measure.open_loop import DURATION_S, OPEN_LOOP, OpenLoopSearch, search_system
from inference_recommender.measure.system import SystemUnderTest, system_at_url, system_of_endpoint
from inference_recommender.progress import Progress
from inference_recommender.run_folder import RunFolder, run_name
from workloads import CODE, ROOT, MissingArtifact, Recommendation, UsageError, Workload, WorkloadFolder, images
from workloads.artifact import load_artifact
from workloads.folder import with_settings


def run(
    workload: str | WorkloadFolder,
    *,
    model: object = None,
    job: Literal["default", "advanced"] | None = None,
    endpoint: str | None = None,
    url: str | None = None,
    instances: str | None = None,
    traffic: str | None = None,
    max_duration_s: float | None = None,
    settings: Sequence[str] = (),
    runs: Path = Path("runs"),
    progress: Callable[[str], None] = lambda sentence: None,
) -> Recommendation:
    """Measures a workload as the command `run` does, and returns the recommended fleet.

    `workload` is a folder of workloads/, or its name. By default SageMaker Inference Recommender runs an advanced `job`
    on `model`: a Model of the SageMaker SDK or of sagemaker-core, a model's name, or a model package's ARN. None is the
    stack's model. With `endpoint` or `url` the load generator measures that server instead. `instances` are those
    behind a URL, such as "2xml.inf2.xlarge".

    `traffic` is a [traffic.NAME] of workload.toml. Without it a job sends `production`, and the load generator searches
    the capacity for at most `max_duration_s`. `settings` are as in --set: "recommender.role_arn=…". The run's folder is
    below `runs`. Raises `workloads.UsageError`, `Unavailable`, `Interrupted` or `NoVerdict`.
    """
    if job not in (None, "default", "advanced"):
        raise UsageError(f"job: got '{job}'. Allowed: 'default' or 'advanced'.")
    by_generator = bool(endpoint or url)
    if by_generator and (job or model is not None):
        raise UsageError("endpoint, url: the load generator measures them. Leave out job and model.")
    account, warn = SageMakerAccount(), partial(warnings.warn, stacklevel=2)
    settings = [*([f"recommender.model={name_of(model)}"] if model is not None else []), *settings]
    if isinstance(workload, str):
        folder = use_case.workload_to_measure(workload, settings, None, None if url else account, endpoint)
    else:
        folder = with_settings(workload, settings)
    name = SERVICE_DEFAULT if job == "default" else traffic or (OPEN_LOOP if by_generator else DEFAULT_TRAFFIC)
    run_folder = RunFolder(runs / run_name(folder.workload.name, name))
    if by_generator:
        system = system_to_measure(account, folder.workload, endpoint, url, instances)
        test = GeneratorTest(folder=folder, account=account, system=system, traffic=traffic, longest_s=max_duration_s)
        return test.run(run_folder, Progress(progress), warn)
    tested, job_name = job_model(account, folder.workload), run_folder.path.name
    if name == SERVICE_DEFAULT:
        plan = plan_default_job(folder.workload, tested, job_name)
    else:
        plan = plan_job(folder.workload, name, folder.traffic(name), tested, job_name)
    for warning in (*plan.warnings, *plan.check_drivers(folder.workload)):
        warn(warning)
    subject = use_case.RunSubject.of(folder, name, warn)
    return use_case.run(JobSource(plan=plan, account=account), run_folder, Progress(progress), subject=subject)


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
        self,
        run_folder: RunFolder,
        progress: Progress,
        warn: Callable[[str], None],
        *,
        payloads: Path | None = None,
        search_all: bool = False,
    ) -> Recommendation:
        source: LoadTest | OpenLoopSearch = OpenLoopSearch(system=self.system, longest_s=self.longest_s or DURATION_S)
        search: use_case.SearchMeasurement | None = None
        if self.traffic:
            test = self.load_test(self.traffic)
            if job := self.processing_job(run_folder.path.name, self.traffic):
                generators = f"{job.instances} × {job.instance_type}"
                test = replace(test, drive=FleetDrive(job, self.account, CODE, progress), generators=generators)
            else:
                search = partial(search_system, self.system, test.traffic.duration_s)
            source = test
        subject = use_case.RunSubject.of(self.folder, self.traffic or OPEN_LOOP, warn, payloads)
        return use_case.run(source, run_folder, progress, subject=subject, search=search, search_all=search_all)

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


def name_of(model: object) -> str:
    """Returns the ARN of a model package or the name of a model. Raises `UsageError` for a model without either."""
    if isinstance(model, str):
        return model
    for attribute in ("model_package_arn", "model_name", "name"):
        if isinstance(value := getattr(model, attribute, None), str) and value:
            return value
    raise UsageError(
        f"model: got a {type(model).__name__} without a name. Create the model on SageMaker first, or pass its name or "
        "the ARN of a model package."
    )
