"""A fake account for experiments.

A test's measurement follows from its variant and instance type.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

from aws_api.errors import AwsUnavailable
from aws_api.sagemaker import FINER_METRICS_TAG, MEASURED_ON_TAG
from inference_recommender.experiment.measure import ExperimentRun, measure_cells
from inference_recommender.experiment.plan import Experiment, ExperimentAccess, cells
from inference_recommender.experiment.result import ExperimentFolder
from inference_recommender.measurement import Measurement
from inference_recommender.progress import Progress
from tests.builders import an_artifact
from tests.inference_recommender.api import SERIES, FakeService, description, endpoint, points, step
from workloads import load_workload

ROLE = "arn:aws:iam::123456789012:role/RecommenderRole"
IMAGE = "123456789012.dkr.ecr.us-east-1.amazonaws.com/triton:25.09"
NAME = "text-classification-experiment-1"
TYPES = ["ml.c5.xlarge", "ml.c5.2xlarge"]
RATES = {"ts-base": 6_000, "ts-db": 7_000, "ort-base": 12_000, "ort-ig": 15_000, "ort-ig-db": 18_000}
LATENCIES_MS = {"ts-base": 30, "ts-db": 45, "ort-base": 20, "ort-ig": 25, "ort-ig-db": 600}
FASTER = {"ml.c5.xlarge": 1, "ml.c5.2xlarge": 2}


class JobAccount(FakeService):
    def __init__(self) -> None:
        super().__init__([])
        self.ending: int | None = None
        """The number of jobs that end; None lets all end at once."""
        self.failing: dict[str, str] = {}
        """Variant → the reason why its tests fail."""
        self.series_of_tests = SERIES
        self.gpu_utilization_percent: float | None = None
        """The utilisation of all GPUs of an instance together."""
        self.made: list[Mapping[str, Any]] = []
        """Every CreateModel."""
        self.models: dict[str, Mapping[str, Any]] = {}
        """Those that were not deleted, by name."""

    def upload_archive(self, url: str, file: Path) -> None:
        """No-op: nothing reads it."""

    def make_model(self, request: Mapping[str, Any]) -> None:
        name, archive = request["ModelName"], request["PrimaryContainer"]["ModelDataUrl"]
        if name in self.models and self.models[name]["PrimaryContainer"]["ModelDataUrl"] != archive:
            raise AwsUnavailable(f"model {name} is another's")
        self.made.append(request)
        self.models[name] = request

    def delete_model(self, name: str) -> None:
        self.models.pop(name, None)

    def gpu_utilization(self, endpoint: str, variant: str, start: datetime, end: datetime) -> float | None:
        return self.gpu_utilization_percent

    def create_job(self, request: Mapping[str, Any]) -> str:
        super().create_job(request)
        assert request["InputConfig"]["ModelName"] in self.models, "a job tests a model that is there"
        return self._arn(request["JobName"])

    def describe_job(self, name: str) -> dict[str, Any]:
        ended, results = self._has_ended(name), self._results(name)
        good = [result for result in results if "FailureReason" not in result]
        status = "IN_PROGRESS" if not ended else "COMPLETED" if good else "FAILED"
        if name in self.stopped:
            status, ended, good = "STOPPED", True, good[:1]
        failure = {"FailureReason": results[0]["FailureReason"]} if status == "FAILED" else {}
        found = {"InferenceRecommendations": good if ended else [], **failure}
        return description(status, JobName=name, JobArn=self._arn(name), **found)

    def job_steps(self, name: str) -> list[dict[str, Any]]:
        def status(number: int, result: Mapping[str, Any]) -> str:
            if name in self.stopped:  # its first test had ended
                return "STOPPED" if number else "COMPLETED"
            ended = "FAILED" if "FailureReason" in result else "COMPLETED"
            return ended if self._has_ended(name) else "IN_PROGRESS"

        return [step(status(number, result), **result) for number, result in enumerate(self._results(name))]

    def stop_job(self, name: str) -> None:
        self.stopped.append(name)

    def tags(self, arn: str) -> dict[str, str]:
        (job,) = [job for job in self.created if self._arn(job["JobName"]) == arn]
        own = {tag["Key"]: tag["Value"] for tag in job["Tags"]}
        return {**own, FINER_METRICS_TAG: "true", MEASURED_ON_TAG: "Some CPU with 2 cores"}

    def metrics(
        self, queries: Iterable[Mapping[str, Any]], start: datetime, end: datetime
    ) -> dict[str, dict[datetime, float]]:
        """Every test has the same series; its requests are in proportion to the rate of its variant."""
        asked = list(queries)
        dimensions = [each for query in asked for each in query["MetricStat"]["Metric"]["Dimensions"]]
        (endpoint,) = {each["Value"] for each in dimensions if each["Name"] == "EndpointName"}
        factor, given = RATES[self._variant(endpoint)] / min(RATES.values()), self.series_of_tests
        more = tuple(None if count is None else count * factor for count in given.invocations)
        return points(given.model_copy(update={"invocations": more}), asked)

    def _results(self, name: str) -> list[dict[str, Any]]:
        (request,) = [job for job in self.created if job["JobName"] == name]
        variant = self._variant(request["InputConfig"]["ModelName"])
        results = []
        for instance_type in (one["InstanceType"] for one in request["InputConfig"]["EndpointConfigurations"]):
            configuration = endpoint(f"sm-{name}-{instance_type}", instance_type)
            rate, latency_ms = RATES[variant] * FASTER[instance_type], LATENCIES_MS[variant] / FASTER[instance_type]
            figures = {"RecommendationId": "1", "Metrics": {"MaxInvocations": rate, "ModelLatency": latency_ms}}
            failure = {"FailureReason": self.failing.get(variant)}
            outcome = failure if variant in self.failing else figures
            results.append({"EndpointConfiguration": configuration, **outcome})
        return results

    def _has_ended(self, name: str) -> bool:
        number = [job["JobName"] for job in self.created].index(name)
        return self.ending is None or number < self.ending

    @staticmethod
    def _variant(name: str) -> str:
        """Returns the variant that the name of a model or an endpoint holds."""
        return max((variant for variant in RATES if f"-{variant}" in name), key=len)

    @staticmethod
    def _arn(name: str) -> str:
        return f"arn:aws:sagemaker:us-east-1:123456789012:inference-recommendations-job/{name}"


def run(planned: ExperimentRun, **changes: Any) -> tuple[Measurement, ...]:
    return measure_cells(replace(planned, **changes))


def prepared(
    folder: ExperimentFolder, account: JobAccount, variants: Sequence[str], instance_types: Sequence[str] = ()
) -> ExperimentRun:
    """Begins an experiment of text_classification in `folder`, with artifacts that were never built."""
    source = load_workload("text_classification")
    chosen = cells(source, variants, instance_types)
    names = list(dict.fromkeys(cell.variant for cell in chosen))
    experiment = Experiment(
        name=NAME,
        workload="text_classification",
        traffic="quick",
        archives=dict.fromkeys(names, "a" * 64),
        cells=chosen,
    )
    access = ExperimentAccess(role_arn=ROLE, images={"cpu": IMAGE, "gpu": IMAGE}, bucket="bucket")
    folder.begin(experiment, source.workload, access)
    return ExperimentRun(
        experiment=experiment,
        source=source,
        artifacts={name: an_artifact(workload="text_classification", variant=name) for name in names},
        archives=dict.fromkeys(names, Path("model.tar.gz")),
        access=access,
        account=account,
        folder=folder,
        progress=Progress(),
        sleep=lambda seconds: None,
    )
