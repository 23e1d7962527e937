"""Responses in the shapes of the Inference Recommender API, and a service that returns them."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from aws_api.errors import AwsRefused
from aws_api.sagemaker import (
    FINER_METRICS_TAG,
    INVOCATIONS_URL_TAG,
    MEASURED_ON_TAG,
    EndpointDescription,
    JobNameTaken,
    SageMakerAccount,
)
from aws_api.session import Notify
from inference_recommender.capacity.time_series import Series
from inference_recommender.measure.job_requests import TestedModel
from inference_recommender.measure.job_service import QUANTILES
from tests.builders import SHA256
from tests.inference_recommender.measure.recorded_log import OWN, QUIET, at, lines

CREATED = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
COMPLETED = CREATED + timedelta(minutes=2)
ARN = "arn:aws:sagemaker:us-east-1:123456789012:inference-recommendations-job/job-1"
TESTED = TestedModel(model="m", role_arn="arn:aws:iam::123456789012:role/r", payload_url="s3://b/k")


def endpoint(name: str = "sm-epc-1", instance_type: str = "ml.c5.xlarge", count: int = 1) -> dict[str, Any]:
    return {
        "EndpointName": name,
        "VariantName": "sm-epc-variant-1",
        "InstanceType": instance_type,
        "InitialInstanceCount": count,
    }


def recommendation(**changes: Any) -> dict[str, Any]:
    return {
        "RecommendationId": "job-1/1",
        "Metrics": {
            "CostPerHour": 0.5,
            "CostPerInference": 1e-6,
            "MaxInvocations": 12_000,
            "ModelLatency": 21,
            "CpuUtilization": 95.0,
            "MemoryUtilization": float("nan"),
        },
        "EndpointConfiguration": endpoint(),
        "ModelConfiguration": {"EnvironmentParameters": [{"Key": "THREADS", "ValueType": "String", "Value": "2"}]},
        **changes,
    }


def description(status: str = "COMPLETED", **changes: Any) -> dict[str, Any]:
    done = {"CompletionTime": COMPLETED} if status in {"COMPLETED", "FAILED", "STOPPED"} else {}
    return {
        "JobName": "job-1",
        "JobType": "Advanced",
        "JobArn": ARN,
        "Status": status,
        "CreationTime": CREATED,
        "InferenceRecommendations": [recommendation()],
        **done,
        **changes,
    }


def step(status: str, **benchmark: Any) -> dict[str, Any]:
    return {
        "StepType": "BENCHMARK",
        "JobName": "job-1",
        "Status": status,
        "InferenceBenchmark": {"EndpointConfiguration": endpoint(), "ModelConfiguration": {}, **benchmark},
    }


SERIES = Series(
    period_s=5,
    seconds=(0.0, 5.0, 10.0, 15.0),
    users=(1.0, 2.0, 3.0, 4.0),
    invocations=(300.0, 600.0, 900.0, 1000.0),
    errors=(0.0, 0.0, 0.0, 0.0),
    latency_ms={
        "p50": (3.0, 4.0, 5.0, 8.0),
        "p90": (4.0, 5.0, 7.0, 12.0),
        "p95": (5.0, 6.0, 8.0, 15.0),
        "p99": (6.0, None, 12.0, 21.0),
    },
    model_latency_ms={"p95": (4.0, 5.0, 7.0, 14.0), "p99": (6.0, 7.0, 12.0, 20.0)},
    model_latency_quantiles_ms={"p1": 2.0, "p50": 5.0, "p90": 9.0, "p95": 12.0, "p99": 20.0, "p99.9": 30.0},
)


def points(series: Series, queries: Iterable[Mapping[str, Any]]) -> dict[str, dict[datetime, float]]:
    """Returns what CloudWatch answers to queries of a test with this series, at the series' period."""
    values: dict[str, dict[datetime, float]] = {}
    times = [CREATED + timedelta(seconds=second) for second in series.seconds]
    quantiles = dict(zip((f"q{number}" for number in range(1, 11)), QUANTILES, strict=True))
    for query in queries:
        key, statistic, period = query["Id"], query["MetricStat"]["Stat"], query["MetricStat"]["Period"]
        if key == "q0":
            values[key] = {CREATED: 1000.0} if series.model_latency_quantiles_ms else {}
        elif key in quantiles:
            known = series.model_latency_quantiles_ms.get(quantiles[key])
            values[key] = {} if known is None else {CREATED: known * 1000}
        elif period == series.period_s:
            columns = {"users": series.users, "invocations": series.invocations, "errors": series.errors}
            model = tuple(None if one is None else one * 1000 for one in series.model_latency_ms.get(statistic, ()))
            column = columns.get(key) or (model if key == "model" else series.latency_ms.get(key, ()))
            values[key] = {time: one for time, one in zip(times, column, strict=False) if one is not None}
    return values


class FakeService(SageMakerAccount):
    """Answers DescribeInferenceRecommendationsJob with the next of `descriptions`, and then always with the last."""

    region = "us-east-1"

    def __init__(self, descriptions: Sequence[dict[str, Any]], steps: Sequence[dict[str, Any]] = ()) -> None:
        self._descriptions = list(descriptions)
        self._steps = list(steps)
        self.machine: str | None = None
        self.time_series: Series | None = SERIES
        self.log: list[str] = []
        self.notify: Notify | None = None
        self.uploaded: dict[str, bytes] = {}
        self.created: list[Mapping[str, Any]] = []
        self.stopped: list[str] = []
        self.troubles: dict[str, list[Exception]] = {}
        """Errors by method; each call raises one before it answers."""

    def upload(self, url: str, body: bytes) -> None:
        self._trouble("upload")
        self.uploaded[url] = body

    def create_job(self, request: Mapping[str, Any]) -> str:
        """Rejects a name that is taken, as the service does."""
        self._trouble("create_job")
        if any(job["JobName"] == request["JobName"] for job in self.created):
            raise JobNameTaken(request["JobName"])
        self.created.append(request)
        return ARN

    def describe_job(self, name: str) -> dict[str, Any]:
        self._trouble("describe_job")
        found = self._descriptions.pop(0) if len(self._descriptions) > 1 else self._descriptions[0]
        return {**found, "JobName": name}

    def job_steps(self, name: str) -> list[dict[str, Any]]:
        self._trouble("job_steps")
        return self._steps

    def stop_job(self, name: str) -> None:
        self._trouble("stop_job")
        self.stopped.append(name)
        self._descriptions = [description("STOPPING"), description("STOPPED")]

    def tags(self, arn: str) -> dict[str, str]:
        own = {tag["Key"]: tag["Value"] for tag in self.created[0]["Tags"]} if self.created else {}
        return {**own, FINER_METRICS_TAG: "true", **({MEASURED_ON_TAG: self.machine} if self.machine else {})}

    def container_log(self, job_name: str, endpoint_name: str) -> list[str]:
        return self.log

    def metrics(
        self, queries: Iterable[Mapping[str, Any]], start: datetime, end: datetime
    ) -> dict[str, dict[datetime, float]]:
        return points(self.time_series, queries) if self.time_series else {}

    def scaling_configuration(self, request: Mapping[str, Any]) -> dict[str, Any]:
        raise AwsRefused("GetScalingConfigurationRecommendation", "NotImplemented", "not here")

    def _trouble(self, method: str) -> None:
        if errors := self.troubles.get(method):
            raise errors.pop(0)


class DeployedAccount(SageMakerAccount):
    """An endpoint is in service at the second look. The logs are those of recorded starts."""

    region = "us-east-1"
    url: str | None = "http://127.0.0.1:1/key/invocations"
    """The URL behind every endpoint, as on the local account; None as on AWS."""
    status = "InService"
    archive = SHA256

    def __init__(self, *logs: str, **variant: Any) -> None:
        """Opens no session. `variant` replaces members of the deployed variant."""
        self.made: list[Mapping[str, Any]] = []
        """The requests of models and endpoint configurations."""
        self.deleted: list[str] = []
        self.interrupted_at: int | None = None
        self.outputs: dict[str, str] | None = {"EndpointName": "deployed"}
        self._logs = [[(line.written_at, line.text) for line in lines(log)] for log in logs or (OWN + QUIET,)]
        self._looks = 0
        deployed = {"VariantName": "AllTraffic", "ModelName": "served", "InstanceType": "ml.c5.xlarge"}
        self._deployed = {**deployed, "InitialInstanceCount": 1, **variant}

    def default_bucket(self) -> str:
        return f"sagemaker-{self.region}-123456789012"

    def stack_outputs(self, stack: str, instead: str = "") -> dict[str, str]:
        return self.outputs or {}

    def model(self, name: str) -> dict[str, Any]:
        container = {"Image": "i", "Environment": {"A": "1", "THREADS": "1"}}
        return {"ModelName": name, "ExecutionRoleArn": "r", "PrimaryContainer": container}

    def make_model(self, request: Mapping[str, Any]) -> None:
        self.made.append(request)

    def delete_model(self, name: str) -> None:
        self.deleted.append(f"model {name}")

    def make_endpoint(self, config: Mapping[str, Any], endpoint: Mapping[str, Any]) -> None:
        self.made.append(config)
        if len(self.made) == self.interrupted_at:
            raise KeyboardInterrupt

    def delete_endpoint(self, name: str, *_: Any) -> None:
        self.deleted.append(name)

    def describe_endpoint(self, name: str) -> dict[str, Any]:
        self._looks += 1
        return {
            "EndpointName": name,
            "EndpointStatus": "Creating" if self.made and self._looks == 1 else self.status,
            "FailureReason": "No room.",
            "CreationTime": datetime.fromtimestamp(at(40.0), UTC),
            "LastModifiedTime": datetime.fromtimestamp(at(43.7), UTC),
        }

    def endpoint_description(self, name: str) -> EndpointDescription:
        variants = self.made[-1]["ProductionVariants"] if self.made else [self._deployed]
        return EndpointDescription(
            endpoint=self.describe_endpoint(name),
            config={"ProductionVariants": variants},
            model={"PrimaryContainer": {"ModelDataUrl": f"s3://assets/{self.archive}.tar.gz"}},
            tags=[{"Key": INVOCATIONS_URL_TAG, "Value": self.url}] if self.url else [],
            scalable_targets=[],
        )

    def client(self, service: str) -> Any:
        assert self.url is None, f"{service} is not needed if the server's own URL is known"

    def endpoint_log(self, name: str) -> list[list[tuple[float, str]]]:
        return [self._logs[min(len(self.made), len(self._logs)) - 1]] if self.made else self._logs
