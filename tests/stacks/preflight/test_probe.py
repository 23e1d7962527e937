"""`preflight --probe` against moto: the results of GPU hosts as their logs and endpoints would show them."""

import io
import json
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

import pytest
from moto import mock_aws

from aws_api.expiry import TAG
from aws_api.sagemaker import ENDPOINT_LOG, SageMakerAccount
from inference_recommender.sizing.prices import listed_price
from stacks.preflight.driver_probe import ProbeResult, plan_probe, run_probe
from tests.builders import message_of
from workloads import Unavailable, UsageError, images

ROLE = "arn:aws:iam::123456789012:role/serving"
NOW = datetime(2026, 11, 27, 12, tzinfo=UTC)
ENABLED = "CUDA Forward Compatibility mode ENABLED."
KERNEL = "Using CUDA 12.6 driver version 560.35.03 with kernel driver version 470.256.02."
UNAVAILABLE = "ERROR: CUDA Forward Compatibility mode UNAVAILABLE."
PING = "The primary container for production variant only did not pass the ping health check."
PUBLISHED = ("sagemaker-tritonserver", "versions", "24.09")
HOURLY = listed_price("ml.g4dn.xlarge", "us-east-1")


class Host(SageMakerAccount):
    """An account whose endpoint has one status and log, and whose model answers that cuInit returned 0."""

    def __init__(self, status: str, *log: str, reason: str = "", interrupted: bool = False) -> None:
        super().__init__(region="us-east-1")
        self.status, self.log, self.reason, self.interrupted = status, log, reason, interrupted

    def make_endpoint(self, config: Mapping[str, Any], endpoint: Mapping[str, Any]) -> None:
        (variant,) = config["ProductionVariants"]
        variants = [{**variant, "InstanceType": "ml.g4dn.xlarge"}]  # moto knows no ml.g6
        super().make_endpoint({**config, "ProductionVariants": variants}, endpoint)
        self.tag_keys = {tag["Key"] for tag in endpoint["Tags"]}
        group = {"logGroupName": ENDPOINT_LOG.format(endpoint=endpoint["EndpointName"])}
        stream = {**group, "logStreamName": "only/i-0"}
        self.call("logs", "create_log_group", **group)
        self.call("logs", "create_log_stream", **stream)
        if events := [{"timestamp": 1_000 * int(NOW.timestamp()), "message": line} for line in self.log]:
            self.call("logs", "put_log_events", **stream, logEvents=events)

    def describe_endpoint(self, name: str) -> dict[str, Any]:
        if self.interrupted:
            raise KeyboardInterrupt
        return {"EndpointStatus": self.status, "FailureReason": self.reason}

    def client(self, service: str) -> Any:
        return self if service == "sagemaker-runtime" else super().client(service)

    def invoke_endpoint(self, **_: Any) -> dict[str, Any]:
        return {"Body": io.BytesIO(json.dumps({"outputs": [{"data": [0, 12060]}]}).encode())}

    def left(self) -> list[str]:
        names = [
            each[f"{noun}Name"]
            for noun in ("Endpoint", "EndpointConfig", "Model")
            for each in self.pages("sagemaker", LISTS[noun], f"{noun}s")
        ]
        listed = self.call("s3", "list_objects_v2", Bucket=self.default_bucket())
        return names + [each["Key"] for each in listed.get("Contents", [])]


LISTS = {"Endpoint": "list_endpoints", "EndpointConfig": "list_endpoint_configs", "Model": "list_models"}


@pytest.fixture(autouse=True)
def _moto() -> Iterator[None]:
    with mock_aws():
        yield


def probe(host: Host, instance_type: str = "ml.g4dn.xlarge", version: str | None = None) -> ProbeResult:
    ticks = iter((0.0, 720.0))
    endpoint = plan_probe(instance_type, version, ROLE, host, NOW)
    return run_probe(endpoint, host, lambda step: None, lambda seconds: None, lambda: next(ticks))


def test_an_image_that_starts_is_reported_with_its_driver_line_and_cost() -> None:
    host = Host("InService", "starting", ENABLED, KERNEL, ENABLED)
    assert probe(host).lines() == [
        f"image     {images.image_uri('sagemaker-tritonserver:24.09-py3', 'us-east-1', PUBLISHED, '')}",
        "host      ml.g4dn.xlarge, default driver: 470",
        "expected  starts (workloads/images.py)",
        "result    starts: it answers, cuInit returns 0, CUDA 12.6",
        f"log       {ENABLED}",
        f"log       {KERNEL}",
        f"cost      {0.2 * (HOURLY.usd_per_hour or 0):.2f} USD for 12 min. {HOURLY.reason}",
    ]
    assert host.left() == []


def test_an_image_that_fails_is_a_result() -> None:
    host = Host("Failed", UNAVAILABLE, reason=PING)
    result = probe(host, version="25.09")
    assert (result.expected, result.started, result.detail, result.log) == (False, False, PING, [UNAVAILABLE])
    assert host.left() == []


def test_an_unknown_pair_has_no_expectation() -> None:
    result = probe(Host("InService"), "ml.g6.xlarge", "25.09")
    assert (result.expected, result.started) == (None, True)
    assert "log       has no line about a driver" in result.lines()


def test_an_endpoint_that_has_no_capacity_is_no_result() -> None:
    host = Host("Failed", reason="Unable to provision requested ML compute capacity.")
    assert message_of(Unavailable, probe, host) == (
        "The endpoint probe-ml-g4dn-xlarge-20261127-120000 failed before its image started: "
        "Unable to provision requested ML compute capacity."
    )
    assert host.left() == []


def test_ctrl_c_deletes_everything() -> None:
    host = Host("Creating", interrupted=True)
    with pytest.raises(KeyboardInterrupt):
        probe(host)
    assert host.left() == []
    assert host.tag_keys == {TAG}, "`jobs cleanup` finds what a killed probe leaves"


TYPES = "Allowed: instance types of SageMaker endpoints with a GPU or an x86 CPU, as ml.g4dn.xlarge."


@pytest.mark.parametrize(
    ("instance_type", "version", "role", "message"),
    [
        ("g4dn.xlarge", None, ROLE, f"--probe: got 'g4dn.xlarge'. {TYPES}"),
        ("ml.inf1.xlarge", None, ROLE, f"--probe: got 'ml.inf1.xlarge'. {TYPES}"),
        (
            "ml.g4dn.xlarge",
            "25.01",
            ROLE,
            "--version: got '25.01'. Allowed in us-east-1: 23.12, 24.01, 24.03, 24.05, 24.09, 25.04, 25.09, 26.05.",
        ),
        (
            "ml.g4dn.xlarge",
            None,
            None,
            "--role-arn: got none. --probe needs an IAM role that SageMaker may assume. The role must allow to pull "
            "SageMaker's Triton image, to write logs and to read the default bucket. Name one with the policy "
            "AmazonSageMakerFullAccess.",
        ),
    ],
)
def test_bad_input_is_refused(instance_type: str, version: str | None, role: str | None, message: str) -> None:
    assert message_of(UsageError, plan_probe, instance_type, version, role, Host("InService"), NOW) == message
