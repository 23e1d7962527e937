"""`inference_recommender.run`: a job or the load generator from Python, for a notebook. Prints nothing."""

import warnings
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Literal

from aws_api.sagemaker import SageMakerAccount
from inference_recommender.measure import run as use_case
from inference_recommender.measure.by_generator import GeneratorTest, system_to_measure
from inference_recommender.measure.job import JobSource, job_model
from inference_recommender.measure.job_requests import DEFAULT_TRAFFIC, SERVICE_DEFAULT, plan_default_job, plan_job
from inference_recommender.measure.open_loop import OPEN_LOOP
from inference_recommender.progress import Sentences
from inference_recommender.run_folder import RunFolder, run_name
from workloads import Recommendation, UsageError, WorkloadFolder
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
    account, warn = SageMakerAccount(), partial(warnings.warn, stacklevel=3)
    settings = [*([f"recommender.model={name_of(model)}"] if model is not None else []), *settings]
    if isinstance(workload, str):
        folder = use_case.workload_to_measure(workload, settings, None, None if url else account, endpoint)
    else:
        folder = with_settings(workload, settings)
    name = SERVICE_DEFAULT if job == "default" else traffic or (OPEN_LOOP if by_generator else DEFAULT_TRAFFIC)
    run_folder = RunFolder(runs / run_name(folder.workload.name, name))
    subject = use_case.RunSubject.of(folder, name, warn)
    if by_generator:
        system = system_to_measure(account, folder.workload, endpoint, url, instances)
        test = GeneratorTest(folder=folder, account=account, system=system, traffic=traffic, longest_s=max_duration_s)
        return test.run(run_folder, Sentences(progress), subject)
    tested, job_name = job_model(account, folder.workload), run_folder.path.name
    if name == SERVICE_DEFAULT:
        plan = plan_default_job(folder.workload, tested, job_name)
    else:
        plan = plan_job(folder.workload, name, folder.traffic(name), tested, job_name)
    for warning in (*plan.warnings, *plan.check_drivers(folder.workload)):
        warn(warning)
    return use_case.run(JobSource(plan=plan, account=account), run_folder, Sentences(progress), subject=subject)


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
