"""A completed run of spellcheck's quick traffic, whose job the fake service answered."""

from pathlib import Path
from typing import Any

from inference_recommender.measure.job import JobSource
from inference_recommender.measure.job_requests import TestedModel, plan_job
from inference_recommender.measure.run import RunSubject, run
from inference_recommender.progress import Progress
from inference_recommender.run_folder import RunFolder
from tests.builders import an_artifact
from tests.inference_recommender.api import FakeService, description
from workloads import WorkloadFolder


def completed_run(folder: WorkloadFolder, path: Path, described: dict[str, Any] | None = None) -> RunFolder:
    tested = TestedModel(model="m", role_arn="arn:aws:iam::123456789012:role/r", payload_url="s3://b/k")
    plan = plan_job(folder.workload, "quick", folder.traffic("quick"), tested, "job-1")
    subject = RunSubject(workload=folder.workload, payloads=folder.payloads(), artifact=an_artifact(), traffic="quick")
    service, run_folder = FakeService([described or description()]), RunFolder(path)
    run(JobSource(plan=plan, account=service, sleep=lambda seconds: None), run_folder, Progress(), subject=subject)
    return run_folder
