"""A fake account for experiments that keeps its state on disk, so it outlives a process that is killed.

A test's measurement follows from its variant and instance type. As a program it runs an experiment of
`workloads/text_classification`, in which `ENDING` jobs end and the next one never does:

    python -m tests.inference_recommender.experiment.experiment_account EXPERIMENT_FOLDER STATE_FOLDER ENDING
"""

import json
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from aws_api.errors import AwsRefused, AwsUnavailable
from aws_api.sagemaker import MEASURED_ON_TAG, JobNameTaken, SageMakerAccount
from aws_api.session import Notify
from inference_recommender.capacity.time_series import Series
from inference_recommender.experiment.cells import cells
from inference_recommender.experiment.experiment_run import ExperimentRun, PreparedExperiment
from inference_recommender.experiment.folder import ExperimentFolder
from inference_recommender.experiment.images import PLATFORMS
from inference_recommender.experiment.measure import measure
from inference_recommender.experiment.plan import Experiment
from inference_recommender.experiment.resources import ExperimentAccess
from inference_recommender.measure.job_service import Sleep
from inference_recommender.measurement import Measurement
from inference_recommender.progress import Progress, Silent
from tests.builders import an_artifact
from tests.inference_recommender.api import SERIES, points
from workloads import load_workload

ROLE = "arn:aws:iam::123456789012:role/RecommenderRole"
IMAGE = "123456789012.dkr.ecr.us-east-1.amazonaws.com/triton:25.09"
RATES = {"ts-base": 6_000, "ts-db": 7_000, "ort-base": 12_000, "ort-ig": 15_000, "ort-ig-db": 18_000}
LATENCIES_MS = {"ts-base": 30, "ts-db": 45, "ort-base": 20, "ort-ig": 25, "ort-ig-db": 600}
FASTER = {"ml.c5.xlarge": 1, "ml.c5.2xlarge": 2}


class DiskAccount(SageMakerAccount):
    region = "us-east-1"

    def __init__(self, state: Path, ending: int | None = None) -> None:
        """`ending` is the number of jobs that end; None lets all end at once."""
        self.state = state
        self.ending = ending
        self.failing: dict[str, str] = {}
        """Variant → the reason why its tests fail."""
        self.series_of_tests = SERIES
        self.gpu_utilization_percent: float | None = None
        """The utilisation of all GPUs of an instance together."""
        self.made: list[Mapping[str, Any]] = []
        """Every CreateModel of this process."""
        self.machine: str | None = "Some CPU with 2 cores"
        self.notify: Notify | None = None
        state.mkdir(parents=True, exist_ok=True)

    @property
    def created(self) -> list[dict[str, Any]]:
        """Returns every CreateInferenceRecommendationsJob that was answered, in order."""
        file = self.state / "created.jsonl"
        return [json.loads(line) for line in file.read_text("utf-8").splitlines()] if file.exists() else []

    @property
    def models(self) -> dict[str, Any]:
        return {file.stem: json.loads(file.read_text("utf-8")) for file in self.state.glob("*.model")}

    def upload(self, url: str, body: bytes) -> None:
        """No-op: nothing reads it."""

    def upload_archive(self, url: str, file: Path) -> None:
        """No-op: nothing reads it."""

    def make_model(self, request: Mapping[str, Any]) -> None:
        name, there = request["ModelName"], self.models
        archive = request["PrimaryContainer"]["ModelDataUrl"]
        if name in there and there[name]["PrimaryContainer"]["ModelDataUrl"] != archive:
            raise AwsUnavailable(f"model {name} is another's")
        self.made.append(request)
        (self.state / f"{name}.model").write_text(json.dumps(request), "utf-8")

    def delete_model(self, name: str) -> None:
        (self.state / f"{name}.model").unlink(missing_ok=True)

    def gpu_utilization(self, endpoint: str, variant: str, start: datetime, end: datetime) -> float | None:
        return self.gpu_utilization_percent

    def create_job(self, request: Mapping[str, Any]) -> str:
        if any(job["request"]["JobName"] == request["JobName"] for job in self.created):
            raise JobNameTaken(request["JobName"])
        assert request["InputConfig"]["ModelName"] in self.models, "a job tests a model that is there"
        with (self.state / "created.jsonl").open("a") as file:
            file.write(json.dumps({"request": request, "at": time.time()}) + "\n")
        return self._arn(request["JobName"])

    def describe_job(self, name: str) -> dict[str, Any]:
        (job,) = [job for job in self.created if job["request"]["JobName"] == name]
        ended = self._has_ended(name)
        results = [self._result(job["request"], one) for one in self._types(job["request"])]
        good = [result for result in results if "FailureReason" not in result]
        status = "IN_PROGRESS" if not ended else "COMPLETED" if good else "FAILED"
        if (self.state / f"{name}.stopped").exists():
            status, ended, good = "STOPPED", True, good[:1]
        return {
            "JobName": name,
            "JobArn": self._arn(name),
            "JobType": "Advanced",
            "Status": status,
            "CreationTime": datetime.fromtimestamp(job["at"], UTC),
            "LastModifiedTime": datetime.fromtimestamp(job["at"], UTC),
            **({"CompletionTime": datetime.fromtimestamp(job["at"], UTC)} if ended else {}),
            **({"InferenceRecommendations": good} if ended else {}),
            **({"FailureReason": results[0]["FailureReason"]} if status == "FAILED" else {}),
        }

    def job_steps(self, name: str) -> list[dict[str, Any]]:
        (job,) = [job for job in self.created if job["request"]["JobName"] == name]
        results = [self._result(job["request"], one) for one in self._types(job["request"])]
        ended = self._has_ended(name)
        return [
            {
                "StepType": "BENCHMARK",
                "JobName": name,
                "Status": self._step_status(name, number, result, ended=ended),
                "InferenceBenchmark": result,
            }
            for number, result in enumerate(results)
        ]

    def stop_job(self, name: str) -> None:
        (self.state / f"{name}.stopped").touch()

    def tags(self, arn: str) -> dict[str, str]:
        (job,) = [job for job in self.created if self._arn(job["request"]["JobName"]) == arn]
        own = {tag["Key"]: tag["Value"] for tag in job["request"]["Tags"]}
        return {**own, **({MEASURED_ON_TAG: self.machine} if self.machine else {})}

    def container_log(self, job_name: str, endpoint_name: str) -> list[str]:
        return []

    def metrics(
        self, queries: Iterable[Mapping[str, Any]], start: datetime, end: datetime
    ) -> dict[str, dict[datetime, float]]:
        """Every test has the same series; its requests are in proportion to the rate of its variant."""
        asked = list(queries)
        (name,) = {
            each["Value"]
            for query in asked
            for each in query["MetricStat"]["Metric"]["Dimensions"]
            if each["Name"] == "EndpointName"
        }
        return points(self._scaled(RATES[self._variant_in(name)]), asked)

    def scaling_configuration(self, request: Mapping[str, Any]) -> dict[str, Any]:
        raise AwsRefused("GetScalingConfigurationRecommendation", "NotImplemented", "not here")

    def _scaled(self, rate: float) -> Series:
        given = self.series_of_tests
        more = tuple(None if count is None else count * rate / min(RATES.values()) for count in given.invocations)
        return given.model_copy(update={"invocations": more})

    def _result(self, request: Mapping[str, Any], instance_type: str) -> dict[str, Any]:
        variant = self._variant(request)
        endpoint = {
            "EndpointName": f"sm-{request['JobName']}-{instance_type}",
            "VariantName": "AllTraffic",
            "InstanceType": instance_type,
            "InitialInstanceCount": 1,
        }
        if variant in self.failing:
            return {"EndpointConfiguration": endpoint, "FailureReason": self.failing[variant]}
        faster = FASTER[instance_type]
        metrics = {"MaxInvocations": RATES[variant] * faster, "ModelLatency": LATENCIES_MS[variant] / faster}
        return {
            "RecommendationId": "1",
            "Metrics": metrics,
            "EndpointConfiguration": endpoint,
            "ModelConfiguration": {},
        }

    def _has_ended(self, name: str) -> bool:
        number = [job["request"]["JobName"] for job in self.created].index(name)
        return self.ending is None or number < self.ending

    def _step_status(self, name: str, number: int, result: Mapping[str, Any], *, ended: bool) -> str:
        """A job that is stopped had ended its first test."""
        if (self.state / f"{name}.stopped").exists():
            return "STOPPED" if number else "COMPLETED"
        return "IN_PROGRESS" if not ended else "FAILED" if "FailureReason" in result else "COMPLETED"

    def _variant(self, request: Mapping[str, Any]) -> str:
        """Returns the variant that the model's name holds."""
        return self._variant_in(request["InputConfig"]["ModelName"])

    @staticmethod
    def _variant_in(name: str) -> str:
        return max((variant for variant in RATES if f"-{variant}" in name), key=len)

    @staticmethod
    def _types(request: Mapping[str, Any]) -> list[str]:
        return [one["InstanceType"] for one in request["InputConfig"]["EndpointConfigurations"]]

    @staticmethod
    def _arn(name: str) -> str:
        return f"arn:aws:sagemaker:us-east-1:123456789012:inference-recommendations-job/{name}"


def run(
    prepared: PreparedExperiment,
    account: DiskAccount,
    folder: ExperimentFolder,
    progress: Progress | None = None,
    sleep: Sleep = time.sleep,
) -> tuple[Measurement, ...]:
    return measure(
        ExperimentRun(prepared=prepared, account=account, folder=folder, progress=progress or Silent(), sleep=sleep)
    )


def prepared(kept: ExperimentFolder, variants: Sequence[str], instance_types: Sequence[str] = ()) -> PreparedExperiment:
    """Begins an experiment of text_classification in `kept`, with artifacts that were never built."""
    source = load_workload("text_classification")
    chosen = cells(source, variants, instance_types)
    names = list(dict.fromkeys(cell.variant for cell in chosen))
    experiment = Experiment(
        name="text-classification-experiment-1",
        workload="text_classification",
        traffic="quick",
        archives=dict.fromkeys(names, "a" * 64),
        cells=chosen,
    )
    access = ExperimentAccess(role_arn=ROLE, images=dict.fromkeys(PLATFORMS, IMAGE), bucket="bucket")
    kept.begin(experiment, source.workload, access)
    artifacts = {name: an_artifact(workload="text_classification", variant=name) for name in names}
    return PreparedExperiment(
        experiment=experiment,
        source=source,
        artifacts=artifacts,
        archives=dict.fromkeys(names, Path("model.tar.gz")),
        access=access,
    )


if __name__ == "__main__":
    folder = ExperimentFolder(Path(sys.argv[1]))
    account = DiskAccount(Path(sys.argv[2]), ending=int(sys.argv[3]))
    planned = prepared(folder, ["ts-base", "ort-base", "ort-ig"], ["ml.c5.xlarge", "ml.c5.2xlarge"])
    run(planned, account, folder, sleep=lambda seconds: time.sleep(0.02))
