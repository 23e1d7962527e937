"""The system under test: what AWS reports of an endpoint, what a URL says, and which endpoints cannot be measured."""

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from aws_api.errors import AwsUnavailable
from aws_api.expiry import expiry_tag
from aws_api.sagemaker import INVOCATIONS_URL_TAG, EndpointDescription
from inference_recommender.measure.system import (
    SystemUnderTest,
    machine_description,
    system_at_url,
    system_of_endpoint,
)
from tests.builders import message_of
from workloads import UsageError

NOW = datetime(2026, 11, 23, 3, 0, tzinfo=UTC)
SHA256 = "ab" * 32
VARIANT = {"VariantName": "AllTraffic", "InstanceType": "ml.g5.xlarge", "InitialInstanceCount": 1, "ModelName": "m-1"}
SCALED = [{"ResourceId": "endpoint/lives/variant/AllTraffic"}]
DIRECT = [{"Key": INVOCATIONS_URL_TAG, "Value": "http://127.0.0.1:4000/key/invocations"}]


def described(**changes: Any) -> EndpointDescription:
    members: dict[str, Any] = {
        "endpoint": {
            "EndpointName": "lives",
            "EndpointStatus": "InService",
            "ProductionVariants": [{"VariantName": "AllTraffic", "CurrentInstanceCount": 4}],
        },
        "config": {"ProductionVariants": [VARIANT]},
        "model": {"PrimaryContainer": {"ModelDataUrl": f"s3://cdk-assets/{SHA256}.tar.gz"}},
        "tags": [],
        "scalable_targets": [],
    }
    return EndpointDescription(**{**members, **changes})


def system(**changes: Any) -> SystemUnderTest:
    return system_of_endpoint(described(**changes), "us-east-1")


def test_an_endpoint_has_the_archive_type_and_instances_that_aws_reports() -> None:
    found = system(tags=[expiry_tag(NOW)])
    assert (found.archive_sha256, found.instance_type, found.instances) == (SHA256, "ml.g5.xlarge", 4)
    assert (found.url, found.measured_on, found.expires_at) == (None, "sagemaker", NOW)
    assert (found.name, found.region) == ("lives", "us-east-1")
    assert found.machine.startswith("lives on 4 × ml.g5.xlarge, requests from ")
    assert found.configuration() == {
        "EndpointName": "lives",
        "VariantName": "AllTraffic",
        "InstanceType": "ml.g5.xlarge",
        "InitialInstanceCount": 4,
    }


def test_an_endpoint_with_a_servers_url_is_one_server_even_if_it_scales() -> None:
    found = system(tags=DIRECT, scalable_targets=SCALED)
    assert (found.instances, found.stands_in, found.measured_on) == (1, True, "local")
    for model in ({}, {"PrimaryContainer": {"ModelDataUrl": "s3://own-bucket/deadbeef.tar.gz"}}):
        assert system(model=model).archive_sha256 is None
    assert found.url == "http://127.0.0.1:4000/key/invocations"
    assert found.machine == machine_description()


UPDATING = {"EndpointName": "lives", "EndpointStatus": "Updating"}
SERVERLESS = {"VariantName": "AllTraffic", "ServerlessConfig": {}}


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"endpoint": UPDATING}, "it is Updating. Wait until it is InService."),
        ({"config": {"ProductionVariants": [VARIANT, VARIANT]}}, "it has 2 variants. Allowed: one."),
        ({"config": {"ProductionVariants": [SERVERLESS]}}, "it is serverless. Allowed: an endpoint on instances."),
        (
            {"config": {"ProductionVariants": [VARIANT], "AsyncInferenceConfig": {"OutputConfig": {}}}},
            "it is asynchronous. Allowed: a real-time endpoint.",
        ),
        (
            {"scalable_targets": SCALED},
            "autoscaling would change its number of instances under load. Deploy with `-c autoscaling=off`, or "
            "deregister the scalable target endpoint/lives/variant/AllTraffic during the test.",
        ),
    ],
)
def test_other_endpoints_cannot_be_measured(changes: dict[str, Any], reason: str) -> None:
    assert message_of(AwsUnavailable, system, **changes) == f"Endpoint lives cannot be measured: {reason}"


@pytest.mark.parametrize(
    ("url", "completed", "measured_on"),
    [
        ("http://host:8000", "http://host:8000/v2/models/spellcheck/infer", "service"),
        ("https://service.example/", "https://service.example/v2/models/spellcheck/infer", "service"),
        ("http://[::1]:8080/invocations", "http://[::1]:8080/invocations", "local"),
        ("http+unix://%2Ftmp%2Fs/invocations", "http+unix://%2Ftmp%2Fs/invocations", "local"),
    ],
)
def test_a_url_without_a_path_is_completed_to_the_models(url: str, completed: str, measured_on: str) -> None:
    found = system_at_url(url, "spellcheck")
    assert (found.name, found.url, found.measured_on) == (url, completed, measured_on)
    assert (found.instance_type, found.instances, found.region) == ("unknown", 1, "unknown")


def test_the_instances_behind_a_url_are_a_type_with_or_without_a_number() -> None:
    found = [system_at_url("http://h", "m", fleet) for fleet in ("ml.c5.xlarge", "12xml.c5.xlarge")]
    assert [(one.instances, one.instance_type) for one in found] == [(1, "ml.c5.xlarge"), (12, "ml.c5.xlarge")]
    for fleet in ("0xml.c5.xlarge", "two"):
        message = message_of(UsageError, system_at_url, "http://h", "m", fleet)
        allowed = "Allowed: TYPE or NxTYPE, such as 2xml.inf2.xlarge."
        assert message == f"--instances: got '{fleet}'. {allowed}"


def test_the_machine_is_described_by_its_cpu_and_cores(tmp_path: Path) -> None:
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text("processor : 0\nmodel name : Some CPU\n", "utf-8")
    assert re.fullmatch(r"Some CPU with \d+ cores?", machine_description(cpuinfo))
    assert machine_description(tmp_path / "none").startswith("unknown CPU with ")
