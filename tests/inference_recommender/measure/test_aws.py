"""The adapter reads AWS's answers: which endpoints a job may test, and where a container's log is."""

from collections.abc import Mapping
from typing import Any

import pytest
from botocore.exceptions import ClientError

from aws_api.errors import AwsRefused, AwsUnavailable
from inference_recommender.measure.aws import LOG_LINES, Aws, deployed_endpoint
from inference_recommender.measurement import DeployedEndpoint

VARIANT = {"VariantName": "AllTraffic", "InstanceType": "ml.g5.xlarge", "InitialInstanceCount": 1}


def endpoint(**changes: Any) -> dict[str, Any]:
    now = {"VariantName": "AllTraffic", "CurrentInstanceCount": 3}
    return {"EndpointName": "lives", "EndpointStatus": "InService", "ProductionVariants": [now], **changes}


def config(**changes: Any) -> dict[str, Any]:
    return {"ProductionVariants": [VARIANT], **changes}


def test_it_is_known_with_the_instances_that_it_has_now() -> None:
    assert deployed_endpoint(endpoint(), config(), []) == DeployedEndpoint(
        name="lives", variant_name="AllTraffic", instance_type="ml.g5.xlarge", instance_count=3
    )


@pytest.mark.parametrize(
    ("described", "configured", "targets", "why"),
    [
        (endpoint(EndpointStatus="Updating"), config(), [], "it is Updating. Wait until it is InService."),
        (
            endpoint(),
            config(ProductionVariants=[VARIANT, {**VARIANT, "VariantName": "Canary"}]),
            [],
            "it has 2 variants, and a job takes one.",
        ),
        (
            endpoint(),
            config(ProductionVariants=[{"VariantName": "AllTraffic", "ServerlessConfig": {}}]),
            [],
            "it is serverless, and a job takes a real-time endpoint on instances.",
        ),
        (
            endpoint(),
            config(AsyncInferenceConfig={"OutputConfig": {}}),
            [],
            "it is asynchronous, and a job takes a real-time endpoint.",
        ),
        (
            endpoint(),
            config(),
            [{"ResourceId": "endpoint/lives/variant/AllTraffic"}],
            "autoscaling is on, and a job takes an endpoint of a fixed size. Test a copy of it, or deregister the "
            "scalable target endpoint/lives/variant/AllTraffic for as long as the job runs.",
        ),
    ],
)
def test_an_endpoint_that_the_service_excludes_is_refused(
    described: dict[str, Any], configured: dict[str, Any], targets: list[dict[str, Any]], why: str
) -> None:
    with pytest.raises(AwsUnavailable) as caught:
        deployed_endpoint(described, configured, targets)
    assert str(caught.value) == f"--endpoint: lives cannot be tested by an Inference Recommender job: {why}"
    assert caught.value.exit_code == 3


OF_ENDPOINT = "/aws/sagemaker/Endpoints/sm-epc-1"
OF_JOBS = "/aws/sagemaker/InferenceRecommendationsJobs"


class FakeLogs:
    """CloudWatch Logs with streams by group; a group that is not there answers with the error `code`."""

    def __init__(self, groups: Mapping[str, Mapping[str, list[str]]], code: str = "ResourceNotFoundException") -> None:
        self._groups = groups
        self._code = code

    def describe_log_streams(self, **request: Any) -> Mapping[str, Any]:
        if request["logGroupName"] not in self._groups:
            raise ClientError({"Error": {"Code": self._code, "Message": "no"}}, "DescribeLogStreams")
        prefix = request.get("logStreamNamePrefix", "")
        names = [name for name in self._groups[request["logGroupName"]] if name.startswith(prefix)]
        return {"logStreams": [{"logStreamName": name} for name in names]}

    def get_log_events(self, **request: Any) -> Mapping[str, Any]:
        lines = self._groups[request["logGroupName"]][request["logStreamName"]]
        return {"events": [{"message": line} for line in lines[-request["limit"] :]]}


def log(logs: FakeLogs) -> list[str]:
    class Account(Aws):
        def client(self, service: str) -> FakeLogs:
            return logs

    return Account().container_log("job-1", "sm-epc-1")


def test_the_endpoints_own_log_comes_first_and_only_its_last_lines() -> None:
    lines = [f"line {number}" for number in range(20)]
    logs = FakeLogs({OF_ENDPOINT: {"AllTraffic/i-1": lines}, OF_JOBS: {"job-1/Endpoint/sm-epc-1": ["other"]}})
    assert log(logs) == lines[-LOG_LINES:]


def test_else_the_jobs_log_has_a_stream_for_it() -> None:
    streams = {"job-1/execution": ["no"], "job-1/Endpoint/sm-epc-1": ["out of memory\nkilled\n"]}
    assert log(FakeLogs({OF_JOBS: streams})) == ["out of memory", "killed"]


@pytest.mark.parametrize("code", ["ResourceNotFoundException", "AccessDeniedException"])
def test_a_log_that_is_missing_or_may_not_be_read_is_empty(code: str) -> None:
    assert log(FakeLogs({}, code)) == []


def test_any_other_refusal_is_not_swallowed() -> None:
    with pytest.raises(AwsRefused):
        log(FakeLogs({}, "ThrottlingException"))
