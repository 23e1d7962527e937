"""Explains why an Inference Recommender job or its tests failed."""

from collections.abc import Mapping
from typing import Any

from aws_api.errors import NotFound
from aws_api.explain import LOG_LINES, Explanations, Failure, explain, log_command
from aws_api.logs import first_log
from aws_api.sagemaker import JOB_LOG, SageMakerAccount, container_logs
from workloads import UsageError


def explain_job(account: SageMakerAccount, name: str) -> Explanations:
    """Explains each failed test of an Inference Recommender job. Raises `UsageError` for an unknown name."""
    try:
        job = account.describe_job(name)
    except NotFound as error:
        raise UsageError(
            f"There is no Inference Recommender job called '{name}' in {account.region}. "
            "List jobs with `python -m inference_recommender jobs list`."
        ) from error
    steps = [step for step in account.job_steps(name) if step["Status"] == "FAILED"]
    failures = [_failed_test(account, name, step.get("InferenceBenchmark", {})) for step in steps]
    if not failures and job["Status"] == "FAILED":
        log = first_log(account, [(JOB_LOG, f"{name}/")], LOG_LINES)
        read_on = log_command(account, log, f"sagemaker describe-inference-recommendations-job --job-name {name}")
        reasons = (job["FailureReason"],) if "FailureReason" in job else ()
        failures = [Failure(subject=f"job {name}", status="FAILED", reasons=reasons, log=log, read_on=read_on)]
    return Explanations(name=f"job {name}", status=job["Status"], explanations=tuple(map(explain, failures)))


def _failed_test(account: SageMakerAccount, job: str, benchmark: Mapping[str, Any]) -> Failure:
    configuration = benchmark.get("EndpointConfiguration", {})
    endpoint = configuration.get("EndpointName")
    log = first_log(account, container_logs(job, endpoint) if endpoint else [(JOB_LOG, f"{job}/")], LOG_LINES)
    return Failure(
        subject=f"test on {configuration.get('InstanceType', 'an endpoint')}",
        status="FAILED",
        reasons=(benchmark["FailureReason"],) if "FailureReason" in benchmark else (),
        log=log,
        read_on=log_command(account, log, f"sagemaker list-inference-recommendations-job-steps --job-name {job}"),
    )
