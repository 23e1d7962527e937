"""`inference_recommender.run`: a job of Inference Recommender from Python, for a notebook. Prints nothing."""

import warnings
from collections.abc import Sequence
from pathlib import Path

from aws_api.sagemaker import SageMakerAccount
from inference_recommender.measure.job import JobSource, job_model
from inference_recommender.measure.job_requests import SERVICE_DEFAULT, plan_default_job, plan_job
from inference_recommender.measure.run import RunSubject, run
from inference_recommender.progress import Progress
from inference_recommender.run_folder import RunFolder, run_name
from workloads import Recommendation, UsageError, WorkloadFolder, load_workload
from workloads.folder import with_settings


def run_job(
    workload: str | WorkloadFolder,
    *,
    model: object,
    job: str,
    traffic: str,
    settings: Sequence[str],
    runs: Path,
    progress: Progress | None,
) -> Recommendation:
    named = [f"recommender.model={name_of(model)}"] if model is not None else []
    folder = with_settings(load_workload(workload) if isinstance(workload, str) else workload, [*named, *settings])
    if job not in ("default", "advanced"):
        raise UsageError(f"job: got '{job}'. Allowed: 'default' or 'advanced'.")
    account = SageMakerAccount()
    tested = job_model(account, folder.workload)
    traffic = SERVICE_DEFAULT if job == "default" else traffic
    name = run_name(folder.workload.name, traffic)
    if job == "default":
        plan = plan_default_job(folder.workload, tested, name)
    else:
        plan = plan_job(folder.workload, traffic, folder.traffic(traffic), tested, name)
    for warning in (*plan.warnings, *plan.check_drivers(folder.workload)):
        warnings.warn(warning, stacklevel=3)
    subject = RunSubject.of(folder, traffic, warnings.warn)
    return run(JobSource(plan=plan, account=account), RunFolder(runs / name), progress or Progress(), subject=subject)


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
