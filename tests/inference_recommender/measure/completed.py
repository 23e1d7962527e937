"""Runs of spellcheck's quick traffic whose jobs the fake service answers."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from inference_recommender.measure.job import JobSource
from inference_recommender.measure.job_requests import Configuration, plan_job
from inference_recommender.measure.run import RunSubject, run
from inference_recommender.run_folder import RunFolder
from tests.builders import Watched, an_artifact
from tests.inference_recommender.api import TESTED, FakeService, description
from workloads import Recommendation, WorkloadFolder


class Runs:
    """Runs in one folder, by a job of the folder's name or by several."""

    def __init__(self, folder: WorkloadFolder, path: Path) -> None:
        self.folder, self.name = folder, path.name
        self.run_folder = RunFolder(path)
        self.watcher = Watched()
        self.sleep: Callable[[float], None] = lambda seconds: None

    def __call__(self, service: FakeService, tests: int = 1) -> Recommendation:
        many = [Configuration(instance_type="ml.c5.xlarge", environment={"N": (str(n),)}) for n in range(tests)]
        workload, traffic = self.folder.workload, self.folder.traffic("quick")
        plan = plan_job(workload, "quick", traffic, TESTED, self.name, many if tests > 1 else None)
        subject = RunSubject(
            workload=workload, payloads=self.folder.payloads(), artifact=an_artifact(), traffic="quick"
        )
        source = JobSource(plan=plan, account=service, sleep=self.sleep)
        return run(source, self.run_folder, self.watcher, subject=subject)

    def resume(self, service: FakeService) -> Recommendation:
        return run(JobSource(plan=None, account=service, sleep=self.sleep), self.run_folder, self.watcher)


def completed_run(folder: WorkloadFolder, path: Path, described: dict[str, Any] | None = None) -> RunFolder:
    runs = Runs(folder, path)
    runs(FakeService([described or description()]))
    return runs.run_folder


def interrupt_once() -> Callable[[float], None]:
    """Returns a sleep in which the user presses Ctrl-C, the first time."""
    interrupts = iter([KeyboardInterrupt()])

    def sleep(seconds: float) -> None:
        if error := next(interrupts, None):
            raise error

    return sleep
