"""An account of SageMaker endpoints without AWS: a deployed one, and those that a test makes."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from aws_api.sagemaker import INVOCATIONS_URL_TAG, EndpointDescription, SageMakerAccount
from tests.builders import SHA256
from tests.inference_recommender.measure.recorded_log import OWN, QUIET, at, lines


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
