"""Takes a workload from its objective to an instance count: job, load, capacity, size, report."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from inference_recommender.progress import Progress
    from workloads import Recommendation, WorkloadFolder


def run(
    workload: "str | WorkloadFolder",
    *,
    model: object = None,
    job: Literal["default", "advanced"] = "advanced",
    traffic: str = "production",
    settings: Sequence[str] = (),
    runs: Path = Path("runs"),
    progress: "Progress | None" = None,
) -> "Recommendation":
    """Measures a model by a job of SageMaker Inference Recommender, and returns the recommended fleet.

    `workload` is a folder of workloads/, or its name: objective, instance types and payloads. `model` is a Model of the
    SageMaker SDK or of sagemaker-core, a model's name, or a model package's ARN; None is the stack's model. `traffic`
    is a [traffic.NAME] of workload.toml. `settings` are as in --set: "recommender.role_arn=…". The run's folder is
    below `runs`. Raises `workloads.UsageError`, `Unavailable` or `NoVerdict`.
    """
    from inference_recommender.measure.python_run import run_job  # scipy and boto3: the client needs neither

    return run_job(workload, model=model, job=job, traffic=traffic, settings=settings, runs=runs, progress=progress)
